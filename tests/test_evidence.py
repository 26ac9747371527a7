"""What counts in bins say: how many of any nodes are new, and how much known categories would have to have grown."""

from math import comb

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import NO_EDGES, neighbourhood, panel, with_domains

import recoslip
from recoslip import NodeGraph
from recoslip.base.errors import RecoslipError, SettingError
from recoslip.data.datasets.block_model import csbm
from recoslip.data.partitions import Partitions, share_bound
from recoslip.inference.evidence import (
    ALLOWED_GROWTH,
    ERROR,
    HIGHEST_GROWTH,
    PLACEBOS,
    BinCounts,
    _most_known,
)
from recoslip.inference.hiding import Hiding, match_domains
from recoslip.inference.separability import APART, measure_mixing

DRAWS = 200


@pytest.fixture(scope="module")
def base():
    """Five categories, whose domains the tests draw."""
    return csbm(nodes=400, categories=5, novel_share=0.2, noise=0.8, seed=0)


SHARES = {  # of the source, in each category; 0 is novel
    "no growth": [0.5] * 5,
    "much source": [0.8] * 5,
    "little source": [0.2] * 5,
    "one grew": [0.6, 0.6, 0.6, 0.6, 0.2],
    "all differ": [0.9, 0.7, 0.5, 0.3, 0.1],
    "one is novel": [0.5, 0.5, 0.5, 0.5, 0.0],
    "all differ, one is novel": [0.9, 0.7, 0.5, 0.3, 0.0],
}


def growth_of(graph, share):
    """How many times as frequent the known category that grew most is in the target, at this draw's sizes."""
    sources, targets = (~graph.is_target).sum(), graph.is_target.sum()
    known = np.array([each for each in share if each > 0])
    return ((1 - known) / known).max() * sources / targets


# How many target nodes of a bin may be known


@given(st.integers(0, 6), st.floats(1, 8), st.sampled_from([0.2, 0.05, 0.01]), st.integers(5, 500), st.integers(5, 500))
def test_the_most_known_nodes_are_the_binomial_quantile(source, growth, error, sources, targets):
    most = int(_most_known(source, growth, error, sources, targets))
    share = sources / (growth * targets + sources)  # of source nodes, if all are known

    def so_few(nodes):
        """The probability that so few of the nodes, or fewer, are source."""
        return sum(comb(nodes, k) * share**k * (1 - share) ** (nodes - k) for k in range(source + 1))

    if most < 500:
        assert so_few(source + most + 1) <= error * (1 + 1e-6)
    assert so_few(source + min(most, 500)) > error * (1 - 1e-6)


@pytest.mark.parametrize(
    ("source", "growth", "error", "most"),
    [
        (0, 1.0, 0.05, 4),  # 1/32 of five nodes that none is source, 1/16 of four
        (0, 1.0, 0.03, 5),
        (0, 3.0, 0.05, 10),  # (3/4)^11 = .042, (3/4)^10 = .056
        (1, 1.0, 0.05, 6),  # of 8 nodes one or none: 9/256 = .035; of 7: 8/128 = .0625
        (2, 1.0, 0.05, 8),  # of 11 nodes two or fewer: 67/2048 = .033; of 10: 56/1024 = .055
    ],
)
def test_the_most_known_nodes_of_small_bins_by_hand(source, growth, error, most):
    assert _most_known(source, growth, error, 500, 500) == most


def test_without_one_of_the_domains_all_nodes_may_be_known():
    assert np.isinf(_most_known([0, 3], 1.0, 0.05, 0, 10)).all()
    assert np.isinf(_most_known([0, 3], 1.0, 0.05, 10, 0)).all()


def test_a_bin_holds_more_known_nodes_in_as_many_draws_as_the_error_says():
    rng = np.random.default_rng(0)
    for growth, sizes in ((1.0, (10, 40)), (2.0, (10, 40)), (6.0, (40, 100))):
        for nodes in sizes:
            is_target = rng.random((20_000, nodes)) < growth / (growth + 1)  # with domains of one size
            known = is_target.sum(axis=1)
            exceeded = (known > _most_known(nodes - known, growth, 0.05, 100, 100)).mean()
            assert exceeded <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 20_000)
            assert exceeded > 0.01  # the bound is not won by saying nothing


@pytest.mark.parametrize("name", SHARES)
def test_in_19_of_20_draws_no_bin_holds_more_known_nodes_than_it_may(base, name):
    share, wrong = SHARES[name], 0
    for seed in range(DRAWS):
        graph = with_domains(base, share, seed)
        bins, known = BinCounts.of(graph), np.asarray(share)[graph.categories] > 0
        held = bins.partitions.count_of(np.flatnonzero(graph.is_target & known))
        wrong += (held > bins.most_known(growth_of(graph, share))).any()
    assert wrong <= ERROR * DRAWS


# How many of any nodes are new


def chosen_afterwards(bins, novel, seed):
    """Sets of nodes that were chosen after looking at the counts, some by one who knows which are known."""
    target, rng = bins.is_target, np.random.default_rng(seed)
    strength = bins.of_each()
    strong = target & (strength >= np.quantile(strength[target], 0.7))
    union, best = np.zeros(len(target), dtype=bool), np.argsort(-bins.least_growth)[:30]
    for place in best:
        union[bins.partitions.members(int(place))[0]] = True
    sets = [target, target & (rng.random(len(target)) < 0.3), strong, union, np.ones_like(union)]
    sets += [np.isin(np.arange(len(target)), bins.partitions.members(int(place))[0]) for place in best[:2]]
    return sets + [each & ~novel for each in sets]


def test_the_bound_of_sets_chosen_afterwards_exceeds_the_truth_in_one_of_20_draws_at_most(base):
    share, wrong, found = SHARES["all differ, one is novel"], 0, []
    for seed in range(100):
        graph = with_domains(base, share, seed)
        bins, novel, growth = BinCounts.of(graph), graph.categories == 4, growth_of(graph, share)
        bounds = [(bins.bound(nodes, growth), nodes) for nodes in chosen_afterwards(bins, novel, seed)]
        assert [bound.size for bound, _ in bounds] == [(nodes & graph.is_target).sum() for _, nodes in bounds]
        wrong += any(bound.new > (nodes & novel).sum() for bound, nodes in bounds)
        found.append(bounds[0][0].new / novel.sum())
    assert wrong <= 5
    assert np.mean(found) > 0.3  # it is not won by saying nothing


def test_the_bound_falls_with_growth_and_holds_up_to_where_it_vanishes(base):
    for seed in range(5):
        graph = with_domains(base, SHARES["one is novel"], seed)
        bins = BinCounts.of(graph)
        strength = bins.of_each()
        for nodes in (graph.is_target, graph.categories == 4, strength > 2):
            bounds = [bins.bound(nodes, growth) for growth in np.geomspace(1, 100, 25)]
            new = [bound.new for bound in bounds]
            assert new == sorted(new, reverse=True)
            assert new[0] > 0 == new[-1]
            (holds_up_to,) = {bound.holds_up_to for bound in bounds}
            assert bins.bound(nodes, holds_up_to).new > 0
            assert bins.bound(nodes, holds_up_to * 1.003).new == 0  # it is found to 0.2 %
        assert bins.bound(graph.is_target).holds_up_to == pytest.approx(bins.holds_up_to, rel=0.003)
        assert bins.bound(graph.is_target).max_growth == ALLOWED_GROWTH


def test_more_nodes_are_bounded_by_as_many_and_source_nodes_by_none(base):
    graph = with_domains(base, SHARES["one is novel"], 0)
    bins = BinCounts.of(graph)
    part = graph.categories == 4
    few, all_of_it = bins.bound(part, 1.0), bins.bound(graph.is_target, 1.0)
    assert 0 < few.new <= all_of_it.new
    assert few.new <= few.size == (part & graph.is_target).sum()
    with_source = bins.bound(part | ~graph.is_target, 1.0)
    assert with_source == few
    for nobody in (~graph.is_target, np.zeros(400, dtype=bool)):
        none = bins.bound(nobody, 1.0)
        assert (none.size, none.new, none.holds_up_to) == (0, 0, 1.0)


def test_disjoint_bins_add_up_over_the_tree_that_says_most():
    """Two clouds are new: each of them is in a bin of its own, and the bound counts both."""
    rng = np.random.default_rng(0)
    cloud = np.repeat(np.arange(6), 80)
    x = 8 * np.eye(6)[cloud] + rng.normal(size=(480, 6))
    is_target = (cloud >= 4) | (rng.random(480) < 0.5)
    bins = BinCounts.of(NodeGraph(x, NO_EDGES, is_target))
    one, both = bins.bound(cloud == 4, 1.0), bins.bound(cloud >= 4, 1.0)
    assert one.new > 55
    assert both.new > 110
    assert bins.bound(is_target & (cloud < 4), 1.0).new == 0


# Growth that counts exclude


def test_bins_count_the_domains_and_their_bound_is_the_formula(base):
    bins = BinCounts.of(base)
    target = base.is_target
    roots = bins.partitions.parent < 0
    assert (bins.counts[roots] == [(~target).sum(), target.sum()]).all()
    assert bins.domains == ((~target).sum(), target.sum())
    place = int(bins.partitions.leaf[5, 7])
    inside = bins.partitions.leaf[5] == place
    source, both = int((inside & ~target).sum()), int(inside.sum())
    assert bins.counts[place].tolist() == [source, both - source]
    assert (bins.least_growth >= 0).all()
    assert np.isfinite(bins.least_growth).all()
    assert (bins.least_growth[roots] == 0).all()


def test_a_bin_excludes_growth_up_to_where_all_of_its_target_nodes_may_be_known(base):
    bins = BinCounts.of(with_domains(base, SHARES["one is novel"], 0))
    convincing = np.flatnonzero(bins.least_growth > 1)
    assert len(convincing) > 20
    for place in convincing:
        target = bins.counts[place, 1]
        assert bins.most_known(bins.least_growth[place] * 0.999)[place] < target
        assert bins.most_known(bins.least_growth[place] * 1.001)[place] >= target


def test_bins_too_small_to_say_anything_take_no_share_of_the_error(base):
    bins = BinCounts.of(base)
    said, size = np.isfinite(bins.most_known(1.0)), bins.counts.sum(axis=1)
    roots = bins.partitions.parent < 0
    assert not said[roots].any()
    assert 0 < said.sum() < 0.8 * len(said)
    error = ERROR / said.sum()
    least = _most_known(0, 1.0, error, *bins.domains)  # so many target nodes without a source node say nothing
    assert said[(size > least) & ~roots].all()
    assert (size[said] >= least).all()
    place = int(np.flatnonzero(said)[0])
    source, target = bins.counts[place]
    u = share_bound(np.array([source]), np.array([source + target]), 1 - error)[0]
    sources, targets = bins.domains
    assert bins.least_growth[place] == pytest.approx(sources * (1 - u) / (targets * u))


@pytest.mark.parametrize("name", SHARES)
def test_in_19_of_20_draws_no_bin_claims_more_growth_than_its_own_nodes_have(base, name):
    share, wrong, wrong_known = np.asarray(SHARES[name]), 0, 0
    categories = Partitions.of(base).count(base.categories, 5)
    expected = categories @ share / np.maximum(categories.sum(axis=1), 1)  # source share of each bin, over all draws
    known = categories[:, share == 0].sum(axis=1) == 0
    for seed in range(DRAWS):
        graph = with_domains(base, share, seed)
        bins = BinCounts.of(graph)
        sources, targets = bins.domains
        growth = sources * (1 - expected) / np.maximum(targets * expected, 1e-9)
        wrong += (bins.least_growth > growth).any()
        wrong_known += bins.least_growth[known].max() > growth_of(graph, share)
    assert wrong <= ERROR * DRAWS
    assert wrong_known <= ERROR * DRAWS


def test_a_novel_category_has_a_bin_that_claims_much_and_known_ones_have_none():
    for seed in range(4):
        graph = csbm(nodes=900, categories=5, shift=0.0, novel_share=0.3, noise=0.8, seed=seed)
        bins, novel = BinCounts.of(graph), graph.categories == 4
        evidence = bins.evidence(np.flatnonzero(novel))
        assert evidence.is_convincing
        assert evidence.least_growth > 5
        assert evidence.source < 0.1 * evidence.target
        known = graph.is_target & (graph.categories == 0)
        assert bins.evidence(np.flatnonzero(known)).least_growth < 2  # a bin with half of them holds novel ones, too
        strength = bins.of_each()
        assert np.median(strength[novel]) > 5
        assert np.median(strength[known]) < 2
        assert strength.min() >= 1


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
    strength = bins.of_each()
    for node, evidence in zip(nodes, bins.of_nodes(nodes), strict=True):
        around = []
        for leaf in bins.partitions.leaf[:, node]:
            while (parent := bins.partitions.parent[leaf]) >= 0:
                around.append(leaf)
                leaf = parent
        assert evidence.least_growth == bins.least_growth[around].max()
        assert strength[node] == max(1, evidence.least_growth)
        assert [evidence.source, evidence.target] in bins.counts[around].tolist()


# Domains that follow the edges


def test_where_domains_follow_the_edges_bins_of_own_vectors_alone_count_and_placebos_say_what_is_allowed():
    graph, _ = panel("clinging", 1)
    hiding = match_domains(graph)
    bins = BinCounts.of(graph, hiding)
    assert bins.follows_edges
    assert (bins.partitions.is_own).all()
    assert bins.partitions.leaf.shape[0] == Partitions.of(graph).is_own[Partitions.of(graph).parent < 0].sum()
    hidden = [hiding.part(graph, 0, number, graph.is_target.mean()) for number in range(PLACEBOS)]
    assert bins.allowed == max(ALLOWED_GROWTH, *map(bins._placebo, hidden))
    bound = bins.bound(graph.is_target)
    assert bound.max_growth == bins.allowed
    assert bins.of_own_vectors().counts.tolist() == bins.counts.tolist()


def test_a_placebo_counts_a_part_of_the_source_as_target_and_no_target_node():
    graph, _ = panel("clinging", 0)
    part = Hiding(2).part(graph, 0, 0)
    bins = BinCounts.of(graph, Hiding(2))
    inside = np.flatnonzero(~graph.is_target)
    counts = bins.partitions.count(np.where(graph.is_target, -1, part))
    assert counts[0].tolist() == [len(inside) - part.sum(), part.sum()]
    sizes = counts.sum(axis=1)
    growth = bins._placebo(part)
    assert 1 <= growth <= HIGHEST_GROWTH
    # All source nodes of one kind taken for target would seem new; a part drawn at random does not.
    kind = ~graph.is_target & (graph.categories == graph.categories[inside[0]])
    assert bins._placebo(kind) > 5 > bins._placebo(np.isin(np.arange(graph.num_nodes), inside[::4]))
    assert (sizes <= bins.counts[:, 0]).all()


def test_what_is_new_in_texts_is_seen_beside_columns_that_tell_nothing():
    rng = np.random.default_rng(0)
    words = [[f"w{kind}{k}" for k in range(10)] for kind in range(6)]
    is_target = np.arange(900) % 3 == 0
    kind = np.where(is_target & (rng.random(900) < 0.15), 5, rng.integers(0, 5, 900))
    titles = [" ".join(rng.choice(words[each], 4, replace=False)) for each in kind]
    others = {f"x{k}": rng.normal(size=900) for k in range(4)} | {"plan": rng.choice(list("abcd"), 900)}
    table = pl.DataFrame({"domain": is_target.astype(int), "title": titles} | others)
    found = recoslip.detect(table, progress=False).findings
    assert found.verdict.kind == "novel"
    assert 0.5 * (kind == 5).sum() < found.novel_share.low * is_target.sum() <= (kind == 5).sum()
    assert "with similar texts" in found.groups[0].evidence.sentence()


def test_own_vectors_are_counted_alone():
    graph, _ = panel("mixed0", 0)
    bins = BinCounts.of(graph)
    own = bins.of_own_vectors()
    assert not bins.partitions.is_own.all()
    assert own.partitions.is_own.all()
    assert (own.counts == bins.counts[bins.partitions.is_own]).all()
    assert (own.partitions.count(graph.is_target) == own.counts).all()
    assert own.domains == bins.domains


def bound_of(case, matched=True):
    graph, _ = case
    return BinCounts.of(graph, match_domains(graph) if matched else None).bound(graph.is_target)


def test_nothing_new_is_found_in_one_of_20_draws_at_most_where_domains_follow_the_edges():
    assert sum(bound_of(panel("clinging_nothing", seed, nodes=500)).new > 0 for seed in range(20)) <= 1
    on_maps = [neighbourhood("clinging_nothing", seed) for seed in range(20)]
    assert sum(bound_of(case).new > 0 for case in on_maps) <= 1
    assert sum(bound_of(case, matched=False).new > 0 for case in on_maps) >= 4


def test_a_novel_category_is_found_where_domains_follow_the_edges():
    for make in (panel, neighbourhood):
        cases = [make("clinging", seed) for seed in range(5)]
        assert sum(0 < bound_of(case).new <= case.novel.sum() for case in cases) >= 4


# What is said of it


def test_each_group_and_each_listed_node_names_its_bin_in_summary_result_and_report(monkeypatch):
    monkeypatch.setattr("recoslip.pipeline.report.payload.MAX_WITH_TRAITS", 10)  # evidence is given of all
    graph = csbm(nodes=900, categories=5, shift=0.0, novel_share=0.3, noise=0.8, seed=0)
    result = recoslip.detect(graph, fdr=0.1, progress=False)
    bins, listed = BinCounts.of(graph), np.flatnonzero(result.findings.listed)
    assert len(listed) > 100
    report = result.report().data
    written = [report["evidence"][report["details"][str(node)]["evidence"]] for node in listed]
    assert written == [evidence.sentence() for evidence in bins.of_nodes(listed)]
    assert len(report["evidence"]) == len(set(written))
    for number, group in enumerate(result.groups, start=1):
        members = np.flatnonzero(result.findings.partition.label == number)
        others = np.setdiff1d(listed, members)
        assert sorted(group.members) == sorted(graph.ids[members].tolist())
        assert group.evidence == bins.evidence(members, others).sentence(of_group=True)
        assert result.summary["groups"]["found"][number - 1]["evidence"] == group.evidence
        assert report["groups"][number - 1]["evidence"] == group.evidence


def test_bins_are_counted_once_for_a_result_and_its_report(monkeypatch):
    graph, counted = csbm(nodes=600, categories=4, novel_share=0.3, seed=0), []
    of = BinCounts.of.__func__
    monkeypatch.setattr(BinCounts, "of", classmethod(lambda cls, *given: counted.append(1) or of(cls, *given)))
    recoslip.detect(graph, fdr=0.1, progress=False).report()
    assert counted == [1]


def test_few_or_equal_nodes_and_one_domain_are_no_evidence():
    for x in (np.ones((200, 2)), np.random.default_rng(0).normal(size=(10, 2))):
        target = np.arange(len(x)) % 2 == 1
        bins = BinCounts.of(NodeGraph(x, NO_EDGES, target))
        assert not bins.evidence(np.flatnonzero(target)[:4]).is_convincing
        assert bins.bound(target, 1.0).new == 0
    for is_target in (False, True):
        bins = BinCounts.of(NodeGraph(np.ones((60, 1)), NO_EDGES, [is_target] * 60, one_domain=True))
        assert (bins.least_growth == 0).all()
        assert bins.bound(np.ones(60, dtype=bool)).new == 0


# A result's bound


@pytest.fixture(scope="module")
def result():
    graph = csbm(nodes=600, categories=5, shift=0.0, novel_share=0.3, noise=0.6, seed=0)
    named = NodeGraph(graph.x, graph.edge_index, graph.is_target, categories=graph.categories,
                      ids=[f"node {k}" for k in range(600)])  # fmt: skip
    return recoslip.detect(named, progress=False)


def test_a_result_bounds_any_nodes_by_their_ids(result):
    graph, bins = result.findings.graph, result.findings.bins
    novel = graph.categories == 4
    for chosen in (novel, graph.is_target, result.findings.listed, ~graph.is_target):
        for growth in (1.0, 2.5):
            assert result.bound(graph.ids[chosen], max_growth=growth) == bins.bound(chosen, growth)
    bound = result.bound(graph.ids[novel].tolist())
    assert bound.size == novel.sum()
    assert 0 < bound.new <= novel.sum()
    assert bound.max_growth == result.novel_share.max_growth
    assert f"{bound.new}" in bound.sentence
    everybody = result.bound(graph.ids)
    assert everybody.new / graph.is_target.sum() == result.novel_share.low
    assert everybody.holds_up_to == result.novel_share.holds_up_to
    assert result.bound([]).new == 0


def test_an_id_that_is_given_twice_counts_once_and_unknown_ones_are_refused(result):
    graph = result.findings.graph
    some = graph.ids[result.findings.listed].tolist()
    assert result.bound(some * 2) == result.bound(some)
    with pytest.raises(SettingError, match=r"1 of 3 do not \(first: 'nobody'\)"):
        result.bound([some[0], "nobody", some[1]])
    with pytest.raises(SettingError, match="2 of 2 do not"):
        result.bound(["nobody", "no one"])
    with pytest.raises(SettingError, match="1 of 4 do not"):
        result.bound([some[0], some[0], some[0], "nobody"])


def test_numbers_and_their_texts_are_the_same_ids():
    graph = csbm(nodes=300, categories=4, novel_share=0.3, seed=0)
    numbered = recoslip.detect(graph, progress=False)
    nodes = np.flatnonzero(graph.is_target)
    assert numbered.bound(nodes) == numbered.bound([str(node) for node in nodes])


def test_the_table_says_up_to_which_growth_nodes_like_each_target_node_stand_out(result, tmp_path):
    graph, table = result.findings.graph, result.table
    assert "holds_up_to" in table.columns
    of_each = dict(zip(graph.ids, result.findings.bins.of_each(), strict=True))
    for name, domain, value in table.select("id", "domain", "holds_up_to").iter_rows():
        assert value == (of_each[name] if domain == "target" else None)
    column = table.filter(table["domain"] == "target")["holds_up_to"]
    assert column.min() >= 1
    assert column.max() == result.findings.bins.holds_up_to
    for kind in ("csv", "parquet"):
        loaded = recoslip.load(result.save(tmp_path / kind, table=kind))
        assert loaded.table["holds_up_to"].to_list() == pytest.approx(table["holds_up_to"].to_list())
        assert loaded.novel_share == result.novel_share
        assert loaded.verdict == result.verdict
        with pytest.raises(RecoslipError, match="holds no graph"):
            loaded.bound(graph.ids[:1])


# How far the domains mix


@pytest.mark.parametrize("settings", [{}, {"homophily": 0.3}, {"degree": 0.0}, {"noise": 3.0}, {"features": 200}])
def test_drawn_domains_are_not_separable(settings):
    for seed in range(2):
        base = csbm(**({"nodes": 600, "novel_share": 0.15, "seed": seed} | settings))
        for source_share in ([0.5] * 5, [0.2] * 5, [0.7, 0.3, 0.7, 0.3, 0.0]):
            mixing = measure_mixing(with_domains(base, source_share, seed))
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
        graph = with_domains(csbm(nodes=600, novel_share=0.15, seed=seed), [0.5] * 5, seed)
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
