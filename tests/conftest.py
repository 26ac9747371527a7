"""Shared material: a small graph with a novel category, its split, and the paper's data where present."""

import os
import shutil
from pathlib import Path

import pytest

from recoslip import NodeGraph, Split
from recoslip.datasets import Dataset, load_dataset


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def small() -> Dataset:
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


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--use-gl=swiftshader", "--enable-unsafe-swiftshader"]
        )
        yield started
        started.close()
