"""A review by two people in real browsers, by keyboard alone, over a server that is killed in the middle."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import psutil
import pytest
from test_injections import INJECTIONS
from test_review import HOSTILE, make_folder

from recoslip.products.review.decisions import Entry, check_name, new_key
from recoslip.products.review.journal import Journal
from recoslip.products.review.session import ReviewSession

RECOSLIP = [sys.executable, "-c", "from recoslip.products.cli import main; main()"]


class Server:
    """`recoslip review` in a process of its own."""

    def __init__(self, folder, port=0):
        self.command = [*RECOSLIP, "review", str(folder), "--no-browser", "--port"]
        self.start(port)

    def start(self, port):
        self.process = subprocess.Popen([*self.command, str(port)], stdout=subprocess.PIPE, text=True)
        self.address = re.search(r"http://\S+", self.process.stdout.readline())[0]
        self.port = int(re.search(r":(\d+)/", self.address)[1])

    def end(self, number):
        self.process.send_signal(number)
        said = self.process.stdout.read()
        self.process.wait()
        self.process.stdout.close()
        return said


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("run") / "out")


@pytest.fixture(scope="module")
def server(run_folder):
    started = Server(run_folder)
    yield started
    said = started.end(signal.SIGINT)
    assert "The review is closed." in said
    assert started.process.returncode == 0


class Person:
    """Somebody with a browser and no mouse."""

    def __init__(self, browser, server, name, **options):
        self.name, self.verdicts, self.problems = name, [], []
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(server.address)
        self.page.wait_for_selector("#review[data-last]")
        self.call_me(name)

    def press(self, key):
        self.page.keyboard.press(key)
        if key in VERDICT_KEYS:
            self.verdicts.append(VERDICT_KEYS[key])

    def reach(self, words):
        """Press Tab until the focus is on a button with these words, and is seen."""
        self.page.wait_for_selector(f"button:has-text('{words}')")
        for _ in range(200):
            self.page.keyboard.press("Tab")
            if (self.page.evaluate("document.activeElement.textContent") or "").startswith(words):
                assert self.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                return
        raise AssertionError(f"Tab does not lead to {words!r}")

    def call_me(self, name):
        self.reach("Change name")
        self.press("Enter")
        self.page.wait_for_selector("dialog.review-dialog[open]")
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(name)
        self.press("Enter")
        self.sees(f"You decide as {name}")

    def sees(self, words):
        self.page.locator("#review", has_text=words).wait_for()

    def current(self):
        self.settled()
        return self.page.locator(".review-name").text_content()

    def go_back_to(self, node):
        for _ in range(100):
            if self.current() == node:
                return
            self.press("k")
        raise AssertionError(f"{node!r} is not in the queue")

    def come_back(self, server):
        """Close the page and open another one, without the token: the browser has the cookie."""
        self.page.close()
        self.page = self.context.new_page()
        self.page.goto(f"http://127.0.0.1:{server.port}/")
        self.page.wait_for_selector("#review[data-last]")
        self.sees(f"You decide as {self.name}")

    def settled(self):
        """Wait until what was pressed is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def waits_for_nothing(self):
        self.page.wait_for_selector("#review[data-waiting='0']")


VERDICT_KEYS = {"c": "confirmed", "r": "rejected", "u": "unsure"}


@contextmanager
def people(browser, server, *names):
    present = [Person(browser, server, name) for name in names]
    yield present
    for person in present:
        assert person.problems == []
        assert person.page.title() == "What is new in this graph"  # nothing hostile ran
        person.context.close()


def verdicts_of(folder, who):
    with Journal(folder) as store:
        return [event.value for event in store.events() if event.who == who and event.kind == "verdict"]


def test_two_people_review_by_keyboard_and_a_killed_server_loses_nothing(browser, server, run_folder):
    with people(browser, server, "Ada", "Bo") as (ada, bo):
        first = ada.current()
        assert bo.current() == first  # run review, look, press a key
        ada.press("c")
        bo.sees(f"Ada confirmed {first}.")
        assert ada.current() != first
        bo.go_back_to(first)
        bo.press("r")
        ada.sees("1 contradiction")
        ada.go_back_to(first)
        ada.press("c")  # decides again
        bo.page.locator("#review h3", has_text="1 contradiction").wait_for(state="detached")

        ada.press("n")
        ada.page.wait_for_selector("dialog.review-dialog[open]")
        ada.page.keyboard.type("<b>cru</b>")  # a note, not verdicts
        ada.press("Control+Enter")
        ada.press("r")
        ada.press("z")
        ada.go_back_to(first)
        ada.press("g")
        ada.sees("The next verdict is on the whole of Group")
        ada.press("u")
        ada.waits_for_nothing()

        port = server.port
        server.end(signal.SIGKILL)
        ada.press("j")
        ada.press("c")
        ada.press("ArrowRight")
        ada.press("r")
        bo.press("j")
        bo.press("u")
        for person in (ada, bo):
            person.sees("kept in this browser")
        server.start(port)
        bo.come_back(server)
        for person in (ada, bo):
            person.waits_for_nothing()
            person.page.wait_for_selector(".review-banner", state="hidden")
        for person in (ada, bo):
            assert verdicts_of(run_folder, person.name) == person.verdicts
    with ReviewSession(run_folder) as review:
        kinds = [event.kind for event in review.journal.events()]
        assert (kinds.count("note"), kinds.count("undo")) == (1, 1)
        assert len({event.key for event in review.journal.events()}) == len(kinds)
        assert len([event for event in review.journal.events() if event.group is not None]) == 1


def test_learning_and_the_certificate_are_in_the_review(browser, server, run_folder):
    with people(browser, server, "Di") as (di,):
        di.press("c")
        di.press("r")
        di.waits_for_nothing()
        di.reach("Learn from these verdicts")
        di.press("Enter")
        di.sees("The nodes are ranked anew")
        di.sees("Largest rise: ")
        di.reach("Draw the sample")
        di.press("Enter")
        di.sees("Review the sample: ")
        with ReviewSession(run_folder) as review:
            nodes = review.sampled().nodes
            di.sees(review.certificate().sentence)
        assert di.page.locator(".review-name").text_content() in nodes
        assert di.page.input_value("#review-order") == "sample"


def test_hostile_ids_and_notes_stay_text(browser, server, run_folder):
    with people(browser, server, "Ed") as (ed,):
        ed.press("n")
        ed.page.wait_for_selector("dialog.review-dialog[open]")
        ed.page.keyboard.type(HOSTILE[0])
        ed.press("Control+Enter")
        ed.sees(HOSTILE[0])
        assert ed.page.locator("#review img").count() == 0
        assert ed.page.locator(".review-note").last.text_content() == f"Ed: {HOSTILE[0]}"


def test_no_word_of_a_review_becomes_an_element_or_a_script(browser, tmp_path):
    folder = make_folder(tmp_path / "out")
    with ReviewSession(folder) as review:
        listed = [review.nodes.ids[k] for k in np.flatnonzero(review.nodes.listed)[:8]]
        group = int(review.nodes.group.max())
        for number, words in enumerate(INJECTIONS):
            who, about = check_name(words[:80]), {"node": listed[number % len(listed)]}
            review.record([Entry(new_key(), who, "note", note=words, **about), Entry(new_key(), who, "verdict",
                         value=("confirmed", "rejected")[number % 2], note=words, **about),
                         Entry(new_key(), who, "name", group=group, value=words[:200]),
                         Entry(new_key(), who, "note", group=group, note=words)])  # fmt: skip
        nodes = review.draw("Ada", 5)
        review.record([Entry(new_key(), INJECTIONS[0][:80], "verdict", node=node, value="confirmed") for node in nodes])
    started = Server(folder)
    requests = []
    with people(browser, started, INJECTIONS[9]) as (person,):
        person.page.on("request", lambda request: requests.append(request.url))
        person.sees(INJECTIONS[-1])
        for _ in listed:
            person.press("j")
        person.page.select_option("#review-order", "sample")
        person.page.goto(f"http://127.0.0.1:{started.port}/certificate.html")
        assert person.page.evaluate("window.hacked") is None
        person.page.goto(f"http://127.0.0.1:{started.port}/")
        person.page.wait_for_selector("#review[data-last]")
        assert person.page.evaluate("window.hacked") is None
        assert person.page.locator("#review :is(img, script, iframe, svg, style, form, object, video)").count() == 0
        assert {url.split("/")[2] for url in requests} == {f"127.0.0.1:{started.port}"}
        assert person.problems == []
    started.end(signal.SIGINT)


def test_keys_can_be_switched_off_and_do_nothing_in_fields(browser, server, run_folder):
    with people(browser, server, "Flo") as (flo,):
        flo.page.focus("#search")
        flo.page.keyboard.type("cru")
        flo.page.locator("#search").blur()
        flo.page.keyboard.press("?")
        flo.page.wait_for_selector("dialog.review-dialog[open]")
        flo.page.keyboard.type("cru")
        flo.page.uncheck("#review-keys")
        flo.page.keyboard.press("Escape")
        flo.page.keyboard.press("c")
        flo.settled()
        assert verdicts_of(run_folder, "Flo") == []


def test_the_first_node_to_decide_on_is_listed_and_the_whole_list_follows(browser, server, run_folder):
    with ReviewSession(run_folder) as review:
        nodes = review.nodes
        listed = {nodes.ids[k] for k in np.flatnonzero(nodes.listed)}
    with people(browser, server, "Hal") as (hal,):
        assert hal.current() in listed
        assert hal.page.input_value("#review-order") == "score"
        queue = hal.page.locator(".review-queue .review-item > span:first-child").all_text_contents()
        assert queue
        assert set(queue) <= listed


def test_on_a_phone_the_buttons_take_one_line_below_the_card(browser, server):
    with people(browser, server, "Ida") as (ida,):
        ida.page.set_viewport_size({"width": 400, "height": 800})
        ida.settled()
        assert ida.page.evaluate("document.documentElement.scrollWidth") <= 400
        bar = ida.page.locator(".review-actions").bounding_box()
        assert bar["height"] < 70
        ida.page.locator(".review-name").scroll_into_view_if_needed()
        name = ida.page.locator(".review-name").bounding_box()
        bar = ida.page.locator(".review-actions").bounding_box()
        assert name["y"] + name["height"] <= bar["y"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_the_review(browser, server, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    person = Person(browser, server, "Gil", color_scheme=theme)
    found = []
    for key in (None, "?"):
        if key:
            person.page.keyboard.press(key)
            person.page.wait_for_selector("dialog.review-dialog[open]")
        violations = axe.Axe().run(person.page).response["violations"]
        found += [
            (each["id"], [node["html"] for node in each["nodes"]])
            for each in violations
            if each["impact"] in ("serious", "critical")
        ]
    person.context.close()
    assert found == []


def test_it_listens_on_this_machine_alone(server):
    listening = [each for each in psutil.Process(server.process.pid).net_connections() if each.status == "LISTEN"]
    assert {each.laddr.ip for each in listening} == {"127.0.0.1"}
    assert json.dumps(server.port) in server.address
