"""Nothing or not enough: groups that are shown as new are noticed as often as a novel category would be."""

import numpy as np
import pytest
from planted import Population, panel

import recoslip
from recoslip.data.datasets.block_model import csbm
from recoslip.inference.evidence import BinCounts
from recoslip.inference.hiding import match_domains
from recoslip.inference.power import FEWEST, NOTICED, PLANTED, SHARES, Power, measure_power


def power_of(graph):
    return measure_power(BinCounts.of(graph))


@pytest.fixture(scope="module")
def large():
    """Graphs of 16 categories in which a category of a fifth of the target would be noticed."""
    return [Population.of(seed).sample(200, 400) for seed in range(4)]


def test_a_group_would_show_where_showing_it_shows():
    graph = Population.of(0).sample(200, 300)
    bins, size = BinCounts.of(graph), BinCounts.of(graph).counts.sum(axis=1)
    fits = (size > 25) & (size < 80) & (bins.partitions.parent >= 0) & (bins.partitions.view == 3)
    said, seen = [], []
    for place in np.flatnonzero(fits)[:80]:
        nodes, tree = bins.partitions.members(int(place))
        shown = BinCounts.of(graph.with_target(graph.is_target | np.isin(np.arange(500), nodes)))
        moved = shown.partitions.count_of(nodes[~graph.is_target[nodes]]) > 0
        said.append(bins.would_show(int(place)))
        seen.append((shown.least_growth[moved & (shown.partitions.tree != tree)] > bins.allowed).any())
    assert 0.2 < np.mean(said) < 0.9
    assert np.mean(np.array(said) == seen) > 0.95


def test_more_source_nodes_show_no_less():
    bins = BinCounts.of(Population.of(1).sample(200, 200))
    size = bins.counts.sum(axis=1)
    places = np.flatnonzero((size > 30) & (size < 60) & (bins.partitions.parent >= 0))[:60]
    shown = np.array([[bins.would_show(int(place), factor) for factor in (1, 2, 4, 16)] for place in places])
    assert (np.diff(shown.astype(int), axis=1) >= 0).all()
    assert shown[:, -1].sum() > shown[:, 0].sum()


def test_a_category_of_the_share_that_would_be_noticed_is(large):
    """Known categories that are about as large are shown as new, one after the other."""
    found = []
    for graph in large:
        power = power_of(graph)
        assert power.suffices
        assert power.noticed >= NOTICED * power.planted
        assert FEWEST <= power.planted <= PLANTED
        for category in np.unique(graph.categories):
            shown = graph.with_target(graph.is_target | (graph.categories == category))
            if 0.75 * power.share < (graph.categories == category).sum() / shown.is_target.sum() < 1.25 * power.share:
                found.append(BinCounts.of(shown).bound(shown.is_target).new > 0)
    assert len(found) >= 20
    assert np.mean(found) >= 0.9


def test_nothing_is_told_from_not_enough_by_the_size_of_the_data(large):
    """Nothing is novel in any of them."""
    for graph in large:
        verdict = recoslip.detect(graph, progress=False).verdict
        assert (verdict.kind, verdict.supported, verdict.stands_out) == ("nothing", True, False)
    for seed in range(4):
        graph = Population.of(seed).sample(200, 60)
        power = power_of(graph)
        assert not power.suffices
        assert power.noticed < NOTICED * power.planted
        verdict = recoslip.detect(graph, progress=False, max_fpr=0.05).verdict
        assert (verdict.kind, verdict.supported) == ("inconclusive", True)


def test_the_source_nodes_that_it_asks_for_settle_it():
    """In two steps at most, where a fifth of the target is about one category."""
    for seed in range(4):
        population, source = Population.of(seed), 180
        first = before = power_of(population.sample(300, source))
        assert not first.suffices
        for _ in range(2):
            source += before.more_source
            after = power_of(population.sample(300, source))
            assert after.noticed > before.noticed
            if after.suffices:
                break
            before = after
        assert after.suffices
        assert recoslip.detect(population.sample(300, source), progress=False).verdict.kind == "nothing"


def test_advice_names_the_source_nodes_where_their_number_is_known():
    assert "1,200 more source nodes" in Power(None, 3, 40, 1200, 300).advice()
    assert "More than 5 times as many source nodes" in Power(None, 3, 40, 1200, 200).advice()
    assert "source node" not in Power(None, 3, 40, None).advice()
    assert "5 %" in Power(0.05, 38, 40).sentence()
    assert "38 of 40" in Power(0.05, 38, 40).sentence()
    assert "20 %" in Power(None, 3, 40, 1200).sentence()
    assert "3 of 40" in Power(None, 3, 40, 1200).sentence()


def test_the_share_is_the_smallest_from_which_on_all_are_noticed(monkeypatch):
    counted = {0.01: 40, 0.02: 10, 0.05: 36, 0.1: 40, 0.2: 39}
    monkeypatch.setattr("recoslip.inference.power._noticed", lambda bins, share, seed, factor=1.0: (counted[share], 40))
    bins = BinCounts.of(csbm(nodes=60, categories=3, seed=0))
    assert measure_power(bins) == Power(0.05, 36, 40)
    counted[0.2] = 35
    assert measure_power(bins) == Power(None, 35, 40)
    assert set(counted) == set(SHARES)


def test_the_source_that_is_asked_for_is_the_first_factor_that_suffices(monkeypatch):
    bins = BinCounts.of(csbm(nodes=400, categories=3, seed=0))
    monkeypatch.setattr(
        "recoslip.inference.power._noticed", lambda bins, share, seed, factor=1.0: (40 if factor >= 3 else 1, 40)
    )
    power = measure_power(bins)
    assert 2 * bins.domains[0] <= power.more_source <= 2.2 * bins.domains[0]  # 3 times as many; two digits
    monkeypatch.setattr("recoslip.inference.power._noticed", lambda *_, **__: (9, 9))
    assert measure_power(bins) == Power(None, 9, 9)  # too few groups to tell


def test_it_is_measured_by_the_bins_that_count():
    graph, _ = panel("clinging_nothing", 0)
    own = measure_power(BinCounts.of(graph, match_domains(graph)))
    assert own.planted > 0
    assert own == measure_power(BinCounts.of(graph, match_domains(graph)))


@pytest.mark.parametrize("nodes", [4, 30])
def test_a_tiny_graph_cannot_tell(nodes):
    x = np.random.default_rng(0).normal(size=(nodes, 2))
    power = power_of(recoslip.NodeGraph(x, np.empty((2, 0), dtype=int), np.arange(nodes) % 2 == 0))
    assert not power.suffices
    assert power.more_source is None or power.more_source > 0
