"""Strings made to become code, wherever a page shows one: none runs, none asks the network, all of them stay text."""

import copy

import polars as pl
import pytest
from reports import report
from typer.testing import CliRunner

import recoslip
from recoslip import detector
from recoslip.data.datasets.block_model import csbm
from recoslip.inference.analysis import find_novel
from recoslip.pipeline.report.html import Report
from recoslip.products.cli import app

ALERT = "window.hacked=1;alert(1)"
INJECTIONS = [
    f"<script>{ALERT}</script>",
    f"</script><script>{ALERT}</script>",
    f"</ScRiPt ><sCrIpT>{ALERT}</sCrIpT>",
    f"<!--<script>{ALERT}</script>-->",
    f"--><script>{ALERT}</script>",
    f"]]><script>{ALERT}</script>",
    f"</title><script>{ALERT}</script>",
    f"</style><script>{ALERT}</script>",
    f"</textarea></noscript><script>{ALERT}</script>",
    f'"><script>{ALERT}</script>',
    f"'><img src=x onerror='{ALERT}'>",
    f"<img src=x onerror={ALERT}>",
    f'<img src="https://example.org/x.png" onload="{ALERT}">',
    f"<svg onload={ALERT}>",
    f"<svg><script>{ALERT}</script></svg>",
    f"<svg><animate onbegin={ALERT} attributeName=x dur=1s>",
    f"<math><mtext><img src=x onerror={ALERT}></mtext></math>",
    f"<body onload={ALERT}>",
    f"<input autofocus onfocus={ALERT}>",
    f"<details open ontoggle={ALERT}>",
    f"<video><source onerror={ALERT}></video>",
    f"<iframe src='javascript:{ALERT}'></iframe>",
    f"<iframe srcdoc='<script>{ALERT}</script>'></iframe>",
    "<iframe src=https://example.org></iframe>",
    f"<object data='data:text/html,<script>{ALERT}</script>'></object>",
    "<embed src=https://example.org/x.swf>",
    "<link rel=stylesheet href=https://example.org/x.css>",
    "<style>@import 'https://example.org/x.css';*{background:url(https://example.org/y)}</style>",
    "<base href=https://example.org/>",
    "<meta http-equiv=refresh content='0;url=https://example.org'>",
    f"<a href='javascript:{ALERT}'>link</a>",
    f"javascript:{ALERT}",
    f"data:text/html,<script>{ALERT}</script>",
    "<form action=https://example.org><button>go</button></form>",
    f"${{{ALERT}}}",
    f"{{{{constructor.constructor('{ALERT}')()}}}}",
    f"%{{customdata.{ALERT}}} %{{x}} <b>bold</b><extra>extra</extra>",
    f"&lt;script&gt;{ALERT}&lt;/script&gt;",
    f"\\u003cscript\\u003e{ALERT}\\u003c/script\\u003e",
    f'\\";{ALERT}//',
    f"\u2028{ALERT}\u2029",
    f"\u202e<script>{ALERT}</script>",
    "/*data*/ /*script*/ /*style*/",
    "__proto__",
    "<a href=https://example.org target=_blank style='position:fixed;inset:0'>",
]
DRAWING = {"shapes", "shape"}  # written by the page itself and never by a user


@pytest.fixture(scope="module")
def data():
    graph = csbm(nodes=120, categories=3, features=4, seed=2)
    fitted = recoslip.calibrate(detector("domain-discriminator", epochs=60), graph, rotations=3, max_fpr=0.3)
    return report(find_novel(fitted, graph)).data


def with_strings(value, strings):
    """The data with every string in it replaced by the next of the strings, but for the drawing of shapes."""
    if isinstance(value, dict):
        return {key: inner if key in DRAWING else with_strings(inner, strings) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_strings(inner, strings) for inner in value]
    return next(strings) if isinstance(value, str) else value


def endless(strings):
    while True:
        yield from strings


def look(browser, path):
    """Open a page, search, colour, hover and open details as a reader would; return the number of elements by tag."""
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    page = context.new_page()
    dialogs, requests, problems = [], [], []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    page.select_option("#filter", "all")
    page.select_option("#level", index=0)
    for row in range(3):
        page.locator("#rows tr").nth(row).click()
        page.locator("dialog button").last.hover()
        page.keyboard.press("Escape")
    page.mouse.move(500, 400)
    found = page.evaluate(
        """() => { const n = {}; for (const e of document.querySelectorAll('body *:not(#map *):not(#histogram *)'))
        n[e.tagName] = (n[e.tagName] || 0) + 1; return n; }"""
    )
    drawn = page.evaluate("document.querySelectorAll('.plot script, .plot img, .plot iframe, .plot a[href]').length")
    assert page.evaluate("window.hacked") is None
    assert drawn == 0
    assert dialogs == []
    assert problems == []
    assert [url for url in requests if url != path.as_uri()] == []
    assert page.url == path.as_uri()
    context.close()
    return found


def test_no_string_of_the_data_becomes_an_element(browser, data, tmp_path):
    for shift in range(0, len(INJECTIONS), 15):  # so that each string gets to other places of the page
        pages = {"plain.html": ["plain"], "hostile.html": INJECTIONS[shift:] + INJECTIONS[:shift]}
        counted = []
        for name, strings in pages.items():
            changed = with_strings(copy.deepcopy(data), endless(strings))
            Report(changed | {"title": strings[0]}).save(tmp_path / name)
            counted.append(look(browser, tmp_path / name))
        assert counted[0] == counted[1]


def test_a_run_on_hostile_tables_gives_a_page_of_text(browser, tmp_path):
    count = len(INJECTIONS)
    nodes = {"id": INJECTIONS * 2, "domain": ["known"] * count + ["new"] * count}
    nodes["id"] = [f"{name}{k // count}" for k, name in enumerate(nodes["id"])]
    nodes |= {name: [float(k * j % 7) for k in range(2 * count)] for j, name in enumerate(INJECTIONS[:6], 1)}
    nodes |= {"colour": [INJECTIONS[k % 3] for k in range(2 * count)]}
    path = tmp_path / f"{INJECTIONS[11].replace('/', '')}.parquet"
    pl.DataFrame(nodes).write_parquet(path)
    arguments = ["detect", path, "--target", "new", "--out", tmp_path / "out", "--max-fpr", "0.5"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--method", "lp-pul", "--quiet"])
    assert result.exit_code == 0, result.output
    look(browser, tmp_path / "out" / "report.html")


def test_a_script_that_got_in_would_not_run(browser, data, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(
        Report(data).html().replace("</body>", f"<script>{ALERT}</script><img src=x onerror={ALERT}></body>")
    )
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate("window.hacked") is None
    page.close()


def test_the_policy_names_the_script_and_the_style_and_nothing_else(data):
    page = Report(data).html()
    policy = page.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["script-src"].count("'sha256-") == rules["style-src"].count("'sha256-") == 1
    assert "unsafe" not in policy
    assert "http" not in policy
