"""Five kinds of verdicts, each where its truth was planted; and what goes with them: growth, groups and guarantees."""

import functools
from collections import Counter
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from planted import NO_EDGES, Population, panel, with_times
from rich.console import Console

import recoslip
from recoslip import NodeGraph, detector
from recoslip.data.datasets.block_model import csbm
from recoslip.data.partitions import Partitions
from recoslip.inference.analysis import facts, find_novel
from recoslip.inference.diagnosis import DEPTH, Cluster, Diagnosis, find_clusters, grown, least_growth, unevenness
from recoslip.inference.evidence import ALLOWED_GROWTH, BinCounts, Evidence
from recoslip.inference.groups import Grouping, find_groups, inspect_first
from recoslip.inference.hiding import ONE_BY_ONE
from recoslip.inference.p_values import most_by_chance
from recoslip.inference.traits import FeatureStatistics
from recoslip.inference.verdict import decide
from recoslip.learning.base import Detector
from recoslip.pipeline.result import Result
from recoslip.products.cli.console import print_result

CENTRES = {kind: 5 * np.eye(6)[place] for place, kind in enumerate(("a", "b", "c", "new"))}
NAMES = ("apples", "beans", "cabbage", "dates", "eggs", "figs")


class DistanceToSource(Detector):
    """Scores a node by its distance to the third nearest node that is presented as source."""

    name = "distance-to-source"

    def _learn_seeds(self, graph, split, seeds, progress, **truth):
        return [{"scores_": self._score(graph)} for _ in seeds]

    def _score(self, graph):
        x, source = graph.x.astype(float), ~graph.is_target
        distance = np.linalg.norm(x[:, None] - x[source], axis=2)
        return 1 - np.exp(-np.sort(distance, axis=1)[:, 2])


def world(source, target, seed=0, names=NAMES):
    """A graph without edges: so many nodes of each kind in source and target, and which kind each node is of."""
    rng = np.random.default_rng(seed)
    kinds = [kind for sizes in (source, target) for kind, count in sizes.items() for _ in range(count)]
    x = np.abs(rng.normal([CENTRES[kind] for kind in kinds], 1.0))
    is_target = np.arange(len(kinds)) >= sum(source.values())
    return NodeGraph(x, NO_EDGES, is_target, feature_names=names), np.array(kinds)


SOURCE = {"a": 300, "b": 300, "c": 300}
NEW = {"a": 100, "b": 300, "c": 100, "new": 120}
METHODS = [None, DistanceToSource()]  # None: the scan


def found(source, target, *, seed=0, method=None, names=NAMES, **options):
    graph, kinds = world(source, target, seed, names)
    return recoslip.detect(graph, method=method, progress=False, **options), kinds


def verdicts(source, target, draws, **options):
    """How often each kind is said of so many draws."""
    return Counter(found(source, target, seed=seed, groups=False, **options)[0].verdict.kind for seed in range(draws))


@functools.cache
def found_new():
    """The result where a kind is new, and the kinds of the nodes."""
    return found(SOURCE, NEW)


# The five kinds


def test_each_kind_is_said_where_its_truth_is_planted():
    planted = {
        "novel": panel("mixed0", 0).graph,
        "drift": with_times(0, drifts=True),
        "grown": world({"a": 150, "b": 450, "c": 450}, {"a": 300, "b": 120, "c": 105}, seed=1)[0],
        "nothing": Population.of(0).sample(200, 400),
        "inconclusive": Population.of(0).sample(200, 60),
    }
    assert {kind: recoslip.detect(graph, progress=False).verdict.kind for kind, graph in planted.items()} == {
        kind: kind for kind in planted
    }


@pytest.mark.parametrize("method", METHODS)
def test_something_new_is_said_with_how_much(method):
    for seed in range(5):
        result, kinds = found(SOURCE, NEW, seed=seed, method=method, groups=False)
        assert result.verdict.kind == "novel"
        assert result.verdict.supported
        assert result.verdict.stands_out
        truth, share = 120 / 620, result.novel_share
        assert 0.1 < share.low <= truth <= share.high
        assert share.low <= share.estimate <= share.high
        assert share.max_growth == ALLOWED_GROWTH < share.holds_up_to
        listed = result.listed["id"].to_numpy()
        assert (kinds[listed] == "new").mean() > 0.9
        assert len(listed) > 100


@pytest.mark.parametrize("method", METHODS)
def test_where_nothing_is_new_nothing_is_said_to_be(method):
    said = verdicts(SOURCE, {"a": 150, "b": 150, "c": 150}, 10, method=method)
    assert said["nothing"] >= 9
    assert said["novel"] == 0


def test_nothing_new_is_novel_in_one_of_20_draws_at_most():
    """Categories are up to three times as frequent, or domains follow the edges, or the data are few."""
    said = Counter()
    for seed in range(7):
        for graph in (
            csbm(nodes=400, categories=6, novel_share=0.0, shift=0.4, homophily=0.8, noise=0.6, seed=seed),
            panel("clinging_nothing", seed, nodes=500).graph,
            Population.of(seed, nodes=400, categories=6).sample(200, 60),
        ):
            said[recoslip.detect(graph, progress=False, groups=False).verdict.kind] += 1
    assert said["novel"] + said["drift"] <= 1


def test_a_known_kind_that_grew_fourfold_is_called_so_with_how_much():
    said, right = Counter(), []
    for seed in range(8):
        result, _ = found({"a": 150, "b": 450, "c": 450}, {"a": 300, "b": 120, "c": 105}, seed=seed, groups=False)
        said[result.verdict.kind] += 1
        clusters = result.findings.diagnosis.grown
        assert clusters
        for cluster in clusters:
            right.append(0.5 <= cluster.growth / (300 / 525 / (150 / 1050)) <= 2)
            assert 2 <= cluster.least_growth <= cluster.growth
            assert cluster.name.startswith("apples")
    assert said["grown"] >= 6
    assert said["novel"] == 0
    assert np.mean(right) >= 0.9


def test_much_growth_is_inconclusive_at_the_worst_and_not_novel():
    """One kind is 3 % of the source and half of the target, and nothing is new."""
    said = verdicts({"a": 30, "b": 500, "c": 470}, {"a": 225, "b": 120, "c": 105}, 8)
    assert said["grown"] + said["inconclusive"] == 8


def test_what_grew_is_allowed_for_before_anything_is_called_new():
    result, _ = found({"a": 150, "b": 450, "c": 450}, {"a": 300, "b": 120, "c": 105, "new": 60}, seed=1)
    diagnosis, sizes = result.findings.diagnosis, Counter(result.table["domain"])
    shares = [cluster.known / sizes["target"] / (cluster.source / sizes["source"]) for cluster in diagnosis.grown]
    assert result.novel_share.max_growth == max(ALLOWED_GROWTH, *shares)
    assert max(shares) < max(cluster.growth for cluster in diagnosis.grown)  # which is relative to the known ones
    graph, model = result.findings.graph, result.calibrated
    assert find_novel(model, graph, max_growth=1.5).novel_share.max_growth == 1.5


def test_novel_nodes_are_not_counted_as_growth():
    for seed in range(4):
        result, _ = found(SOURCE, {"a": 150, "b": 150, "c": 150, "new": 150}, seed=seed, groups=False)
        assert all("dates" not in (cluster.name or "") for cluster in result.findings.diagnosis.grown)


@pytest.mark.parametrize("method", METHODS)
def test_few_source_nodes_cannot_tell_new_from_grown(method):
    result, kinds = found({"a": 40, "b": 40, "c": 40}, {"a": 60, "b": 60, "new": 30}, max_fpr=0.02, method=method)
    assert (result.verdict.kind, result.verdict.supported, result.verdict.stands_out) == ("inconclusive", True, True)
    assert result.novel_share.low == 0
    assert 1.1 < result.novel_share.holds_up_to < ALLOWED_GROWTH
    listed = result.findings.listed
    assert (kinds[listed] == "new").mean() > 0.8  # and yet the list is right
    assert set(kinds[list(result.findings.inspect_first())]) == {"new"}


# What the data do not support


def is_unsupported(findings):
    said = facts(findings)
    assert findings.guarantee == "No statistical guarantee."
    assert said["novel_share"] is None
    assert said["diagnosis"]["shift"] is None
    assert said["diagnosis"]["grown"] == []
    assert findings.inspect_first() == ()
    verdict = findings.verdict
    return (verdict.kind, verdict.supported, verdict.stands_out) == ("inconclusive", False, False)


def test_without_hidden_nodes_nothing_can_be_told():
    graph, _ = world(SOURCE, {"a": 100, "new": 100})
    findings = recoslip.analyse(DistanceToSource().fit(graph), graph).findings
    assert is_unsupported(findings)
    assert "recoslip.calibrate" in findings.verdict.advice


def test_separable_domains_end_in_which_columns_separate_them():
    graph, _ = world(SOURCE, {"a": 100, "b": 100})
    leak = NodeGraph(np.column_stack([graph.x, 9.0 * graph.is_target]), graph.edge_index, graph.is_target)
    findings = find_novel(recoslip.calibrate(DistanceToSource(), leak), leak)
    assert is_unsupported(findings)
    assert f"feature {graph.num_features} (AU-ROC 1.00)" in findings.verdict.conditions


def test_aligned_graphs_have_a_ranking_and_no_guarantee():
    graph, _ = world(SOURCE, NEW)
    shifted = NodeGraph(graph.x + 30.0 * graph.is_target[:, None], NO_EDGES, graph.is_target)
    result = recoslip.detect(shifted, progress=False, allow_leak=[f"feature {k}" for k in range(6)])
    assert result.findings.check.remedy == "aligned"
    assert is_unsupported(result.findings)
    assert result.novel_share is None
    assert result.table["score"].is_finite().all()


def test_scores_that_are_all_tied_tell_nothing():
    graph = NodeGraph(np.ones((90, 2)), NO_EDGES, np.arange(90) >= 60)
    findings = find_novel(recoslip.calibrate(DistanceToSource(), graph, max_fpr=0.05), graph)
    assert is_unsupported(findings)
    assert not findings.listed.any()
    assert any("same features" in words for words in findings.diagnosis.warnings)


def test_a_level_that_no_p_value_reaches_ends_in_which_one_to_ask_for():
    graph, kinds = world({"a": 20, "b": 20}, {"a": 20, "new": 10})
    model = recoslip.calibrate(DistanceToSource(), graph, max_fpr=0.01)
    for findings in (find_novel(model, graph), find_novel(model, graph, fdr=0.01)):
        assert is_unsupported(findings)
        assert "40 source nodes" in findings.verdict.sentence
        assert "0.025" in findings.verdict.advice  # 1/41 is .0244
    assert (model.select(max_fpr=0.025) & (kinds == "new")).sum() >= 8  # what it says to do helps


@pytest.mark.parametrize("edges", [False, True])
def test_two_source_nodes_end_in_words(edges):
    x = np.random.default_rng(0).normal(size=(20, 3))
    graph = NodeGraph(x, np.array([[0, 2, 3], [1, 3, 4]]) if edges else NO_EDGES, np.arange(20) >= 2)
    for findings in (
        recoslip.analyse(detector("lp-pul").fit(graph), graph).findings,
        recoslip.detect(graph, progress=False).findings,
    ):
        assert is_unsupported(findings)
        assert "2 source nodes" in findings.verdict.sentence
        assert any("only 2 source nodes" in warning for warning in findings.diagnosis.warnings)


def test_one_new_node_is_listed_without_a_wrong_reason():
    result, _ = found(SOURCE, {"new": 1}, method=DistanceToSource(), groups=False)
    assert result.listed.height == 1
    assert result.verdict.stands_out
    assert "same score" not in result.verdict.sentence


# Lists and chance


@pytest.fixture(scope="module")
def quiet():
    """Findings where nothing is new and nothing grew."""
    graph, _ = world(SOURCE, {"a": 150, "b": 150, "c": 150})
    return find_novel(recoslip.calibrate(DistanceToSource(), graph, max_fpr=0.02), graph)


def decided(findings, count, fdr=None, **changes):
    """The verdict where so many target nodes are listed."""
    listed = np.isin(np.arange(findings.graph.num_nodes), np.flatnonzero(findings.graph.is_target)[:count])
    known = {"share": findings.novel_share, "bins": findings.bins, "diagnosis": findings.diagnosis} | changes
    return decide(findings.model, listed, fdr, check=findings.check, **known)


def test_a_list_as_long_as_chance_makes_is_called_so_and_a_longer_one_stands_out(quiet):
    most = most_by_chance(0.02, 450, 900)
    said = {count: decided(quiet, count) for count in (0, 1, most, most + 1)}
    assert [verdict.stands_out for verdict in said.values()] == [False, False, False, True]
    assert [verdict.kind for verdict in said.values()] == ["nothing", "nothing", "nothing", "inconclusive"]
    assert f"{most} are listed" in said[most].conditions
    assert "1 is listed" in said[1].conditions
    assert "listed" not in said[0].conditions


def test_by_a_false_discovery_rate_a_list_is_compared_with_those_of_hidden_parts(quiet):
    lists = quiet.model.placebo_lists(0.3)
    assert len(lists) == len(quiet.model.fits)
    most = int(max(lists) * 450)
    assert not decided(quiet, most, fdr=0.3).stands_out
    assert decided(quiet, most + 1, fdr=0.3).stands_out


def test_a_placebo_list_is_that_of_a_hidden_part_against_the_others_by_hand():
    """Three parts of two nodes; the last node of the first part scores above all others wherever it is hidden."""
    hidden = np.repeat(np.eye(3, dtype=bool), 2, axis=1)
    scores = np.array([[0.1, 0.9, 0.3, 0.4, 0.2, 0.3], [0.2, 0.1, 0.3, 0.4, 0.2, 0.3], [0.2, 0.1, 0.3, 0.4, 0.5, 0.6]])
    fits = recoslip.calibrate(DistanceToSource(), world({"a": 6}, {"a": 2})[0], rotations=3)
    model = replace(fits, fit_scores=tuple(scores), hidden=tuple(hidden))
    # p-values are 1 and 0.2 in the first part, 0.8 in the second, 0.4 in the third.
    assert model.placebo_lists(0.45) == [0.5, 0.0, 1.0]
    assert model.placebo_lists(0.39) == [0.0, 0.0, 0.0]


def test_what_is_new_comes_before_what_grew_and_does_not_need_a_list(quiet):
    new = replace(quiet.novel_share, low=0.05, holds_up_to=4.0)
    several = Diagnosis(0.2, (GREW,) * 5, ())
    assert decided(quiet, 100, share=new, diagnosis=several).kind == "novel"
    assert decided(quiet, 0, share=new).kind == "novel"
    assert "max_fpr" in decided(quiet, 0, share=new).advice
    assert "fdr" in decided(quiet, 0, fdr=0.1, share=new).advice
    verdict = decided(quiet, 0, diagnosis=several)
    assert verdict.kind == "grown"
    assert verdict.conditions.count("hose, soil") == 3  # no more are named
    for number in ("3.6 times", "2.8 times"):
        assert number in verdict.conditions
    assert "one cluster" in decided(quiet, 0, diagnosis=Diagnosis(0.2, (replace(GREW, name=None),), ())).sentence


GREW = Cluster(40, 300, 290, 0, 3.6, 2.87, "hose, soil")


# Growth


def test_the_bound_of_the_growth_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    holds = []
    for _ in range(2000):
        growth = rng.uniform(0.5, 20)
        expected_source = rng.uniform(0.5, 30)
        source, target = rng.poisson(expected_source), rng.poisson(growth * expected_source)
        holds.append(least_growth(source, target, 1000, 1000) <= growth)
    assert np.mean(holds) + 2.5 * np.std(holds) / np.sqrt(2000) >= 0.95
    assert np.mean(holds) < 0.999  # it is not won by saying nothing


def test_clusters_that_grew_are_those_with_enough_source_nodes_and_known_nodes():
    clusters = [
        GREW,
        replace(GREW, least_growth=1.9),
        replace(GREW, known=1),
        replace(GREW, growth=None, least_growth=0.0),
    ]
    assert grown(clusters) == [GREW]
    same = Cluster(500, 900, 500, 0, 1.0, 0.5, None)
    assert unevenness([same] * 2) == 0
    assert unevenness([replace(same, known=0), replace(same, source=0)]) > 0.9
    novel = replace(same, source=0, known=None, growth=None, listed=900)
    assert unevenness([same, same, novel]) == 0  # what is new is no shift of what is known
    assert unevenness([novel]) is None


def test_clusters_count_every_node_once():
    graph, _ = world(SOURCE, {"a": 100, "new": 100})
    fitted = recoslip.calibrate(DistanceToSource(), graph, rotations=3)
    label = Partitions.of(graph).at_depth(DEPTH)
    clusters = find_clusters(fitted, label, fitted.select(), FeatureStatistics(graph))
    assert len(clusters) == len(np.unique(label))
    assert sum(cluster.source for cluster in clusters) == 900
    assert sum(cluster.target for cluster in clusters) == 200
    assert sum(cluster.listed for cluster in clusters) == fitted.select().sum()
    for cluster in clusters:
        assert (cluster.known is None) == (cluster.growth is None) == (cluster.source < 10)
        assert cluster.known is None or cluster.known <= cluster.target


def test_known_nodes_of_a_cluster_are_twice_those_below_the_median():
    """By hand: in one cluster, of eight target nodes three have p-values above 1/2, as 11 of 21 known ones would."""
    label = np.zeros(28, dtype=int)
    is_target = np.arange(28) >= 20
    p = np.where(is_target, np.array([0.9] * 23 + [0.1] * 5), np.nan)
    model = SimpleNamespace(
        is_target=is_target, calibration=~is_target, p_values_within=lambda part: p, hiding=ONE_BY_ONE
    )
    (cluster,) = find_clusters(model, label, p < 0.2, SimpleNamespace(name=lambda nodes: "name"))
    assert (cluster.source, cluster.target, cluster.known, cluster.listed) == (20, 8, 6, 5)
    assert cluster.growth == 6 / 3  # of three that are not listed
    assert cluster.least_growth == least_growth(10, 3, 20, 3)


def test_without_a_shift_little_is_measured_and_with_one_more(quiet):
    measured = [quiet.diagnosis.unevenness]
    for seed in range(1, 6):
        result, _ = found(SOURCE, {"a": 150, "b": 150, "c": 150}, seed=seed, groups=False)
        measured.append(result.findings.diagnosis.unevenness)
    assert sum(unevenness < 0.1 for unevenness in measured) >= 5
    result, _ = found({"a": 500, "b": 100, "c": 300}, {"a": 40, "b": 380, "c": 30}, groups=False)
    assert result.findings.diagnosis.unevenness > 0.4


@pytest.mark.parametrize(
    ("unevenness", "words"), [(0.05, "hardly differ"), (0.2, "somewhat differ"), (0.5, "strongly differ")]
)
def test_the_shift_is_said_in_three_ways(unevenness, words):
    said = Diagnosis(unevenness, (), ()).shift()
    assert words in said
    assert f"{100 * unevenness:.0f} %" in said


def test_a_shift_of_nothing_known_is_not_estimated():
    assert "not estimated" in Diagnosis(None, (), ()).shift()


# Groups


def test_a_group_without_source_nodes_must_be_new_or_have_grown_much():
    result, kinds = found_new()
    findings = result.findings
    first = findings.groups[0]
    members = findings.partition.label == 1
    assert (kinds[members] == "new").mean() > 0.9
    assert first.name.startswith("dates")
    assert first.evidence.source <= 2
    assert first.evidence.least_growth > 5
    assert f"{first.evidence.target + first.evidence.source:,}" in first.evidence.sentence()
    growths = [group.evidence.least_growth for group in findings.groups if group.evidence]
    assert growths == sorted(growths, reverse=True)
    assert set(kinds[list(findings.inspect_first())]) == {"new"}
    assert len(findings.inspect_first()) == 10


def test_the_evidence_for_a_known_kind_is_no_more_than_its_growth():
    """Half of a kind that grew eightfold is taken for a group: the bound is below eight in 19 of 20 cases or more."""
    bounds = []
    for seed in range(40):
        graph, kinds = world({"a": 50, "b": 950}, {"a": 200, "b": 300}, seed=seed)
        members = np.flatnonzero((kinds == "a") & graph.is_target)[::2]
        bounds.append(BinCounts.of(graph).evidence(members).least_growth)
    assert np.mean(np.array(bounds) <= 8) >= 0.95
    assert np.mean(bounds) > 3


def test_nothing_says_that_a_group_amid_the_source_is_new():
    assert not Evidence(30, 31, 0.8).is_convincing
    assert "times" not in Evidence(30, 31, 0.8).sentence()
    assert "61" in Evidence(30, 31, 0.8).sentence()
    convincing = Evidence(1, 1200, 412.7).sentence()
    assert "1,201" in convincing
    assert "at least 412 times" in convincing
    graph, kinds = world(SOURCE, {"a": 300, "b": 300})
    members = np.flatnonzero((kinds == "a") & graph.is_target)[:50]
    evidence = BinCounts.of(graph).evidence(members)
    assert evidence.least_growth < 2
    assert evidence.source > 100


def test_evidence_names_what_its_nodes_are_alike_in():
    for name in ("texts", "features", "neighbours of neighbours"):
        assert f"with similar {name}, 0 are from the source" in Evidence(0, 30, 5.0, name).sentence()
        assert f"with similar {name}, among them" in Evidence(0, 30, 5.0, name).sentence(of_group=True)


def test_first_looks_take_turns_and_leave_out_groups_without_evidence():
    def group(exemplars, growth):
        return SimpleNamespace(exemplars=exemplars, evidence=None if growth is None else Evidence(0, 9, growth))

    groups = [group((1, 2, 3), 9.0), group((7, 8), 2.0), group((5,), 0.5), group((6,), None)]
    assert inspect_first(groups) == (1, 7, 2, 8, 3)
    assert inspect_first(groups, 2) == (1, 7)
    assert inspect_first([]) == ()


def test_one_kind_is_one_group_and_two_kinds_are_two():
    # A novel kind of two halves that overlap, and another one far from it.
    centres = {
        "known 1": (5, 0, 0, 0, 0),
        "known 2": (0, 5, 0, 0, 0),
        "new": (0, 0, 5, 0.6, 0),
        "half": (0, 0, 5, 0, 0.6),
        "other": (3, 3, 0, 0, 5),
    }
    kinds = np.repeat([*centres], 80)
    for seed in range(3):
        x = np.random.default_rng(seed).normal([centres[kind] for kind in kinds], 0.7)
        graph = NodeGraph(x, NO_EDGES, np.arange(400) >= 160)
        groups = find_groups(graph, graph.is_target)
        assert groups.count == 2
        assert len(np.unique(groups.label[np.isin(kinds, ("new", "half"))])) == 1


def test_groups_that_are_numbered_anew_keep_their_members():
    partition = Grouping(np.array([1, 2, 2, 0, -1]), 2)
    assert partition.renumbered([2, 1]).label.tolist() == [2, 1, 1, 0, -1]


# What is listed, and with which guarantee


def test_the_list_is_counted_in_words():
    findings = found_new()[0].findings
    listed = int(findings.listed.sum())
    assert f"{listed} of 620" in findings.list_sentence()
    one = np.zeros_like(findings.listed)
    assert "620" in replace(findings, listed=one).list_sentence()
    one[np.flatnonzero(findings.listed)[0]] = True
    assert "1 of 620" in replace(findings, listed=one).list_sentence()


def test_guarantees_name_the_rate_and_what_it_rests_on():
    result, _ = found(SOURCE, NEW, max_fpr=0.05)
    assert "positive rate ≤ 5 %" in result.guarantee
    by_fdr = find_novel(result.calibrated, result.findings.graph, fdr=0.1)
    assert "discovery rate ≤ 10 %" in by_fdr.guarantee
    for words in (result.guarantee, by_fdr.guarantee):
        assert "assuming known target nodes are distributed as the hidden source nodes" in words
    part = np.sort(np.random.default_rng(0).permutation(result.findings.graph.num_nodes)[:1000])
    other = find_novel(result.calibrated, result.findings.graph.subgraph(part))
    assert "measured and not proven" in other.guarantee


def test_where_domains_follow_the_edges_no_rate_is_guaranteed():
    result = recoslip.detect(panel("clinging", 0).graph, progress=False)
    assert result.verdict.kind == "novel"
    assert "≤" not in result.guarantee
    assert "follow the edges" in result.guarantee


def test_nodes_without_names_have_no_names_for_groups():
    result, _ = found(SOURCE, NEW, names=None)
    assert {group.name for group in result.groups} == {None}
    assert {cluster.name for cluster in result.findings.diagnosis.clusters} == {None}


def test_the_terminal_says_what_the_report_says(tmp_path):
    result, kinds = found_new()
    findings, console = result.findings, Console(file=StringIO(), width=10_000)
    print_result(Result.of(findings, seconds=1.0), tmp_path, console, False)
    printed = console.file.getvalue()
    for sentence in (findings.headline(), findings.verdict.advice, findings.list_sentence(), findings.guarantee):
        assert sentence in printed
    first = findings.groups[0]
    assert f"{first.name} ({first.size})" in printed
    looked_at = printed.partition("Inspect these first: ")[2].partition("\n")[0].split("; ")
    assert set(kinds[[int(name) for name in looked_at]]) == {"new"}


def test_saved_results_keep_kind_share_and_what_was_hidden(tmp_path):
    for number, graph in enumerate(
        (world(SOURCE, NEW)[0], panel("clinging", 0).graph, Population.of(0).sample(200, 60))
    ):
        result = recoslip.detect(graph, progress=False)
        loaded = recoslip.load(result.save(tmp_path / str(number)))
        assert loaded.verdict == result.verdict
        assert loaded.novel_share == result.novel_share
        assert loaded.guarantee == result.guarantee
        assert loaded.calibrated.hiding == result.calibrated.hiding
        assert loaded.summary["domains_follow_edges"] == result.summary["domains_follow_edges"]
        assert (np.array(loaded.calibrated.hidden) == np.array(result.calibrated.hidden)).all()
