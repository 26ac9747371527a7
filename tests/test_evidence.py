"""What counts in bins say: how much known categories would have to have grown, and how far the domains mix."""

import numpy as np
import pytest

import recoslip
from recoslip import NodeGraph
from recoslip.data.datasets.block_model import csbm
from recoslip.data.partitions import Partitions, share_bound
from recoslip.inference.evidence import BinCounts
from recoslip.inference.separability import APART, measure_mixing

NO_EDGES = np.empty((2, 0), dtype=int)
ALLOWED_ERROR = 0.05  # of all bins at once
DRAWS = 200


@pytest.fixture(scope="module")
def base():
    """Five categories of 80 nodes, whose domains the tests draw."""
    return csbm(nodes=400, categories=5, novel_share=0.2, noise=0.8, seed=0)


def drawn(graph, source_share, seed):
    """The same graph, the domain of each node drawn with the source share of its category."""
    rng = np.random.default_rng([seed, 1])
    return graph.with_target(rng.random(graph.num_nodes) > np.asarray(source_share)[graph.categories])


# Growth that counts exclude


def test_bins_count_the_domains_and_their_bound_is_the_formula(base):
    bins = BinCounts.of(base)
    target = base.is_target
    roots = bins.partitions.parent < 0
    assert (bins.counts[roots] == [(~target).sum(), target.sum()]).all()
    place = int(bins.partitions.leaf[5, 7])
    inside = bins.partitions.leaf[5] == place
    source, both = int((inside & ~target).sum()), int(inside.sum())
    assert bins.counts[place].tolist() == [source, both - source]
    u = share_bound(np.array([source]), np.array([both]), 1 - ALLOWED_ERROR / len(bins.counts))[0]
    expected = (~target).sum() * (1 - u) / (target.sum() * u)
    assert bins.least_growth[place] == pytest.approx(expected)
    assert (bins.least_growth >= 0).all()
    assert np.isfinite(bins.least_growth).all()


@pytest.mark.parametrize(
    "source_share",
    [
        [0.5] * 5,
        [0.8] * 5,
        [0.2] * 5,
        [0.6, 0.6, 0.6, 0.6, 0.2],
        [0.9, 0.7, 0.5, 0.3, 0.1],
        [0.9, 0.7, 0.5, 0.3, 0.0],  # the last is novel
    ],
)
def test_in_at_most_one_of_twenty_draws_any_bin_claims_more_growth_than_its_own_nodes_have(base, source_share):
    share, wrong, wrong_known = np.asarray(source_share), 0, 0
    categories = Partitions.of(base).count(base.categories, 5)
    expected = categories @ share / np.maximum(categories.sum(axis=1), 1)  # source share of each bin, over all draws
    known = categories @ (share > 0) > categories.sum(axis=1) / 2  # most of its nodes
    for seed in range(DRAWS):
        bins = BinCounts.of(drawn(base, share, seed))
        sources, targets = bins.counts[0]
        growth = sources * (1 - expected) / np.maximum(targets * expected, 1e-9)
        wrong += (bins.least_growth > growth).any()
        largest = sources * (1 - share[share > 0]).max() / (targets * share[share > 0].min())
        wrong_known += bins.least_growth[known].max() > largest
    assert wrong / DRAWS <= ALLOWED_ERROR
    assert wrong_known / DRAWS <= ALLOWED_ERROR


def test_a_novel_category_has_a_bin_that_claims_much_and_known_ones_have_none():
    for seed in range(4):
        graph = csbm(nodes=1200, categories=5, shift=0.0, novel_share=0.3, noise=0.8, seed=seed)
        bins, novel = BinCounts.of(graph), graph.categories == 4
        evidence = bins.evidence(np.flatnonzero(novel))
        assert evidence.is_convincing
        assert evidence.least_growth > 5
        assert evidence.source < 0.1 * evidence.target
        known = graph.is_target & (graph.categories == 0)
        assert bins.evidence(np.flatnonzero(known)).least_growth < 2  # a bin with half of them holds novel ones, too


def test_evidence_is_that_of_a_bin_with_half_of_the_members(base):
    bins = BinCounts.of(base)
    chosen = np.flatnonzero(base.categories == 4)[::2]
    evidence = bins.evidence(chosen)
    held = bins.partitions.count(np.isin(np.arange(400), chosen))[:, 1]
    strongest = bins.least_growth[2 * held >= len(chosen)].max()
    assert evidence.least_growth == pytest.approx(strongest)
    assert [evidence.source, evidence.target] in bins.counts[2 * held >= len(chosen)].tolist()


def test_the_evidence_of_a_node_is_that_of_the_strongest_bin_that_holds_it():
    graph = csbm(nodes=300, categories=4, novel_share=0.3, noise=0.6, seed=1)
    bins, nodes = BinCounts.of(graph), np.flatnonzero(graph.is_target)[::5]
    for node, evidence in zip(nodes, bins.of_nodes(nodes), strict=True):
        around = []
        for leaf in bins.partitions.leaf[:, node]:
            while (parent := bins.partitions.parent[leaf]) >= 0:
                around.append(leaf)
                leaf = parent
        assert evidence.least_growth == bins.least_growth[around].max()
        assert [evidence.source, evidence.target] in bins.counts[around].tolist()


def test_each_group_and_each_listed_node_names_its_bin_in_summary_result_and_report(monkeypatch):
    monkeypatch.setattr("recoslip.pipeline.report.payload.MAX_WITH_TRAITS", 10)  # evidence is given of all
    graph = csbm(nodes=1200, categories=5, shift=0.0, novel_share=0.3, noise=0.8, seed=0)
    result = recoslip.detect(graph, fdr=0.1, progress=False)
    bins, listed = BinCounts.of(graph), np.flatnonzero(result.findings.listed)
    assert len(listed) > 100
    report = result.report().data
    written = [report["evidence"][report["details"][str(node)]["evidence"]] for node in listed]
    assert written == [evidence.sentence() for evidence in bins.of_nodes(listed)]
    assert len(report["evidence"]) == len(set(written))
    for number, group in enumerate(result.groups, start=1):
        members = np.flatnonzero(result.findings.partition.label == number)
        assert sorted(group.members) == sorted(graph.ids[members].tolist())
        assert group.evidence == bins.evidence(members).sentence()
        assert result.summary["groups"]["found"][number - 1]["evidence"] == group.evidence
        assert report["groups"][number - 1]["evidence"] == group.evidence


def test_bins_are_counted_once_for_a_result_and_its_report(monkeypatch):
    graph, counted = csbm(nodes=600, categories=4, novel_share=0.3, seed=0), []
    of = BinCounts.of.__func__
    monkeypatch.setattr(BinCounts, "of", classmethod(lambda cls, graph: counted.append(1) or of(cls, graph)))
    recoslip.detect(graph, fdr=0.1, progress=False).report()
    assert counted == [1]


def test_few_or_equal_nodes_and_one_domain_are_no_evidence():
    for x in (np.ones((200, 2)), np.random.default_rng(0).normal(size=(10, 2))):
        target = np.arange(len(x)) % 2 == 1
        bins = BinCounts.of(NodeGraph(x, NO_EDGES, target))
        assert not bins.evidence(np.flatnonzero(target)[:4]).is_convincing
    for is_target in (False, True):
        bins = BinCounts.of(NodeGraph(np.ones((60, 1)), NO_EDGES, [is_target] * 60, one_domain=True))
        assert (bins.least_growth == 0).all()


# How far the domains mix


@pytest.mark.parametrize("settings", [{}, {"homophily": 0.3}, {"degree": 0.0}, {"noise": 3.0}, {"features": 200}])
def test_drawn_domains_are_not_separable(settings):
    for seed in range(2):
        base = csbm(**({"nodes": 600, "novel_share": 0.15, "seed": seed} | settings))
        for source_share in ([0.5] * 5, [0.2] * 5, [0.7, 0.3, 0.7, 0.3, 0.0]):
            mixing = measure_mixing(drawn(base, source_share, seed))
            assert mixing.separability < APART
            assert mixing.situation != "apart"


@pytest.mark.parametrize(
    "change",
    [
        lambda x, rng: x + x.std(axis=0) * rng.choice([-1.5, 1.5], x.shape[1]),
        lambda x, rng: x * np.where(np.arange(x.shape[1]) % 2, 4.0, 1.0),
        lambda x, rng: x * 3.0,
        lambda x, rng: x + 2.0 * x.std() * rng.normal(size=x.shape),
    ],
)
def test_domains_with_another_offset_scale_or_noise_are_separable(change):
    for seed in range(2):
        graph = drawn(csbm(nodes=600, novel_share=0.15, seed=seed), [0.5] * 5, seed)
        x, target = graph.x.copy(), graph.is_target
        x[target] = change(x[target], np.random.default_rng(seed))
        assert measure_mixing(graph.with_features(x)).situation == "apart"


def test_two_unlinked_networks_of_different_wiring_are_separable_and_the_missing_edges_are_measured():
    for seed in range(2):
        settings = {"nodes": 900, "degree": 20.0, "target_homophily": 0.05, "seed": seed}
        graph = csbm(**settings)
        left, right = graph.is_target[graph.edge_index]
        mixing = measure_mixing(graph.with_edges(graph.edge_index[:, left == right]))
        assert mixing.situation == "apart"
        assert mixing.edges == 0


def test_mixing_does_not_depend_on_the_order_of_nodes():
    graph = csbm(nodes=400, seed=0)
    order = np.random.default_rng(0).permutation(400)
    assert measure_mixing(graph.permuted(order)) == measure_mixing(csbm(nodes=400, seed=0))


def test_longer_documents_of_the_same_words_are_separable():
    rng = np.random.default_rng(0)
    target = rng.random(600) < 0.5
    counts = rng.multinomial(20, rng.dirichlet(np.full(80, 0.1)), 600)
    assert measure_mixing(NodeGraph(counts, NO_EDGES, target)).situation == "proportions"
    assert measure_mixing(NodeGraph(counts * np.where(target, 4, 1)[:, None], NO_EDGES, target)).situation == "apart"
