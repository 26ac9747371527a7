"""The same question one step earlier: content that always changed is drift, and a new category is not."""

import json
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from planted import YEARS, with_times

import recoslip
from recoslip.inference.earlier import FEWEST, LARGEST, LATE, MUCH, EarlierStep, earlier_step, lateness
from recoslip.inference.evidence import BinCounts


def with_other_times(graph, times):
    return recoslip.NodeGraph(
        graph.x, graph.edge_index, graph.is_target, categories=graph.categories, times=times, ids=graph.ids
    )


def step_of(graph, scores=None):
    """The earlier step where all scores are equal, or as given."""
    return earlier_step(graph, np.zeros(graph.num_nodes) if scores is None else scores)


def test_known_content_that_drifts_steadily_is_drift():
    for seed in range(5):
        result = recoslip.detect(with_times(seed, drifts=True), progress=False)
        assert result.verdict.kind == "drift"
        assert result.verdict.stands_out
        assert not result.verdict.supported  # nothing is promised of the list
        assert result.guarantee == "No statistical guarantee."
        assert result.novel_share is None
        assert result.summary["earlier_step"]["drifts"]
        assert result.summary["earlier_step"]["low"] > 0
        assert result.summary["earlier_step"]["holds_up_to"] > 3


def test_a_novel_category_without_drift_is_novel_and_nothing_stood_out_one_step_earlier():
    for seed in range(5):
        graph = with_times(seed, novel=True)
        result = recoslip.detect(graph, progress=False)
        assert result.verdict.kind == "novel"
        earlier = result.findings.earlier
        assert (earlier.low, earlier.drifts) == (0, False)
        assert earlier.sentence() in result.verdict.conditions
        listed = result.findings.listed
        assert (graph.categories[listed] == 4).mean() > 0.9


def test_without_drift_and_without_a_novel_category_nothing_earlier_is_asked():
    for seed in range(3):
        result = recoslip.detect(with_times(seed), progress=False)
        assert result.verdict.kind in ("nothing", "inconclusive")
        assert not result.verdict.stands_out
        assert result.summary["earlier_step"] is None


def test_the_step_goes_back_from_the_end_of_the_source_as_far_as_the_target_goes():
    graph = with_times(0)
    step = step_of(graph)
    own, later = graph.times[~graph.is_target], graph.times[graph.is_target]
    start = own.max() - (later.max() - later.min())
    assert step.target == (own >= start).sum()
    assert step.source == (own < start).sum()
    first, last = (float(end) for end in step.period.split(" to "))
    assert first == pytest.approx(own[own >= start].min(), abs=0.01)
    assert last == pytest.approx(own.max(), abs=0.01)


def test_the_step_is_what_the_source_alone_says():
    graph = with_times(1, drifts=True)
    step = step_of(graph)
    source = graph.subgraph(np.flatnonzero(~graph.is_target))
    bins = BinCounts.of(alone := source.with_target(np.argsort(np.argsort(source.times)) >= step.source))
    assert step.low == bins.bound(alone.is_target).new / step.target
    assert step.holds_up_to == bins.holds_up_to


def test_a_target_longer_than_the_source_leaves_a_quarter_of_it_to_compare_with():
    graph = with_times(0)
    stretched = with_other_times(graph, np.where(graph.is_target, 3 * graph.times, graph.times))
    step = step_of(stretched)
    assert step.target <= LARGEST * (step.source + step.target) + 1
    assert step.source >= FEWEST


def test_few_nodes_or_no_times_ask_nothing():
    graph = with_times(0)
    assert step_of(with_other_times(graph, None)) is None
    few = np.sort(np.concatenate([np.flatnonzero(~graph.is_target)[:150], np.flatnonzero(graph.is_target)]))
    assert step_of(graph.subgraph(few)) is None
    same = with_other_times(graph, np.where(graph.is_target, 2010.0, 2000.0))  # every source node has one time
    assert step_of(same) is None
    recoslip.detect(with_other_times(with_times(0, novel=True), None), progress=False)


def test_nodes_without_a_time_take_no_part():
    graph = with_times(0, drifts=True)
    missing = np.random.default_rng(0).random(900) < 0.1
    times = np.where(missing, np.nan, graph.times)
    step, known = step_of(with_other_times(graph, times)), np.flatnonzero(~missing)
    assert step.source + step.target == (~graph.is_target & ~missing).sum()
    without = step_of(graph.subgraph(known))
    assert (step.source, step.target, step.low) == (without.source, without.target, without.low)


@pytest.mark.parametrize("kind", ["datetime64", "text", "days"])
def test_dates_are_read_as_times(kind):
    graph = with_times(0, drifts=True)
    days = ((graph.times - 2000) * 365).astype(int)
    dates = [datetime(2000, 1, 1) + timedelta(days=int(day)) for day in days]
    times = {
        "datetime64": np.array(dates, dtype="datetime64[s]"),
        "text": np.array([date.isoformat() for date in dates]),
        "days": np.array([date.date().isoformat() for date in dates]),
    }[kind]
    step, by_number = step_of(with_other_times(graph, times)), step_of(with_other_times(graph, days))
    assert (step.source, step.target, step.low) == (by_number.source, by_number.target, by_number.low)
    source = sorted(date.date().isoformat() for date, later in zip(dates, graph.is_target, strict=True) if not later)
    assert step.period == f"{source[-step.target]} to {source[-1]}"


def test_the_order_of_rows_does_not_matter():
    graph = with_times(2, drifts=True)
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    assert step_of(graph.permuted(order)) == step_of(graph)


def test_a_table_with_a_time_column_ends_in_drift_and_a_saved_result_keeps_it(tmp_path):
    graph = with_times(0, drifts=True)
    names = [f"n{k}" for k in range(graph.num_nodes)]
    nodes = pl.DataFrame({"id": names, "year": graph.times, "era": np.where(graph.is_target, "late", "early")})
    nodes = nodes.with_columns(**{f"x{k}": graph.x[:, k] for k in range(graph.num_features)})
    ends = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    edges = pl.DataFrame({"a": np.array(names)[ends[0]], "b": np.array(names)[ends[1]]})
    later = float(graph.times[graph.is_target].min())
    result = recoslip.detect(nodes.drop("era"), edges, time="year", since=later, progress=False)
    assert result.verdict.kind == "drift"
    loaded = recoslip.load(result.save(tmp_path / "out"))
    assert loaded.verdict == result.verdict
    earlier = EarlierStep(**loaded.summary["earlier_step"])
    assert earlier == result.findings.earlier
    assert 2000 < float(earlier.period.split(" to ")[0]) < 2000 + 0.7 * YEARS
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["verdict"] == "drift"


def test_what_is_said_names_the_numbers():
    quiet = EarlierStep("2001 to 2002", 300, 1200, 0.0, 1.0, 1.6, True)
    assert "no difference was shown" in quiet.sentence()
    assert "1.6 times" in quiet.drift()
    loud = EarlierStep("2001 to 2002", 300, 1200, 0.041, 3.5, 1.0, True)
    for number in ("4.1 %", "1,200", "2001 to 2002"):
        assert number in loud.sentence()
    assert "4.1 %" in loud.drift()


# What went on since before


def test_lateness_is_a_ratio_of_frequencies_by_hand():
    time = np.arange(40.0)  # the last ten are late
    scores = np.zeros(40)
    scores[[0, 1, 2, 3, 30, 31, 32, 33]] = 1  # eight have high scores, half of them late
    ratio, is_significant = lateness(scores, time)
    assert ratio == (4 / 8) / (10 / 40)
    assert not is_significant  # four or more of eight by chance: 8 %
    scores[[3, 34]] = 0, 1  # five or more of eight: 1.6 %
    assert lateness(scores, time) == ((5 / 8) / (10 / 40), True)


def test_scores_without_times_are_late_by_chance_in_one_of_20_draws():
    rng = np.random.default_rng(0)
    found = np.array([lateness(rng.random(300), rng.random(300)) for _ in range(1000)])
    assert found[:, 1].mean() <= 0.05 + 0.02
    assert found[:, 1].mean() > 0.01
    assert found[:, 0].mean() == pytest.approx(1, abs=0.02)
    assert lateness(rng.random(300), np.zeros(300))[0] == 1  # one time
    assert lateness(np.zeros(300), rng.random(300)) == (1.0, False)  # one score


def test_content_that_came_up_within_the_source_is_drift_where_its_late_nodes_score_high():
    graph = with_times(0)
    late = (graph.times > np.quantile(graph.times[~graph.is_target], 1 - LATE)) & ~graph.is_target
    drawn = np.random.default_rng(0).random(graph.num_nodes)
    step = step_of(graph, np.where(late & (drawn < 0.5), 1.0, 0.9 * drawn))
    assert step.low == 0
    assert step.late > MUCH
    assert step.drifts
    quiet = step_of(graph, drawn)
    assert (quiet.low, quiet.drifts) == (0, False)
