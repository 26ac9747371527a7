"""What is hidden follows the edges where the domains do, as much as they do, and nowhere else."""

import numpy as np
import pytest
from planted import NO_EDGES, panel

import recoslip
from recoslip import NodeGraph, detector
from recoslip.base.errors import SettingError
from recoslip.data.datasets.block_model import csbm
from recoslip.inference.hiding import MATCHED_PARTS, ONE_BY_ONE, RANDOM_PARTS, Hiding, match_domains

TOLERANCE = 0.12  # of correlations over the edges of 600 nodes
CLINGING = [(name, seed) for name in ("clinging", "clinging_nothing") for seed in range(4)]


def correlation(graph, has, among):
    """How alike joined nodes are, beyond what nodes of one category have in common."""
    excess = np.zeros(graph.num_nodes)
    for category in np.unique(graph.categories[among]):
        own = among & (graph.categories == category)
        excess[own] = has[own] - has[own].mean()
    left, right = excess[graph.edge_index[:, among[graph.edge_index].all(axis=0)]]
    return (left * right).sum() / (left**2).sum()


@pytest.mark.parametrize(("name", "seed"), CLINGING)
def test_hidden_parts_are_as_correlated_over_the_edges_as_the_domains(name, seed):
    graph, novel = panel(name, seed)
    hiding, source = match_domains(graph), ~graph.is_target
    assert hiding.follows_edges
    domains = correlation(graph, graph.is_target, ~novel)
    assert domains > 0.2
    parts = hiding.parts(graph, None, seed=0)
    assert len(parts) == MATCHED_PARTS
    assert np.mean([correlation(graph, part, source) for part in parts]) == pytest.approx(domains, abs=TOLERANCE)
    drawn = np.mean([correlation(graph, part, source) for part in ONE_BY_ONE.parts(graph, None, seed=0)])
    assert abs(drawn) < 0.1


@pytest.mark.parametrize("name", ["mixed0", "mixed1", "nothing", "grown", "rewired", "edgeless"])
def test_domains_that_are_drawn_one_by_one_hide_nodes_one_by_one(name):
    for seed in range(4):
        graph, _ = panel(name, seed)
        hiding = match_domains(graph)
        assert hiding.hops == 0
        assert abs(hiding.correlation) < 0.1
        parts = np.array(hiding.parts(graph, None, seed=0))
        assert len(parts) == RANDOM_PARTS
        assert (parts.sum(axis=0) == ~graph.is_target).all()


def test_matched_parts_are_quarters_of_the_source_that_leave_few_nodes_out():
    graph, _ = panel("clinging", 0)
    source = ~graph.is_target
    parts = np.array(match_domains(graph).parts(graph, None, seed=0))
    assert not parts[:, graph.is_target].any()
    assert (parts.sum(axis=1) == source.sum() // 4).all()
    assert parts.any(axis=0)[source].mean() > 0.9
    assert len({part.tobytes() for part in parts}) == MATCHED_PARTS
    other = np.array(match_domains(graph).parts(graph, 3, seed=1))
    assert other.shape[0] == 3
    assert (other != parts[:3]).any()


def test_the_order_of_rows_does_not_matter():
    graph, _ = panel("clinging", 1)
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    again = graph.permuted(order)
    hiding = match_domains(graph)
    assert match_domains(again).hops == hiding.hops
    assert match_domains(again).correlation == pytest.approx(hiding.correlation)
    for one, other in zip(hiding.parts(graph, None, 0), hiding.parts(again, None, 0), strict=True):
        assert (one[order] == other).all()


@pytest.mark.parametrize("weight", [1.0, 1e-3, 1e6, "drawn"])
def test_weights_of_edges_do_not_change_what_follows_them(weight):
    bare, novel = panel("clinging", 0)
    weights = np.ones(bare.edge_index.shape[1])
    if weight == "drawn":
        weights = np.random.default_rng(0).uniform(0.5, 2.0, bare.edge_index.shape[1])
        weights = weights + weights[np.lexsort(bare.edge_index)]  # the same in both directions
    else:
        weights = weights * weight
    graph = bare.with_edges(bare.edge_index, weights)
    hiding = match_domains(graph)
    assert hiding.follows_edges
    domains = correlation(graph, graph.is_target, ~novel)
    parts = hiding.parts(graph, None, 0)
    assert np.mean([correlation(graph, part, ~graph.is_target) for part in parts]) == pytest.approx(
        domains, abs=TOLERANCE
    )
    if weight != "drawn":
        assert hiding == match_domains(bare)
        assert (np.array(parts) == np.array(match_domains(bare).parts(bare, None, 0))).all()


def test_nothing_follows_edges_that_are_not_there():
    graph, _ = panel("clinging", 0)
    assert match_domains(graph.without_edges()) == ONE_BY_ONE
    x = np.random.default_rng(0).normal(size=(40, 3))
    for source in (1, 2):
        assert match_domains(NodeGraph(x, [[0], [1]], np.arange(40) >= source)) == ONE_BY_ONE
    one_domain = NodeGraph(x, [[0], [1]], [False] * 40, one_domain=True)
    assert match_domains(one_domain) == ONE_BY_ONE


def test_isolated_nodes_are_hidden_as_often_as_others():
    graph, _ = panel("clinging", 2)
    alone = np.random.default_rng(0).random(graph.num_nodes) < 0.3
    graph = graph.with_edges(graph.edge_index[:, ~alone[graph.edge_index].any(axis=0)])
    hiding = match_domains(graph)
    assert hiding.follows_edges
    source = ~graph.is_target
    often = np.sum(hiding.parts(graph, None, 0), axis=0)
    assert often[source & alone].mean() > 0.5  # of 12 parts of a quarter each, 3 would be the mean of all nodes
    assert often[source].mean() == pytest.approx(MATCHED_PARTS / 4, abs=0.1)


def test_few_source_nodes_leave_two_to_learn_from():
    x, path = np.random.default_rng(0).normal(size=(12, 3)), [np.arange(11), np.arange(1, 12)]
    for source in (3, 4, 5):
        graph = NodeGraph(x, path, np.arange(12) >= source)
        for part in Hiding(3).parts(graph, None, 0):
            assert 1 <= part.sum() <= source - 2
    assert not Hiding(3).part(NodeGraph(x, NO_EDGES, np.arange(12) >= 4), 0, 0)[4:].any()


def test_fits_hide_what_was_matched_and_remember_how(tmp_path):
    graph, _ = panel("clinging", 0)
    fitted = recoslip.calibrate(recoslip.Scan(), graph)
    hiding = match_domains(graph)
    assert fitted.hiding == hiding
    assert (np.array(fitted.hidden) == np.array(hiding.parts(graph, None, 0))).all()
    fitted.save(tmp_path / "model")
    assert recoslip.Calibrated.load(tmp_path / "model").hiding == hiding
    drawn = recoslip.calibrate(recoslip.Scan(), graph, hiding="random")
    assert drawn.hiding == ONE_BY_ONE
    assert len(drawn.fits) == RANDOM_PARTS
    assert len(recoslip.calibrate(detector("lp-pul"), graph).fits) == RANDOM_PARTS  # others than the scan cost more
    assert len(recoslip.calibrate(recoslip.Scan(), graph, rotations=3).fits) == 3
    with pytest.raises(SettingError, match="hiding"):
        recoslip.calibrate(recoslip.Scan(), graph, hiding="none")


def test_detect_hides_as_many_parts_as_calibrate():
    graph, _ = panel("clinging", 0)
    result = recoslip.detect(graph, progress=False)
    assert result.summary["rotations"] == MATCHED_PARTS
    assert result.summary["domains_follow_edges"]
    assert len(recoslip.detect(graph, rotations=2, progress=False).calibrated.fits) == 2
    drawn = recoslip.detect(panel("mixed0", 0).graph, progress=False)
    assert drawn.summary["rotations"] == RANDOM_PARTS
    assert not drawn.summary["domains_follow_edges"]


def test_a_rate_that_the_hidden_nodes_cannot_reach_is_raised_to_one_that_they_can():
    graph = panel("clinging", 0, nodes=300, categories=4).graph
    source = np.flatnonzero(~graph.is_target)
    keep = np.sort(np.concatenate([source[:80], np.flatnonzero(graph.is_target)]))
    result = recoslip.detect(graph.subgraph(keep), progress=False)
    assert result.calibrated.hiding.follows_edges
    compared = int(result.calibrated.calibration.sum())
    assert compared < 80  # parts that overlap leave some out
    assert result.calibrated.max_fpr == 1 / (compared + 1)
    assert str(compared) in result.notes[0]
    assert result.verdict.supported


def test_where_domains_follow_the_edges_no_rate_is_promised_and_fewer_known_nodes_are_listed():
    matched, drawn = [], []
    for seed in range(3):
        graph, _ = panel("clinging_nothing", seed)
        result = recoslip.detect(graph, progress=False, max_fpr=0.1)
        assert "positive rate ≤" not in result.guarantee
        matched.append(result.findings.listed.sum())
        drawn.append(recoslip.calibrate(recoslip.Scan(), graph, hiding="random", max_fpr=0.1).select().sum())
    assert np.mean(matched) < np.mean(drawn)


def test_a_graph_of_one_category_whose_domains_follow_the_edges_is_noticed_too():
    base = csbm(nodes=400, categories=2, novel_share=0.0, homophily=1.0, noise=1.0, degree=6, seed=0)
    graph = base.with_target(Hiding(3).part(base.with_target(np.arange(400) < 1), 0, 0, fraction=0.5))
    assert match_domains(graph).follows_edges
