"""The page in a real browser: it loads in silence, finds, opens, exports, and shows hostile names as text."""

import csv
import io
import json

import numpy as np
import polars as pl
import pytest

import recoslip
from recoslip import NodeGraph, analyse, detector
from recoslip.datasets import csbm
from recoslip.page.payload import MAX_NODES, payload
from recoslip.page.projection import projection
from recoslip.page.report import embedded

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
    fitted = detector("reco-slip-none", epochs=200, hidden_channels=16, max_fpr=0.05).fit(graph, rotations=3)
    return fitted, graph, analyse(fitted, graph)


@pytest.fixture(scope="module")
def page_file(run, tmp_path_factory):
    fitted, graph, findings = run
    path = tmp_path_factory.mktemp("page") / "report.html"
    recoslip.report(fitted, graph, findings=findings, title="/*data*/ <i>title</i>", explained=3).save(path)
    return path


@pytest.fixture
def page(browser, page_file):
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    opened = context.new_page()
    problems, requests = [], []
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(page_file.as_uri())
    opened.wait_for_selector("body[data-ready]")
    yield opened
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert opened.title() == "/*data*/ <i>title</i>"  # nothing hostile ran
    context.close()


def rows(page):
    return page.locator("#rows tr")


def test_it_says_what_was_found(page, run):
    _, graph, findings = run
    assert page.locator("#headline").inner_text() == findings.headline()
    assert page.locator("#advice").inner_text() == findings.verdict.advice
    assert page.locator("#promise").inner_text() == f"{findings.list_sentence()} {findings.promise}"
    assert page.locator("#first-look button").count() == len(findings.first_look())
    assert findings.first_look()
    assert page.locator(".group .evidence").all_inner_texts() == [
        group.evidence.sentence() for group in findings.groups
    ]
    assert page.locator("#shift").inner_text() == findings.diagnosis.shift()
    assert page.locator("#title").inner_text() == "/*data*/ <i>title</i>"
    assert page.locator("#count").inner_text() == f"{findings.listed.sum()} nodes"
    assert page.locator("#histogram .plot-container").count() == 1
    assert page.locator("#map canvas").count() > 0
    assert page.locator(".group").count() == len(findings.groups)
    assert f"{graph.num_nodes} nodes" in page.locator("#made").inner_text()
    assert "holds with 95 % confidence" in page.locator("#made").text_content()
    source = int((~graph.is_target).sum())
    assert f"3 fits; p-values from {source} calibration nodes" in page.locator("#made").inner_text()


def test_no_node_below_the_dashed_line_is_listed(run):
    fitted, _, findings = run
    line = payload(findings, title="", explained=0)["threshold"]
    assert findings.listed.any()
    assert fitted.scores_[findings.listed].min() >= line
    assert (fitted.p_values()[findings.listed] <= 0.05).all()


def test_search_narrows_the_table_and_filters_widen_it(page, run):
    _, graph, _ = run
    page.select_option("#filter", "all")
    assert page.locator("#count").inner_text() == "400 nodes"
    page.fill("#search", "node 01")
    assert page.locator("#count").inner_text() == f"{sum('node 01' in name for name in graph.ids)} nodes"
    page.select_option("#filter", "source")
    expected = sum("node 01" in name for name in graph.ids[~graph.is_target.numpy()])
    assert page.locator("#count").inner_text() == f"{expected} nodes"
    page.fill("#search", "no such node")
    assert rows(page).count() == 0


def test_the_keyboard_keeps_its_focus(page):
    page.select_option("#filter", "all")
    page.locator("#head button").nth(2).focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent").startswith("score")
    rows(page).first.focus()
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
    spot = page.evaluate(
        """() => { const map = document.getElementById('map'); map.scrollIntoView(); const t = map._fullData.length - 1;
        const trace = map.data[t]; const box = map.getBoundingClientRect(), l = map._fullLayout;
        return [box.x + l._size.l + l.xaxis.d2p(trace.x[0]), box.y + l._size.t + l.yaxis.d2p(trace.y[0])]; }"""
    )
    page.mouse.move(*spot)
    page.wait_for_timeout(300)
    page.mouse.click(*spot)
    page.wait_for_selector("dialog[open]")
    assert "score" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_the_keyboard_opens_a_row_and_a_neighbour(page):
    rows(page).first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    title = page.locator("#detail-title").inner_text()
    text = page.locator("dialog").inner_text()
    assert "What the score rests on (GNNExplainer)" in text
    assert "Against the 20 source nodes most like it" in text
    page.locator("dialog .exemplars button").last.click()
    assert page.locator("#detail-title").inner_text() != title


def test_hostile_names_stay_text(page):
    page.select_option("#filter", "all")
    for name in HOSTILE:
        key = name.strip().split("\n")[0][:12]
        page.fill("#search", key)
        shown = rows(page).locator("td:first-child").all_text_contents()
        assert name in shown
        rows(page).filter(has_text=key).first.click()
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
    scores = run[2].table().filter(pl.col("id").str.starts_with("node"))
    assert len(exported) == scores.height
    for node_id, domain, _, p_value, listed, group in scores.iter_rows():
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


def test_colours_by_group_and_score(page):
    for value in ("group", "score", "domain"):
        page.select_option("#colour", value)
        assert page.evaluate("document.getElementById('map').data.length") > 0


def test_without_calibration_the_page_promises_nothing(browser, run, tmp_path):
    _, graph, _ = run
    plain = detector("lp-pul").fit(graph)
    recoslip.report(plain, graph, explained=0).save(tmp_path / "report.html")
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector("body[data-ready]")
    text = page.locator("body").inner_text()
    page.close()
    assert "Cannot be told: the detector was fitted without calibration nodes" in text
    assert "No promise goes with this list." in text
    assert "How many nodes are novel is not estimated." in text
    assert "How far proportions shifted is not estimated" in text
    assert "% confidence" not in text
    assert "may be novel; the estimate" not in text


def test_nothing_in_the_data_can_end_the_script():
    text = embedded({"a": HOSTILE})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": HOSTILE}


def test_fifty_thousand_nodes_make_a_page_of_bounded_size():
    graph = csbm(nodes=MAX_NODES + 5000, categories=3, degree=3, features=4)
    fitted = detector("domain-discriminator", epochs=3, hidden_channels=4, out_channels=4).fit(graph, calibration=0.1)
    data = payload(analyse(fitted, graph, grouped=False), title="large", explained=0)
    assert data["counts"]["shown"] == len(data["nodes"]["id"]) == MAX_NODES
    assert data["counts"]["nodes"] == MAX_NODES + 5000
    assert len(embedded(data)) < 20e6


def test_the_map_keeps_apart_what_the_network_keeps_apart(run):
    fitted, graph, findings = run
    xy = projection(fitted.fits[0].representation(graph), findings.listed)
    distance = np.linalg.norm(xy[findings.listed][:, None] - xy, axis=2)
    nearest = np.argsort(distance, axis=1)[:, 1:6]
    assert findings.listed[nearest].mean() > 3 * findings.listed.mean()


def test_the_numbers_of_group_cards_are_not_cut_off(page):
    cut_off = """() => [...document.querySelectorAll('.group .scroll, .group :is(th, td):not(:first-child)')]
        .filter((e) => e.scrollWidth > e.clientWidth).length"""
    for width in (1400, 1200, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(cut_off) == 0


def test_a_notebook_shows_it_in_a_frame(run):
    fitted, graph, findings = run
    shown = recoslip.report(fitted, graph, findings=findings, explained=0)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown
