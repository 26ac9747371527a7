"""Fixtures that several files share, which files `make quick` leaves out, and the same random cases in every run."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork_server import ForkServer
from hypothesis import HealthCheck, settings

from recoslip import NodeGraph, Split
from recoslip.data.datasets.load import Dataset, load_dataset

# Files of slow tests: a browser, Ray, kills, limited memory or disk, new processes, thousands of cases, long trainings.
# In other files, single tests have the mark.
SLOW = {
    "test_baselines.py",
    "test_cluster.py",
    "test_degenerate_graphs.py",
    "test_disk.py",
    "test_fuzz.py",
    "test_hostile.py",
    "test_injections.py",
    "test_interruptions.py",
    "test_load.py",
    "test_numbers.py",
    "test_page.py",
    "test_process.py",
    "test_review_browser.py",
    "test_tutorials.py",
}

# Ray lowers the priority of its processes, so that on busy cores its tests would wait for all others to end.
os.environ.setdefault("RAY_worker_niceness", "0")

# RECOSLIP_FUZZ=20 draws other cases in every run, and in test_fuzz.py 20 times as many.
settings.register_profile(
    "recoslip",
    derandomize="RECOSLIP_FUZZ" not in os.environ,
    database=None,
    deadline=None,  # a busy machine is no reason to fail
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("recoslip")


# Tests of what `make test` checks in another way too, at more places or more often: `make long` runs them.
LONG = {
    "test_a_bench_loses_nothing_that_it_stored_and_ends_as_if_never_killed",
    "test_a_graph_larger_than_the_object_store_is_fitted_all_the_same",
    "test_a_machine_lost_during_a_scan_does_not_lose_it",
    "test_a_packed_graph_larger_than_the_object_store_is_scanned",
    "test_any_bytes_are_a_graph_or_an_error",
    "test_any_pair_of_data_frames_is_a_graph_or_an_error",
    "test_batches_rank_as_the_whole_graph_does",
    "test_killed_and_resumed_gives_the_same_table",
    "test_killed_at_any_change_to_the_disk_it_leaves_the_old_or_the_new",
    "test_detect_finishes_or_refuses_with_limited_memory",
    "test_members_do_not_influence_each_other",
    "test_the_block_of_a_killed_process_is_done_again",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: not in `make quick`")
    config.addinivalue_line("markers", "long: in `make long` alone")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.name.partition("[")[0] in LONG:
            item.add_marker(pytest.mark.long)
    # pytest-xdist gives the first half of the tests to the first worker, and others steal from the end of that. What
    # comes first stays in one worker, so that there is one Ray cluster.
    items.sort(key=lambda item: item.path.name != "test_cluster.py")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def small() -> Dataset:
    """A small graph with a novel category, and its split."""
    return load_dataset("csbm", nodes=300, categories=4, features=8, noise=0.5, split_seed=1)


@pytest.fixture(scope="session")
def graph(small: Dataset) -> NodeGraph:
    return small.graph


@pytest.fixture(scope="session")
def split(small: Dataset) -> Split:
    return small.split


@pytest.fixture(scope="session")
def paper_data() -> Path:
    root = os.environ.get("RECOSLIP_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("needs the paper's graphs: set RECOSLIP_DATA to a folder with Cora, CiteSeer, ...")
    return Path(root)


@pytest.fixture(scope="session")
def forked() -> Iterator[ForkServer]:
    """A server that runs each command in a process of its own, without the seconds that imports take."""
    with ForkServer() as server:
        yield server


PATIENCE = 600_000  # milliseconds after which a page that does not get ready fails its test, on a busy machine too


class PatientBrowser:
    """A browser whose pages have that patience."""

    def __init__(self, browser):
        self.browser = browser

    def new_context(self, **options):
        context = self.browser.new_context(**options)
        context.set_default_timeout(PATIENCE)
        return context

    def new_page(self, **options):
        return self.new_context(**options).new_page()


@pytest.fixture(scope="module")
def browser() -> Iterator[PatientBrowser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    arguments = ["--no-sandbox", "--use-gl=swiftshader", "--enable-unsafe-swiftshader"]
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=arguments, timeout=PATIENCE)
        yield PatientBrowser(started)
        started.close()
