"""Every sentence of the findings: made to appear, and checked against the truth that was planted."""

import functools
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from recoslip.learning.regions import growth_within
from rich.console import Console

import recoslip
from recoslip import NodeGraph, detector
from recoslip.data.vectors import Vectors
from recoslip.inference.analysis import analyse, facts
from recoslip.inference.diagnosis import (
    Cluster,
    Diagnosis,
    _fit_warnings,
    find_clusters,
    grown,
    growth_in_region,
    least_growth,
    unevenness,
)
from recoslip.inference.evidence import BinCounts, Evidence
from recoslip.inference.groups import Partition, find_groups, inspect_first
from recoslip.inference.novel_share import NovelShare, most_by_chance
from recoslip.inference.p_values import p_values
from recoslip.inference.traits import FeatureStatistics
from recoslip.inference.verdict import Withheld, decide, guarantee, withheld_regions
from recoslip.learning.base import Detector
from recoslip.pipeline.result import Result
from recoslip.products.cli.console import print_result

CENTRES = {"a": (5, 0, 0, 0), "b": (0, 5, 0, 0), "c": (0, 0, 5, 0), "new": (0, 0, 0, 5)}
NAMES = ("apples", "beans", "cabbage", "dates")


class DistanceToSource(Detector):
    """Scores a node by its distance to the third nearest node that is presented as source."""

    name = "distance-to-source"

    def _learn(self, graph, split, seeds, callbacks, **truth):
        return [{"scores_": self._score(graph)} for _ in seeds]

    def _score(self, graph):
        x, source = graph.x.astype(float), ~graph.is_target
        distance = np.linalg.norm(x[:, None] - x[source], axis=2)
        return 1 - np.exp(-np.sort(distance, axis=1)[:, 2])

    def _pack(self):
        return {}, {}

    def _unpack(self, values, tensors):
        return {}


def world(source, target, seed=0, names=NAMES):
    """A graph without edges: so many nodes of each kind in source and target, and which nodes are new."""
    rng = np.random.default_rng(seed)
    kinds = [kind for sizes in (source, target) for kind, count in sizes.items() for _ in range(count)]
    x = np.abs(rng.normal([CENTRES[kind] for kind in kinds], 1.0))
    is_target = np.arange(len(kinds)) >= sum(source.values())
    kinds = np.array(kinds)
    return NodeGraph(x, np.empty((2, 0), dtype=int), is_target, feature_names=names), kinds


SOURCE = {"a": 300, "b": 300, "c": 300}


def found(source, target, *, seed=0, max_fpr=0.01, names=NAMES, **options):
    graph, kinds = world(source, target, seed, names)
    fitted = recoslip.calibrate(DistanceToSource(random_state=seed, max_fpr=max_fpr), graph, rotations=5)
    return analyse(fitted, graph, **options), kinds


@functools.cache
def found_unchanged(seed):
    """Findings where nothing is new and nothing grew."""
    return found(SOURCE, {"a": 150, "b": 150, "c": 150}, seed=seed, grouped=False)[0]


@functools.cache
def found_new():
    """Findings of a new kind, in groups, and the kinds of the nodes."""
    return found(SOURCE, {"a": 100, "b": 300, "c": 100, "new": 120})


# The four verdicts


def test_something_new_is_said_with_how_much_and_how_sure():
    kinds_said, covered = [], []
    for seed in range(8):
        target = {"a": 100, "b": 300, "c": 100, "new": 120}
        findings, kinds = found(SOURCE, target, seed=seed, grouped=False)
        truth = (kinds[findings.graph.is_target] == "new").mean()
        share = findings.novel_share
        kinds_said.append(findings.verdict.kind)
        covered.append(share.low <= truth <= share.high)
        assert share.low <= share.estimate <= share.high
        assert findings.headline().startswith("Something new: at least ")
        assert "are unlike anything in the source" in findings.headline()
        assert "95 % confidence, unless a known category is more than 2.2 times" in findings.verdict.advice
        assert "No single node" not in findings.verdict.advice
    assert kinds_said == ["novel"] * 8
    assert np.mean(covered) >= 7 / 8


def test_nothing_stands_out_where_nothing_is_new():
    said = []
    for seed in range(12):
        findings = found_unchanged(seed)
        said.append(findings.verdict.kind)
        assert findings.verdict.kind != "nothing" or findings.novel_share.low == 0
    assert said.count("nothing") >= 11
    assert "novel" not in said


def test_a_known_kind_that_grew_is_called_so_with_how_much():
    """One kind is 3 % of the source and half of the target, and nothing is new."""
    right, said = [], []
    for seed in range(15):
        findings, _ = found({"a": 30, "b": 500, "c": 470}, {"a": 225, "b": 120, "c": 105}, seed=seed, grouped=False)
        said.append(findings.verdict.kind)
        if findings.verdict.kind == "grown":
            assert findings.headline().startswith("Known categories grew: known nodes like 'apples")
        for cluster in findings.diagnosis.grown:
            right.append(0.5 <= cluster.growth / (225 / 450 / (30 / 1000)) <= 2)
            assert cluster.least_growth <= cluster.growth
            assert cluster.name.startswith("apples")
    assert said.count("grown") >= 12
    assert len(right) >= 12
    assert np.mean(right) >= 0.9


def test_novel_nodes_are_not_counted_as_growth():
    for seed in range(4):
        findings, _ = found(SOURCE, {"a": 150, "b": 150, "c": 150, "new": 150}, seed=seed, grouped=False)
        assert all("dates" not in (cluster.name or "") for cluster in findings.diagnosis.grown)


def test_few_source_nodes_cannot_tell_new_from_grown():
    findings, kinds = found({"a": 40, "b": 40, "c": 40}, {"a": 60, "b": 60, "new": 30}, max_fpr=0.02)
    assert findings.verdict.kind == "inconclusive"
    assert findings.verdict.supported
    assert "stand out, more than expected by chance" in findings.headline()
    assert "known nodes would have to be " in findings.verdict.advice
    assert (kinds[findings.listed] == "new").mean() > 0.8  # and yet the list is right
    assert set(kinds[list(findings.inspect_first())]) == {"new"}


def test_without_calibration_nodes_nothing_can_be_told():
    graph, _ = world(SOURCE, {"a": 100, "new": 100})
    findings = analyse(DistanceToSource().fit(graph), graph, grouped=False)
    assert findings.headline().startswith("Inconclusive: the detector was fitted without calibration nodes")
    assert "rotations=5" in findings.verdict.advice
    assert findings.guarantee == "No statistical guarantee."
    assert facts(findings)["novel_share"] is None
    assert findings.inspect_first() == ()


def test_a_feature_that_says_the_same_as_the_domain_ends_in_cannot_be_told():
    graph, _ = world(SOURCE, {"a": 100, "b": 100})
    leak = NodeGraph(np.column_stack([graph.x, 9.0 * graph.is_target]), graph.edge_index, graph.is_target)
    findings = analyse(recoslip.calibrate(DistanceToSource(), leak, rotations=5), leak, grouped=False)
    assert findings.headline().startswith("Inconclusive: source and target are separable")
    assert f"feature {graph.num_features} (AU-ROC 1.00)" in findings.verdict.advice
    assert facts(findings)["diagnosis"]["shift"] is None
    assert findings.guarantee == "No statistical guarantee."


def test_scores_that_are_all_tied_end_in_cannot_be_told():
    graph = NodeGraph(np.ones((90, 2)), np.empty((2, 0), dtype=int), np.arange(90) >= 60)
    findings = analyse(recoslip.calibrate(DistanceToSource(max_fpr=0.05), graph, rotations=3), graph)
    assert findings.headline() == (
        "Inconclusive: all target nodes and all source nodes that they are compared with have the same score."
    )
    assert not findings.listed.any()
    assert any("All nodes have the same features" in words for words in findings.diagnosis.warnings)


def test_a_level_that_no_region_supports_ends_in_which_one_to_ask_for():
    findings, _ = found({"a": 20, "b": 20}, {"a": 20, "new": 10}, grouped=False)
    assert findings.headline() == (
        "Inconclusive: with 40 source nodes to compare with, no rate below 2.4 % can be guaranteed."
    )
    assert (
        findings.verdict.advice
        == "Ask for a false-positive rate (max_fpr) of 0.025 or more, or give more source nodes."
    )
    by_fdr, _ = found({"a": 20, "b": 20}, {"a": 20, "new": 10}, grouped=False, fdr=0.01)
    assert "false-discovery rate (fdr) of 0.025 or more" in by_fdr.verdict.advice
    again, kinds = found({"a": 20, "b": 20}, {"a": 20, "new": 10}, max_fpr=0.025, grouped=False)
    assert (again.listed & (kinds == "new")).sum() >= 8  # what it says to do helps


@pytest.mark.parametrize("edges", [False, True])
def test_two_source_nodes_end_in_words(edges):
    x = np.random.default_rng(0).normal(size=(20, 3))
    ends = np.array([[0, 2, 3], [1, 3, 4]]) if edges else np.empty((2, 0), dtype=int)
    graph = NodeGraph(x, ends, np.arange(20) >= 2)
    findings = analyse(detector("lp-pul").fit(graph), graph)
    assert findings.headline() == "Inconclusive: 2 source nodes are too few to learn from and to compare with."
    assert not findings.verdict.supported
    assert any("only 2 source nodes" in warning for warning in findings.diagnosis.warnings)


def test_one_new_node_is_listed_without_a_wrong_reason():
    findings, _ = found(SOURCE, {"new": 1}, grouped=False)
    assert "same score" not in findings.headline()
    assert findings.list_sentence() == "1 of 1 target node is listed."


def verdict_of(
    *, listed=0, low=0.0, holds_up_to=1.0, grown_clusters=(), fdr=None, max_fpr=0.01, withheld=(), calibration=5000
):
    """The verdict on 1,000 target nodes of which some are listed."""
    is_target = np.arange(1000 + calibration) < 1000
    fitted = SimpleNamespace(
        is_target_=is_target,
        calibration_=~is_target,
        calibrated_=True,
        scores_=np.linspace(0, 1, len(is_target)),
        region_=np.zeros(len(is_target), dtype=int),
        max_fpr=max_fpr,
    )
    share = NovelShare(max(low, 0.03), low, 0.21, 2.0, 0.95, holds_up_to)
    diagnosis = Diagnosis(0.2, tuple(grown_clusters), ())
    return decide(fitted, np.arange(len(is_target)) < listed, fdr, share, diagnosis, tuple(withheld), MIXED)


MIXED = SimpleNamespace(is_separable=False)
NOBODY = np.empty(0, dtype=np.int64)
GREW = Cluster(40, 300, 290, 0, 3.6, 2.87, "hose, soil", NOBODY)


def test_what_is_listed_by_chance_is_called_so():
    verdict = verdict_of(listed=12)
    assert (verdict.kind, verdict.stands_out) == ("nothing", False)
    assert verdict.sentence == "Nothing stands out among the 1,000 target nodes."
    assert verdict.advice.startswith("12 are listed, no more than expected by chance.")
    assert verdict_of(listed=1).advice.startswith("1 is listed, no more than expected by chance.")
    assert "listed" not in verdict_of().advice
    assert verdict_of(listed=25, holds_up_to=1.8).kind == "inconclusive"
    assert "would have to be 1.8 times as frequent as in the source" in verdict_of(listed=25, holds_up_to=1.8).advice
    assert verdict_of(listed=25).advice.startswith("Very little growth of known categories, or none,")
    by_fdr = verdict_of(listed=1, fdr=0.1, holds_up_to=1.8)  # by false-discovery rate, none by chance
    assert by_fdr.sentence.startswith("Inconclusive: 1 of 1,000 target nodes stands out, more than expected by chance.")
    # With few calibration nodes, chance lists more.
    assert verdict_of(listed=25, holds_up_to=1.8, calibration=100).kind == "nothing"


def test_as_many_as_by_chance_is_as_many_as_chance_lists():
    rng = np.random.default_rng(0)
    region, calibration_region = np.repeat([0, 1], [300, 700]), np.repeat([0, 1], [400, 120])
    most = most_by_chance(0.02, region, calibration_region)
    more = []
    for _ in range(1500):
        scores, calibration = rng.random(1000), rng.random(520)
        p = [p_values(scores[region == k], calibration[calibration_region == k]) for k in (0, 1)]
        more.append((np.concatenate(p) <= 0.02).sum() > most)
    assert 0.02 < np.mean(more) < 0.065


def test_what_is_new_comes_before_what_grew_and_does_not_need_a_list():
    assert verdict_of(listed=100, low=0.05, grown_clusters=[GREW]).kind == "novel"
    unlisted = verdict_of(low=0.05, fdr=0.01)
    assert unlisted.kind == "novel"
    assert unlisted.advice.endswith("ask for a higher false-discovery rate (fdr).")
    verdict = verdict_of(grown_clusters=[GREW] * 5)
    assert verdict.kind == "grown"
    assert verdict.sentence.count("known nodes like 'hose, soil' are 3.6 times as frequent") == 3
    assert "(95 % bound: at least 2.8 times; 40 source nodes)" in verdict.sentence
    unnamed = verdict_of(grown_clusters=[replace(GREW, name=None)])
    assert "known nodes of one cluster are 3.6 times" in unnamed.sentence


def test_nothing_is_said_of_target_nodes_that_cannot_be_listed():
    withheld = [Withheld("region 2", 40, 300)]
    assert verdict_of(withheld=withheld).sentence == (
        "Nothing stands out among the 700 target nodes that can be compared with enough source nodes (300 cannot)."
    )


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
    same = Cluster(500, 900, 500, 0, 1.0, 0.5, None, NOBODY)
    assert unevenness([same] * 2) == 0
    assert unevenness([replace(same, known=0), replace(same, source=0)]) > 0.9
    novel = replace(same, source=0, known=None, growth=None, listed=900)
    assert unevenness([same, same, novel]) == 0  # what is new is no shift of what is known
    assert unevenness([novel]) is None


def test_clusters_count_every_node_once():
    graph, _ = world(SOURCE, {"a": 100, "new": 100})
    fitted = recoslip.calibrate(DistanceToSource(), graph, rotations=3)
    clusters = find_clusters(fitted, Vectors.of(graph).summary(), fitted.select(), FeatureStatistics(graph))
    assert sorted(np.concatenate([cluster.members for cluster in clusters]).tolist()) == list(range(1100))
    assert sum(cluster.source for cluster in clusters) == 900
    assert sum(cluster.target for cluster in clusters) == 200
    assert sum(cluster.listed for cluster in clusters) == fitted.select().sum()
    for cluster in clusters:
        assert (cluster.known is None) == (cluster.growth is None) == (cluster.source < 10)
        assert cluster.known is None or cluster.known <= cluster.target


def test_without_a_shift_little_is_measured():
    measured = [found_unchanged(seed).diagnosis.unevenness for seed in range(8)]
    assert sum(unevenness < 0.1 for unevenness in measured) >= 7


@pytest.mark.parametrize(
    ("unevenness", "words"), [(0.05, "similar proportions"), (0.2, "shifted somewhat"), (0.5, "shifted strongly")]
)
def test_the_shift_is_said_in_three_ways(unevenness, words):
    said = Diagnosis(unevenness, (), ()).shift()
    assert words in said
    assert f"{100 * unevenness:.0f} % of the source nodes would have to change cluster" in said


def test_a_shift_of_nothing_known_is_not_estimated():
    assert "not estimated" in Diagnosis(None, (), ()).shift()


def test_a_cluster_that_grew_within_its_region_raises_what_the_share_allows_for():
    """One region for all, so that the growth is within it."""
    graph, kinds = world({"a": 90, "b": 450, "c": 460}, {"a": 400, "b": 60, "c": 50})
    fitted = recoslip.calibrate(DistanceToSource(random_state=0), graph, rotations=5)
    fitted.region_ = np.zeros(graph.num_nodes, dtype=int)
    findings = analyse(fitted, graph, grouped=False)
    assert findings.diagnosis.grown
    within = [growth_in_region(cluster, fitted.region_, fitted.is_target) for cluster in findings.diagnosis.grown]
    assert findings.novel_share.max_growth == max(within) > growth_within(10)
    own = (kinds == "a").astype(int)  # a region of its own: nothing grew within it
    assert growth_in_region(findings.diagnosis.grown[0], own, fitted.is_target) < 1.5


def test_rejected_proposals_are_told():
    fit = SimpleNamespace(proposal_rejected_=True)
    assert _fit_warnings(SimpleNamespace(fits=(fit,)))[0].startswith("In the fit, ")
    other = SimpleNamespace(proposal_rejected_=False)
    assert _fit_warnings(SimpleNamespace(fits=(fit, other, other)))[0].startswith("In 1 of 3 fits, ")
    assert _fit_warnings(SimpleNamespace(fits=(other, other))) == []


# Groups


def test_a_group_without_source_nodes_must_be_new_or_have_grown_much():
    findings, kinds = found_new()
    first = findings.groups[0]
    members = findings.partition.label == 1
    assert (kinds[members] == "new").mean() > 0.9
    assert first.name == "dates"
    assert first.evidence.source <= 2
    assert first.evidence.least_growth > 5
    assert "at least" in first.evidence.sentence()
    assert first.evidence.sentence().startswith(
        f"Of {first.evidence.target + first.evidence.source:,} nodes like these"
    )
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
    assert "Of 61 nodes like these, 30 are source" in Evidence(30, 31, 0.8).sentence()
    assert "times" not in Evidence(30, 31, 0.8).sentence()
    convincing = Evidence(1, 1200, 412.7).sentence()
    assert "Of 1,201 nodes like these, 1 " in convincing
    assert "at least 412 times as frequent" in convincing
    graph, kinds = world(SOURCE, {"a": 300, "b": 300})
    members = np.flatnonzero((kinds == "a") & graph.is_target)[:50]
    evidence = BinCounts.of(graph).evidence(members)
    assert evidence.least_growth < 2
    assert evidence.source > 100


def test_first_looks_take_turns_and_leave_out_groups_without_evidence():
    def group(exemplars, growth):
        return SimpleNamespace(exemplars=exemplars, evidence=None if growth is None else Evidence(0, 9, growth))

    groups = [group((1, 2, 3), 9.0), group((7, 8), 2.0), group((5,), 0.5), group((6,), None)]
    assert inspect_first(groups) == (1, 7, 2, 8, 3)
    assert inspect_first(groups, 2) == (1, 7)
    assert inspect_first([]) == ()


def test_one_kind_is_one_group_and_two_kinds_are_two():
    rng = np.random.default_rng(0)
    # A novel kind in two halves, nearer to each other than to any known one, and another one far from both.
    centres = {
        "known 1": (5, 0, 0, 0, 0),
        "known 2": (0, 5, 0, 0, 0),
        "new": (0, 0, 5, 1.2, 0),
        "half": (0, 0, 5, 0, 1.2),
    }
    kinds = np.repeat([*centres, "other"], 80)
    centres["other"] = (3, 3, 0, 0, 5)
    x = rng.normal([centres[kind] for kind in kinds], 0.15)
    graph = NodeGraph(x, np.empty((2, 0), dtype=int), np.arange(400) >= 160)
    listed = graph.is_target
    groups = find_groups(graph, listed)
    assert groups.count == 2
    assert len(np.unique(groups.label[np.isin(kinds, ("new", "half"))])) == 1


def test_groups_that_are_numbered_anew_keep_their_members():
    partition = Partition(np.array([1, 2, 2, 0, -1]), 2)
    assert partition.renumbered([2, 1]).label.tolist() == [2, 1, 1, 0, -1]


# What is listed, and with which guarantee


def test_the_list_is_counted_in_words():
    findings, _ = found_new()
    listed, targets = int(findings.listed.sum()), 620
    assert findings.list_sentence().startswith(f"{listed} of {targets} target nodes are listed")
    one = np.zeros_like(findings.listed)
    assert replace(findings, listed=one).list_sentence() == "None of the 620 target nodes is listed."
    one[np.flatnonzero(findings.listed)[0]] = True
    assert replace(findings, listed=one).list_sentence().startswith("1 of 620 target nodes is listed")


def test_regions_with_too_few_source_nodes_are_named():
    graph, _ = world({"a": 90, "b": 300}, {"a": 50, "b": 50})
    fitted = recoslip.calibrate(DistanceToSource(), graph, rotations=3)
    fitted.region_ = (graph.x.argmax(axis=1) == 0).astype(int)
    small = int((fitted.region_[:390] == 1).sum())
    features = FeatureStatistics(graph)
    withheld = withheld_regions(fitted, fitted.select(), None, features)
    inside = int((fitted.region_[390:] == 1).sum())
    assert withheld == (Withheld("region 2, 'apples'", small, inside),)
    words = guarantee(fitted, None, withheld, supported=True)
    assert words.startswith("Expected false-positive rate ≤ 1 %, assuming ")
    assert "in each of the 2 regions" in words
    assert words.endswith(f"region 2, 'apples': {small} source nodes for {inside} target nodes.")
    assert not fitted.select()[fitted.region_ == 1].any()


def test_by_false_discovery_rate_regions_reach_the_list_together():
    """No region of 100 nodes can be listed alone at 2 %, but all ten can."""
    region = np.repeat(np.arange(10), 200)
    is_target = np.tile(np.arange(200) < 100, 10)
    fitted = SimpleNamespace(
        is_target_=is_target, region_=region, calibration_=~is_target, calibrated_=True, max_fpr=0.01
    )
    features = SimpleNamespace(name=lambda nodes: None)
    nobody = np.zeros(2000, dtype=bool)
    assert withheld_regions(fitted, nobody, 0.02, features) == ()
    assert len(withheld_regions(fitted, nobody, 0.005, features)) == 10


def test_guarantees_name_their_assumption():
    graph, _ = world({"a": 200}, {"a": 50})
    fitted = recoslip.calibrate(DistanceToSource(max_fpr=0.05), graph, rotations=3)
    assumption = "assuming known target nodes are distributed as the hidden source nodes."
    assert guarantee(fitted, None, (), supported=True) == f"Expected false-positive rate ≤ 5 %, {assumption}"
    assert guarantee(fitted, 0.1, (), supported=True) == f"Expected false-discovery rate ≤ 10 %, {assumption}"


def test_fewer_regions_allow_for_more_growth():
    allowed = [growth_within(regions) for regions in range(1, 21)]
    assert allowed == sorted(allowed, reverse=True)
    findings, _ = found({"a": 100, "b": 100, "c": 100}, {"a": 100, "new": 30}, grouped=False)
    assert findings.novel_share.max_growth == growth_within(3)
    chosen, _ = found({"a": 100, "b": 100, "c": 100}, {"a": 100, "new": 30}, grouped=False, max_growth=3.0)
    assert chosen.novel_share.max_growth == 3


def test_nodes_without_names_have_no_names_for_groups():
    findings, _ = found(SOURCE, {"a": 100, "b": 300, "c": 100, "new": 120}, names=None)
    assert {group.name for group in findings.groups} == {None}
    assert {cluster.name for cluster in findings.diagnosis.clusters} == {None}


def test_the_terminal_says_what_the_page_says(tmp_path):
    findings, kinds = found_new()
    console = Console(file=StringIO(), width=10_000)
    print_result(Result.of(findings, seconds=1.0), tmp_path, console, False)
    printed = console.file.getvalue()
    for sentence in (findings.headline(), findings.verdict.advice, findings.list_sentence(), findings.guarantee):
        assert sentence in printed
    first = findings.groups[0]
    assert f"Group 1 ({first.size}, 'dates'): {first.evidence.sentence()}" in printed
    looked_at = printed.partition("Inspect these first: ")[2].partition("\n")[0].split(", ")
    assert set(kinds[[int(name) for name in looked_at]]) == {"new"}
