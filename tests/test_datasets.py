"""Datasets have the paper's counts, and the synthetic one the properties that are asked for."""

import sys

import numpy as np
import pytest

from recoslip import load_dataset
from recoslip.base.errors import DatasetError, SettingError
from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.catalogue import CATALOGUE
from recoslip.data.datasets.load import data_root

# source, target, novel; the paper's table and the authors' splits
COUNTS = {
    "cora-s": (1317, 1391, 180),
    "cora-ms": (1288, 1420, 180),
    "cora-ns": (1263, 1445, 180),
    "citeseer-s": (1265, 2062, 508),
    "citeseer-ms": (1336, 1991, 508),
    "citeseer-ns": (1409, 1918, 508),
    "computers-s": (5252, 8500, 291),
    "computers-ms": (5990, 7762, 291),
    "computers-ns": (6730, 7022, 291),
    "photo-s": (3068, 4582, 331),
    "photo-ms": (3362, 4288, 331),
    "photo-ns": (3657, 3993, 331),
    "arxiv": (859, 3442, 176),
}
# nodes, undirected edges, features
SIZES = {
    "cora": (2708, 5278, 1433),
    "citeseer": (3327, 4552, 3703),
    "computers": (13752, 245861, 767),
    "photo": (7650, 119081, 745),
    "arxiv": (4301, 5387, 128),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_papers_graphs_have_the_papers_counts(name, paper_data):
    data = load_dataset(name, root=paper_data)
    target = data.graph.is_target
    assert ((~target).sum(), target.sum(), data.novel.sum()) == COUNTS[name]
    assert (data.graph.num_nodes, data.graph.num_edges, data.graph.num_features) == SIZES[name.split("-")[0]]
    assert not data.novel[~target].any()
    n_source, n_target = (~target).sum(), target.sum()
    if name != "arxiv":
        assert (data.split.train & ~target).sum() == int(0.8 * n_source)
        assert (data.split.train & target).sum() == int(0.6 * n_target)
        assert (data.split.validation & target).sum() == int(0.2 * n_target)


def test_arxiv_is_divided_by_year(paper_data):
    data = load_dataset("arxiv", root=paper_data)
    years = data.graph.times
    assert (data.graph.is_target == (years >= 2007)).all()
    assert (data.split.test == (years == 2012)).all()


def test_another_split_seed_is_another_draw(paper_data):
    first, second = (load_dataset("cora-s", root=paper_data, split_seed=seed) for seed in (1, 2))
    assert (first.graph.is_target != second.graph.is_target).any()
    again = load_dataset("cora-s", root=paper_data, split_seed=1)
    assert (first.split.train == again.split.train).all()


def test_minor_shift_is_halfway_and_no_shift_is_even():
    assert CATALOGUE["cora-ms"].ratios == (0.3, 0.7, 0.3, 0.7, 0.3, 0.7, 0)
    assert CATALOGUE["photo-ns"].ratios == (0.5,) * 7 + (0,)


def test_missing_files_say_what_to_put_where(tmp_path):
    with pytest.raises(DatasetError, match=r"arxiv needs OGB's raw files.*node_year\.csv\.gz"):
        load_dataset("arxiv", root=tmp_path)
    (tmp_path / "Cora" / "raw").mkdir(parents=True)  # present but empty: PyG would download, and cannot read
    (tmp_path / "Cora" / "raw" / "ind.cora.x").write_bytes(b"")
    for suffix in ("tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (tmp_path / "Cora" / "raw" / f"ind.cora.{suffix}").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"put its raw files into .*raw: ind\.cora\.x"):
        load_dataset("cora-s", root=tmp_path)


def test_data_is_in_the_given_folder_or_the_environments_or_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RECOSLIP_DATA", raising=False)
    if sys.platform == "linux":
        assert data_root() == tmp_path / "cache" / "recoslip" / "data"
    monkeypatch.setenv("RECOSLIP_DATA", str(tmp_path / "data"))
    assert data_root() == tmp_path / "data"
    assert data_root(tmp_path / "argument") == tmp_path / "argument"


def test_unknown_names_and_options_are_refused():
    with pytest.raises(DatasetError, match="did you mean 'cora-s'"):
        load_dataset("cora-z")
    with pytest.raises(SettingError, match="no further options"):
        load_dataset("digits", nodes=5)


def test_digits_are_homophilous_and_nine_is_novel():
    data = load_dataset("digits")
    y, (a, b) = data.graph.categories, data.graph.edge_index
    assert (y[a] == y[b]).mean() == pytest.approx(0.956, abs=0.002)
    assert (y[data.novel] == 9).all()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("homophily", [0.2, 0.9])
def test_csbm_has_the_properties_asked_for(share, homophily):
    data = load_dataset("csbm", nodes=20000, degree=10, homophily=homophily, novel_share=share, shift=0.6)
    y, target = data.graph.categories, data.graph.is_target
    a, b = data.graph.edge_index
    assert data.novel[target].mean() == pytest.approx(share, abs=0.002)
    assert (y[a] == y[b]).mean() == pytest.approx(homophily, abs=0.02)
    assert 2 * data.graph.num_edges / 20000 == pytest.approx(10, rel=0.05)
    ratios = [(~target[y == c]).mean() for c in range(4)]
    assert ratios == pytest.approx([0.2, 0.8, 0.2, 0.8], abs=0.01)


def test_csbm_noise_hides_the_categories():
    def between_over_within(noise):
        graph = csbm(nodes=4000, noise=noise, features=16)
        x, y = graph.x, graph.categories
        centres = np.stack([x[y == c].mean(0) for c in range(5)])
        return centres.var(0).sum() / (x - centres[y]).var(0).sum()

    assert between_over_within(0.1) > 30 * between_over_within(1.0)


def test_the_targets_homophily_may_differ_in_csbm():
    def homophily(**options):
        graph = load_dataset("csbm", nodes=20000, degree=10, homophily=0.9, shift=0, **options).graph
        (left, right), target = graph.edge_index, graph.is_target
        same = graph.categories[left] == graph.categories[right]
        return [same[(target[left] == domain) & (target[right] == domain)].mean() for domain in (False, True)]

    before, after = homophily(), homophily(target_homophily=0.4)
    assert abs(after[0] - before[0]) < 0.01
    assert abs(after[1] - 0.4) < 0.05 < before[1] - after[1]


def test_csbm_with_several_novel_categories():
    data = load_dataset("csbm", nodes=5000, categories=6, novel_categories=3, novel_share=0.3)
    assert abs(data.novel.sum() / data.graph.is_target.sum() - 0.3) < 0.01
    sizes = np.bincount(data.graph.categories[data.novel])
    assert sizes[:3].tolist() == [0, 0, 0]
    assert np.ptp(sizes[3:]) <= 1
    with pytest.raises(SettingError, match="a known and a novel category"):
        load_dataset("csbm", categories=3, novel_categories=3)


def test_csbm_refuses_what_cannot_be():
    with pytest.raises(SettingError, match="homophily"):
        csbm(homophily=1.5)
    with pytest.raises(SettingError, match="4 nodes for each"):
        csbm(nodes=10, categories=5)
