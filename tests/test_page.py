"""The page in a real browser: it loads in silence, finds, opens, exports, and shows hostile names as text."""

import csv
import io
import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from parsed_html import HOSTILE as HOSTILE_TITLES
from parsed_html import ParsedHtml
from reports import report

import recoslip
from recoslip import NodeGraph, detector
from recoslip.base.errors import RecoslipError
from recoslip.data.datasets.block_model import csbm
from recoslip.inference.analysis import find_novel
from recoslip.pipeline.report.charts import PERIODS, period_chart, projection
from recoslip.pipeline.report.html import Report
from recoslip.pipeline.report.payload import FIRST, MAX_CHARACTERS, MAX_NODES, TEXT_LENGTHS, payload

HOSTILE = [
    "<img src=x onerror=\"document.title='hacked'\">",
    "</script><script>document.title='hacked'</script>",
    "<!--<script>",
    "javascript:alert(1)",
    '"><svg onload=document.title=1>',
    "=cmd|' /C calc'!A0",
    "&lt;b&gt;",
    "{{7*7}} ${7*7}",
    'line\nbreak, "quote"',
    "\u202eright-to-left \u2028",
]


@pytest.fixture(scope="module")
def run():
    drawn = csbm(nodes=400, categories=4, noise=0.4, homophily=0.9, features=4, seed=2)
    novel = np.flatnonzero(drawn.categories == 3)
    ids = np.array([f"node {k:03}" for k in range(400)], dtype=object)
    ids[novel[: len(HOSTILE)]] = HOSTILE
    graph = NodeGraph(
        drawn.x,
        drawn.edge_index,
        drawn.is_target,
        ids=ids,
        feature_names=["<b>bold</b>", "width", "height", "weight"],
    )
    fitted = recoslip.calibrate(
        detector("reco-slip-none", epochs=200, hidden_channels=16), graph, rotations=3, max_fpr=0.05
    )
    return fitted, graph, find_novel(fitted, graph)


@pytest.fixture(scope="module")
def page_file(run, tmp_path_factory):
    _, _, findings = run
    path = tmp_path_factory.mktemp("page") / "report.html"
    report(findings, title="/*data*/ <i>title</i>").save(path)
    return path


@pytest.fixture(scope="module")
def made(run):
    _, _, findings = run
    return report(findings)


@pytest.fixture
def visit(browser):
    """Opens a file; at the end, nothing went wrong on any page and none asked the network."""
    contexts, problems, requests = [], [], []

    def opened(path, **options):
        context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    for context in contexts:
        context.close()


@pytest.fixture
def page(visit, page_file):
    opened = visit(page_file)
    yield opened
    assert opened.title() == "/*data*/ <i>title</i>"  # nothing hostile ran


@pytest.fixture(scope="module")
def titled(run):
    """The same run on a graph that kept columns of its table, one of which names the nodes."""
    fitted, graph, findings = run
    count = graph.num_nodes
    price = np.array([None if k % 7 == 0 else round(k * 1.25, 2) for k in range(count)], dtype=object)
    columns = {
        "title": np.array([f"a thing that is called {k}" for k in range(count)], dtype=object),
        "price": price,
        "in stock": np.array([k % 2 == 0 for k in range(count)]),
        "=cmd()": np.array([f"=1+{k}" for k in range(count)], dtype=object),
        "score": np.arange(count),
    }
    kept = NodeGraph(
        graph.x, graph.edge_index, graph.is_target, ids=graph.ids, feature_names=graph.feature_names,
        columns=columns, label="title",
    )  # fmt: skip
    return fitted, kept, replace(findings, graph=kept)


@pytest.fixture(scope="module")
def titled_file(titled, tmp_path_factory):
    _, _, findings = titled
    path = tmp_path_factory.mktemp("titled") / "report.html"
    report(findings).save(path)
    return path


def spot(page, k):
    """Where a node is on the screen, as long as the map shows all."""
    page.locator("#map-canvas").scroll_into_view_if_needed()
    return page.evaluate(
        """(k) => { const { x, y } = JSON.parse(document.getElementById('data').textContent).nodes;
        const box = document.getElementById('map-canvas').getBoundingClientRect();
        const [left, right, low, high] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
        const scale = Math.min((box.width - 32) / (right - left), (box.height - 32) / (high - low));
        return [box.x + box.width / 2 + (x[k] - (left + right) / 2) * scale,
                box.y + box.height / 2 - (y[k] - (low + high) / 2) * scale]; }""",
        k,
    )


def rows(page):
    return page.locator("#rows tr")


def test_it_says_what_was_found(page, run):
    _, graph, findings = run
    assert page.locator("#headline").inner_text() == findings.headline()
    assert page.locator("#advice").inner_text() == findings.verdict.advice
    assert page.locator("#guarantee").text_content() == f"{findings.list_sentence()} {findings.guarantee}"
    assert page.locator("#conditions").text_content() == findings.verdict.conditions
    assert page.locator(".figure").all_inner_texts() == [
        f"{figure.value}\n{figure.caption}" for figure in findings.verdict.figures
    ]
    assert page.locator("#inspect-first button").count() == min(FIRST, len(findings.inspect_first())) > 0
    assert page.locator(".group .evidence").all_inner_texts() == [
        group.evidence.sentence(of_group=True) for group in findings.groups
    ]
    assert page.locator("#shift").inner_text() == findings.diagnosis.shift()
    assert page.locator("#title").inner_text() == "/*data*/ <i>title</i>"
    assert page.locator("#count").inner_text() == f"{findings.listed.sum()} nodes"
    assert page.locator("#map canvas").count() == 1
    assert page.locator(".group").count() == len(findings.groups)
    source = int((~graph.is_target).sum())
    assert f"3 fits; p-values from {source} source nodes" in page.locator("#made").text_content()


def test_search_narrows_the_table_and_filters_widen_it(page, run):
    _, graph, _ = run
    page.select_option("#filter", "all")
    assert page.locator("#count").inner_text() == "400 nodes"
    page.fill("#search", "node 01")
    assert page.locator("#count").inner_text() == f"{sum('node 01' in name for name in graph.ids)} nodes"
    page.select_option("#filter", "source")
    expected = sum("node 01" in name for name in graph.ids[~graph.is_target])
    assert page.locator("#count").inner_text() == f"{expected} nodes"
    page.fill("#search", "no such node")
    assert rows(page).count() == 0


def test_the_keyboard_keeps_its_focus(page):
    page.select_option("#filter", "all")
    page.locator("#head button").nth(2).focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent").startswith("score")
    rows(page).first.locator("button").focus()
    page.keyboard.press("Space")
    page.wait_for_selector("dialog[open]")
    page.locator("dialog .exemplars button").last.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('dialog') !== null")


def test_columns_sort_and_pages_turn(page):
    page.select_option("#filter", "all")
    first = rows(page).first.locator("td").nth(2).inner_text()
    page.click("#head button:has-text('score')")
    assert float(rows(page).first.locator("td").nth(2).inner_text()) <= float(first)
    page.click("#head button:has-text('id')")
    page.click("#next")
    assert page.locator("#page").inner_text() == "26 to 50"
    page.click("#previous")
    assert page.locator("#page").inner_text() == "1 to 25"


def test_a_click_on_a_point_opens_its_detail(page):
    where = spot(page, 7)
    page.mouse.move(*where)
    page.wait_for_selector("#tooltip:not([hidden])")
    name = page.locator("#tooltip b").text_content()
    page.mouse.click(*where)
    page.wait_for_selector("dialog[open]")
    assert page.locator("#detail-title").text_content() == name
    assert "score" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_the_keyboard_opens_a_row_and_a_neighbour(page):
    rows(page).first.locator("button").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    title = page.locator("#detail-title").inner_text()
    text = page.locator("dialog").inner_text()
    assert "Compared with the 20 source nodes most similar to it" in text
    page.locator("dialog .exemplars button").last.click()
    assert page.locator("#detail-title").inner_text() != title


def test_hostile_names_stay_text(page):
    page.select_option("#filter", "all")
    for name in HOSTILE:
        key = name.strip().split("\n")[0][:12]
        page.fill("#search", key)
        shown = rows(page).locator("td:first-child").all_text_contents()
        assert name in shown
        rows(page).filter(has_text=key).first.locator("button").click()
        assert page.locator("#detail-title").text_content() in shown
        page.keyboard.press("Escape")
    assert page.locator("img, svg[onload]").count() == 0
    assert page.locator("b:has-text('bold')").count() == 0
    assert "<b>bold</b>" in page.locator("#groups").text_content()


def export(page):
    with page.expect_download() as waiting:
        page.click("#export")
    return list(csv.reader(io.StringIO(waiting.value.path().read_text(encoding="utf-8"), newline="")))


def test_export_downloads_the_rows_shown(page, run):
    page.select_option("#filter", "all")
    page.fill("#search", "cmd")
    exported = export(page)
    assert exported[0] == ["id", "domain", "score", "p_value", "listed", "group"]
    assert [row[0] for row in exported[1:]] == ["'=cmd|' /C calc'!A0"]  # no spreadsheet takes it for a formula
    page.fill("#search", "break")
    assert export(page)[1][0] == 'line\nbreak, "quote"'
    page.fill("#search", "node")
    exported = {row[0]: row for row in export(page)[1:]}
    columns = ["id", "domain", "score", "p_value", "listed", "group"]
    scores = run[2].table().filter(pl.col("id").str.starts_with("node")).select(columns)
    assert len(exported) == scores.height
    names = ["id", "domain", "p_value", "listed", "group"]
    for node_id, domain, p_value, listed, group in scores.select(names).iter_rows():
        row = exported[node_id]
        assert row[1] == domain
        assert row[3] == "" if p_value is None else float(row[3]) == pytest.approx(p_value, abs=1e-5)
        assert row[4:] == [str(listed).lower(), "" if group is None else str(group)]


def test_dark_and_light_and_a_phone(page):
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    assert not page.locator("#export").is_visible()
    assert page.locator("#head button").first.is_visible()
    assert page.locator(".exemplars button").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"


def test_without_calibration_the_page_promises_nothing(browser, run, tmp_path):
    _, graph, _ = run
    plain = recoslip.Calibrated.uncalibrated(detector("lp-pul").fit(graph))
    report(find_novel(plain, graph)).save(tmp_path / "report.html")
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector("body[data-ready]")
    text = page.locator("body > header").text_content() + page.locator("main").text_content()
    page.close()
    assert "Inconclusive: no source nodes were hidden" in text
    assert "No statistical guarantee" in text
    assert "not known how many target nodes are new" in text
    assert "What grew and what shrank" not in text
    assert "% confidence" not in text
    assert "may be novel. The estimate" not in text


def test_nothing_in_the_data_can_end_the_script(made):
    page = ParsedHtml(Report(made.data | {"a": HOSTILE}).html())
    data, _ = page.text_of["script"]
    assert "<" not in data
    assert "\u2028" not in data
    assert json.loads(data) == json.loads(json.dumps(made.data)) | {"a": HOSTILE}


@pytest.mark.parametrize("title", HOSTILE_TITLES)
def test_hostile_titles_stay_text(visit, made, tmp_path, title):
    path = tmp_path / "report.html"
    Report(made.data | {"title": title}).save(path)
    assert ParsedHtml(path.read_text(encoding="utf-8")).text_of["title"] == [title]
    opened = visit(path)
    assert opened.title() == title
    assert opened.locator("#title").text_content() == title
    assert opened.locator("h1 *, img").count() == 0


def test_hostile_names_of_groups_and_labels_stay_text(visit, made, tmp_path):
    data = json.loads(json.dumps(made.data))
    hostile = [HOSTILE_TITLES[k % len(HOSTILE_TITLES)] for k in range(len(data["nodes"]["id"]))]
    data["nodes"]["label"] = hostile
    for group, name in zip(data["groups"], HOSTILE_TITLES, strict=False):
        group["name"] = name
    Report(data).save(tmp_path / "report.html")
    opened = visit(tmp_path / "report.html")
    cards = opened.locator("#groups").text_content()
    assert all(group["name"] in cards for group in data["groups"])
    assert opened.locator("#inspect-first button").all_text_contents() == [hostile[k] for k in data["inspect_first"]]
    assert opened.locator("#groups b, img").count() == 0


def test_a_large_graph_makes_a_page_of_bounded_size(monkeypatch):
    most = MAX_NODES // 10
    monkeypatch.setattr("recoslip.pipeline.report.payload.MAX_NODES", most)
    graph = csbm(nodes=most + 500, categories=3, degree=3, features=4)
    fitted = recoslip.calibrate(
        detector("domain-discriminator", epochs=3, hidden_channels=4, out_channels=4), graph, rotations=3
    )
    data = payload(find_novel(fitted, graph, grouped=False), title="large")
    assert data["counts"]["shown"] == len(data["nodes"]["id"]) == most
    assert data["counts"]["nodes"] == most + 500
    assert len(json.dumps(data)) < 2e6
    own = next(each for each in data["levels"] if each["own"])
    assert own["listed"] == data["counts"]["listed"]  # of all nodes, not of those on the page alone


def test_the_map_keeps_apart_what_the_network_keeps_apart(run):
    fitted, graph, findings = run
    xy = projection(fitted.fits[0].representation(graph), findings.listed)
    distance = np.linalg.norm(xy[findings.listed][:, None] - xy, axis=2)
    nearest = np.argsort(distance, axis=1)[:, 1:6]
    assert findings.listed[nearest].mean() > 3 * findings.listed.mean()


def test_nothing_in_group_cards_is_cut_off(page):
    cut_off = """() => [...document.querySelectorAll('.group, .group *')]
        .filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline').length"""
    for width in (1400, 1000, 400):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(200)
        assert page.evaluate(cut_off) == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_notebook_shows_it_in_a_frame(run):
    _, _, findings = run
    shown = report(findings)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown
    assert len(shown) < 1_000_000


def test_the_policy_lets_nothing_run_but_what_it_names(page_file):
    policy = ParsedHtml(page_file.read_text(encoding="utf-8")).policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy


# The user's own columns


def test_nodes_are_shown_by_what_a_person_calls_them(visit, titled, titled_file):
    _, graph, findings = titled
    page = visit(titled_file)
    first = findings.inspect_first()[0]
    button = page.locator("#inspect-first button").first
    assert button.inner_text() == f"a thing that is called {first}"
    assert button.get_attribute("title") == graph.ids[first]
    assert page.locator("#head th").all_inner_texts()[:2] == ["title", "id"]
    assert {"price", "in stock", "=cmd()", "score"} <= set(page.locator("#head th").all_inner_texts())
    button.click()
    assert page.locator("#detail-title").inner_text() == f"a thing that is called {first}"
    values = dict(zip(*(page.locator(f"dialog .values {tag}").all_inner_texts() for tag in ("th", "td")), strict=True))
    assert values["title"] == f"a thing that is called {first}"
    assert values["in stock"] == ("yes" if first % 2 == 0 else "no")
    assert values.get("price") == (None if first % 7 == 0 else f"{round(first * 1.25, 2):g}")
    page.keyboard.press("Escape")
    page.mouse.move(*spot(page, 8))
    page.wait_for_selector("#tooltip:not([hidden])")
    assert "price: " in page.locator("#tooltip").inner_text()


def test_the_search_looks_at_all_columns_and_the_map_shows_what_it_finds(visit, titled_file):
    page = visit(titled_file)
    before = page.evaluate("document.getElementById('map-canvas').toDataURL()")
    page.select_option("#filter", "all")
    page.fill("#search", "called 39")
    assert page.locator("#count").inner_text() == "11 nodes"
    assert page.locator("#announce").text_content() == "11 nodes found."
    page.wait_for_timeout(100)
    assert page.evaluate("document.getElementById('map-canvas').toDataURL()") != before
    page.fill("#search", "497.5")
    assert rows(page).locator("td:first-child").all_inner_texts() == ["a thing that is called 398"]


def test_the_export_has_the_users_columns_after_ours(visit, titled_file):
    page = visit(titled_file)
    page.select_option("#filter", "all")
    page.fill("#search", "called 398")
    names, values = export(page)
    assert names[:6] == ["id", "domain", "score", "p_value", "listed", "group"]
    assert names[6:] == ["title", "price", "in stock", "'=cmd()", "score (table)"]
    assert values[6:] == ["a thing that is called 398", "497.5", "true", "'=1+398", "398"]


def test_columns_can_be_chosen_and_unknown_ones_are_refused(titled):
    _, _, findings = titled
    data = report(findings, show=["price"]).data
    assert list(data["columns"]) == ["price"]
    assert data["nodes"]["label"][3] == "a thing that is called 3"
    assert report(findings, show=[]).data["columns"] == {}
    with pytest.raises(RecoslipError, match=r"kept of the table \(title, price.*got 'prize' \(did you mean 'price'"):
        report(findings, show=["prize"])


def test_long_texts_are_cut_and_the_page_says_so(titled):
    _, graph, findings = titled
    long = np.array(["x" * 1000] * graph.num_nodes, dtype=object)
    kept = NodeGraph(graph.x, graph.edge_index, graph.is_target, ids=graph.ids, columns={"abstract": long})
    data = payload(replace(findings, graph=kept), title="")
    assert data["notes"] == [f"Texts are cut after {TEXT_LENGTHS[0]} characters."]
    assert data["columns"]["abstract"][0] == "x" * (TEXT_LENGTHS[0] - 1) + "…"
    assert MAX_CHARACTERS < 20e6


# The bound of what is shown


def test_the_bound_of_what_is_shown_is_that_of_the_library(visit, tmp_path):
    graph = csbm(nodes=900, categories=5, features=8, shift=0, novel_share=0.2, noise=1.5, seed=3)
    found = recoslip.detect(graph, progress=False).findings
    assert found.verdict.kind == "novel"
    report(found).save(tmp_path / "report.html")
    page = visit(tmp_path / "report.html")

    def agrees(nodes):
        bound = found.bins.bound(nodes, found.novel_share.max_growth)
        if bound.new:
            assert page.locator("#bound").inner_text() == bound.sentence
        else:
            assert "do not show" in page.locator("#bound").inner_text()
        return bound.new

    seen = [agrees(found.listed)]
    page.select_option("#filter", "target")
    seen.append(agrees(graph.is_target))
    for searched in ("1", "2", "77"):
        page.fill("#search", searched)
        seen.append(agrees(graph.is_target & [searched in str(node) for node in graph.ids]))
    assert len(set(seen)) >= 3
    page.select_option("#filter", "source")
    assert page.locator("#bound").inner_text() == ""


# The level


@pytest.mark.parametrize("fdr", [None, 0.2])
def test_a_level_lists_what_the_library_lists(visit, run, tmp_path, fdr):
    fitted, graph, _ = run
    findings = find_novel(fitted, graph, fdr=fdr, grouped=False)
    report(findings).save(tmp_path / "report.html")
    page = visit(tmp_path / "report.html")
    options = page.locator("#level option")
    assert options.nth(int(page.locator("#level").input_value())).inner_text() == ("5 %" if fdr is None else "20 %")
    seen = set()
    for step in range(options.count()):
        page.select_option("#level", str(step))
        name = options.nth(step).inner_text()
        level = float(name.removesuffix(" %")) / 100
        listed = fitted.p_values() <= level * (1 + 1e-9) if fdr is None else fitted.select(fdr=level)
        text = page.locator("#level-text").inner_text()
        assert text.startswith(f"At {name}, {listed.sum()} target nodes are listed. Expected false-")
        assert f"rate ≤ {name}" in text
        assert page.locator("#count").inner_text() == f"{listed.sum()} node{'' if listed.sum() == 1 else 's'}"
        seen.add(int(listed.sum()))
    assert len(seen) > 3


# The map


def test_the_map_zooms_and_moves_by_wheel_and_by_keys(page):
    def drawn():
        page.wait_for_timeout(100)
        return page.evaluate("document.getElementById('map-canvas').toDataURL()")

    page.mouse.move(*spot(page, 7))
    pictures = [drawn()]
    page.locator("#map-canvas").focus()
    for key in ("+", "ArrowLeft", "ArrowUp", "-", "0"):
        page.keyboard.press(key)
        pictures.append(drawn())
    assert all(one != other for one, other in pairwise(pictures))
    assert page.locator("#announce").text_content()  # the node in the middle
    page.mouse.wheel(0, -300)
    assert drawn() != pictures[-1]
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")


def test_the_lasso_filters_the_table(page, run):
    box = page.locator("#map-canvas").bounding_box()
    page.locator("#map-canvas").scroll_into_view_if_needed()
    box = page.locator("#map-canvas").bounding_box()
    left, top, right, bottom = box["x"] + 2, box["y"] + 2, box["x"] + box["width"] - 2, box["y"] + box["height"] - 2
    x, y = spot(page, 7)
    page.click("#lasso")
    assert page.locator("#lasso").get_attribute("aria-pressed") == "true"

    def draw(corners):
        page.mouse.move(*corners[0])
        page.mouse.down()
        for corner in corners[1:]:
            page.mouse.move(*corner)
        page.mouse.up()

    draw([(left, top), (right, top), (right, bottom), (left, bottom)])
    assert page.locator("#count").inner_text() == "400 nodes of the selection"
    assert "400 nodes selected" in page.locator("#announce").text_content()
    draw([(x - 9, y - 9), (x + 9, y - 9), (x + 9, y + 9), (x - 9, y + 9)])
    some = int(page.locator("#count").inner_text().split()[0])
    assert 1 <= some < 400
    page.click("#clear")
    assert "selection" not in page.locator("#count").inner_text()
    page.click("#select-view")
    assert page.locator("#count").inner_text() == "400 nodes of the selection"


# Who cannot see it, or works without a mouse


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit, titled_file, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(titled_file, color_scheme=scheme)

    def serious():
        found = axe.run(page).response["violations"]
        return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]

    for summary in page.locator("summary").all():
        summary.click()
    assert serious() == []
    page.fill("#search", "called 1")
    assert serious() == []
    rows(page).first.click()
    page.wait_for_selector("dialog[open]")
    assert serious() == []


# The user's own words, and paper


@pytest.fixture(scope="module")
def shop():
    """Products of two regions and four years, among which drones are new."""
    rng = np.random.default_rng(0)
    words = {
        "books": "novel paperback author chapters",
        "toys": "kids puzzle plastic colours",
        "drones": "rotor battery camera flight",
    }
    parts = {"south": {"books": 300, "toys": 200}, "north": {"books": 80, "toys": 160, "drones": 90}}
    kinds = [(region, kind) for region, counts in parts.items() for kind, count in counts.items() for _ in range(count)]
    return pl.DataFrame(
        {
            "id": [f"P{k:04}" for k in range(len(kinds))],
            "region": [region for region, _ in kinds],
            "title": [" ".join(rng.choice(words[kind].split(), 3, replace=False)) for _, kind in kinds],
            "price": rng.normal(20, 5, len(kinds)),
            "year": [int(rng.integers(*((2014, 2020) if region == "south" else (2020, 2023)))) for region, _ in kinds],
        }
    )


@pytest.fixture(scope="module")
def of_regions(shop):
    table = shop.drop("year")
    read = {"text": ["title"], "keep": ["price"], "noun": "products"}
    return recoslip.detect(table, domain="region", target="north", **read, progress=False)


def test_the_page_speaks_the_users_words(visit, of_regions, tmp_path):
    of_regions.report(tmp_path / "report.html")
    page = visit(tmp_path / "report.html")
    for summary in page.locator("summary").all():
        summary.click()
    text = page.locator("body").inner_text()
    assert "north products" in text
    assert "rotor" in page.locator(".group h3").first.inner_text()
    assert "title:" not in page.locator(".group h3").first.inner_text()
    assert not {"source", "target", "node", "nodes"} & set(re.findall(r"[a-z]+", text.lower()))
    assert page.locator(".growth tbody tr").count() >= 2


def test_it_prints_on_two_pages(visit, of_regions, tmp_path):
    of_regions.report(tmp_path / "report.html")
    printed = visit(tmp_path / "report.html").pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page[^s]", printed)) == 2


def test_periods_count_what_is_listed(shop):
    read = {"text": ["title"], "ignore": ["region"], "progress": False}
    found = recoslip.detect(shop, time="year", since=2020, **read)
    years = period_chart(found.findings)
    assert [each["period"] for each in years] == ["2020", "2021", "2022"]
    assert sum(each["all"] for each in years) == 330
    assert sum(each["listed"] for each in years) == found.listed.height > 0
    days = shop.with_columns(
        day=pl.Series(
            [f"{2019 + (year >= 2020)}-{1 + k % 12:02}-{1 + k % 28:02}" for k, year in enumerate(shop["year"])]
        )
    )
    found = recoslip.detect(days, time="day", since="2020-01-01", ignore=["year", "region"], text=["title"])
    assert "nodes from 2020-01-01 and later" in found.verdict.sentence
    assert len(period_chart(found.findings)) == PERIODS


# What another script may add

REVIEW = """
window.recoslipReview = (api) => {
  const config = JSON.parse(document.getElementById("review-config").textContent);
  api.slot.hidden = false;
  api.slot.append(api.make("p", {}, config.greeting));
  api.decoration((k) => (k === config.node ? { symbol: "✓", name: "accepted", colour: "group-3" } : null));
  api.addColumn("decision", (k) => (k === config.node ? "accepted" : ""));
  api.addFilter("decided", (k) => k === config.node);
  api.onGroup((group, container) => container.append(api.make("em", {}, `decide on ${group.number}`)));
  api.onDetail((k, container) => container.append(api.make("em", {}, `decide on node ${k} of ${api.openNode()}`)));
  window.api = api;
};
"""


def test_a_review_can_add_to_the_report(visit, run, tmp_path):
    fitted, graph, findings = run
    node = int(np.flatnonzero(findings.listed)[0])
    made = report(findings)
    html = made.html(
        scripts=[REVIEW], styles=["#review em { color: red }"], config={"greeting": "<b>hello</b>", "node": node}
    )
    assert "connect-src 'self'" in html
    (tmp_path / "review.html").write_text(html, encoding="utf-8")
    page = visit(tmp_path / "review.html")
    assert page.locator("#review").inner_text() == "<b>hello</b>"
    assert page.locator(".group em").count() == len(findings.groups)
    page.select_option("#filter", "decided")
    assert page.locator("#count").inner_text() == "1 node"
    assert page.locator("#head th").last.inner_text() == "decision"
    assert rows(page).first.locator("td").last.inner_text() == "accepted"
    assert "✓" in rows(page).first.inner_text()
    page.evaluate("api.open(3)")
    assert page.locator("dialog em").inner_text() == "decide on node 3 of 3"
    page.evaluate("api.closeDetail()")
    assert page.evaluate("api.openNode()") is None
    page.select_option("#filter", "all")
    page.evaluate("api.setScores(Float64Array.from(api.nodes.id, (_, k) => k === 5 ? 1 : 0.5)); api.refresh()")
    assert rows(page).first.locator("td button").text_content() == graph.ids[5]
    page.evaluate("api.setScores(null); api.announce('done')")
    assert page.locator("#announce").text_content() == "done"
    assert float(rows(page).first.locator("td").nth(2).inner_text()) == pytest.approx(fitted.scores.max(), abs=1e-4)
