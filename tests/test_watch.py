"""A watch: its test of counts, its sentences, its folder, its page and its command, on streams that are planted."""

import json
import math
import os
import re
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from fork_server import spread
from parsed_html import HOSTILE, ParsedHtml
from scipy.stats import binom
from sealed import seal

from recoslip import NodeGraph
from recoslip.base.errors import RecoslipError, SettingError, TableError, WatchError
from recoslip.base.files import output_lock, read_manifest
from recoslip.base.text import percent
from recoslip.data.ids import id_hashes
from recoslip.data.partitions import Partitions
from recoslip.inference.diagnosis import least_growth
from recoslip.products.watch import alarm
from recoslip.products.watch.alarm import FIRST, TREES, kinds_of, level, nodes_in
from recoslip.products.watch.page import render
from recoslip.products.watch.watch import Watch

COLUMNS = ("size", "weight", "price", "age", "speed", "glitter")
RARE, BORN, LATER = 4, 5, 6  # a known category that is rare, and two that are not known at first
CENTRES = np.zeros((7, 6))
CENTRES[:4, :4] = 6 * np.eye(4)
CENTRES[RARE, 4], CENTRES[BORN, 5], CENTRES[LATER, :5] = 8, 8, -6


def table(name, categories, *, seed=0, shift=0.0):
    """Nodes of the categories given, with ids like 'b1-5-017': batch, category, row."""
    categories = np.asarray(categories)
    x = CENTRES[categories] + np.random.default_rng([seed, len(categories)]).normal(size=(len(categories), 6)) + shift
    ids = [f"{name}-{category}-{row:03}" for row, category in enumerate(categories)]
    return pl.DataFrame({"id": ids, **{column: x[:, k] for k, column in enumerate(COLUMNS)}})


def category_of(ids):
    return np.array([int(node.rsplit("-", 2)[1]) for node in ids])


def edges_of(*frames, seed=0):
    """As many edges as nodes, within categories."""
    rng, ids = np.random.default_rng(seed), np.concatenate([frame["id"].to_numpy() for frame in frames])
    ends = []
    for category in np.unique(category_of(ids)):
        inside = ids[category_of(ids) == category]
        ends.append(rng.choice(inside, (2, len(inside))))
    left, right = np.hstack(ends)
    return pl.DataFrame({"a": left, "b": right})


def quiet(rows=150, seed=0):
    """Categories of a batch in which nothing changes."""
    return np.random.default_rng(seed).choice(4, rows)


def with_some(category, some, rows=150, seed=0):
    return [*quiet(rows - some, seed), *[category] * some]


KNOWN = table("k", [*quiet(1460, 99), *[RARE] * 40], seed=99)
KNOWN_EDGES = edges_of(KNOWN)
SMALL = table("k", quiet(300, 99), seed=99)


def batch(number, categories, **more):
    frame = table(f"b{number}", categories, seed=number, **more)
    return frame, edges_of(frame, seed=number)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun") / "state"
    Watch.begin(folder, KNOWN, KNOWN_EDGES, max_growth=3, window=2)
    return folder


@pytest.fixture(scope="module")
def small_begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "state"
    Watch.begin(folder, SMALL, edges_of(SMALL), max_growth=3, window=2)
    return folder


@pytest.fixture
def own(begun, tmp_path):
    """A watch of its own for a test."""
    return Watch(shutil.copytree(begun, tmp_path / "state"))


@pytest.fixture
def small(small_begun, tmp_path):
    return Watch(shutil.copytree(small_begun, tmp_path / "state"))


def contents(folder):
    """Return everything that a folder holds, beside the page."""
    state = Watch(folder).state
    document = json.loads((folder / "watch.json").read_text())
    x = state.nodes.x if isinstance(state.nodes.x, np.ndarray) else state.nodes.x.toarray()
    return document, state.nodes.table.rows(), x.tolist(), state.nodes.edge_index.tolist(), state.seen.tolist()


def files_in(folder):
    return {path.name: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@contextmanager
def nothing_changes(folder):
    before = files_in(folder)
    yield
    assert files_in(folder) == before
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]  # the lock is gone too


# The test of counts


def appearance(cells, is_recent, *, max_growth, at_level):
    """Test sets of nodes that are given one by one; `members` are the recent nodes of the one that stands out."""
    counts = np.array([[(~is_recent[cell]).sum(), is_recent[cell].sum()] for cell in cells], dtype=np.int64)
    sizes = int((~is_recent).sum()), int(is_recent.sum())
    found = alarm.appearance(counts.reshape(-1, 2), sizes, max_growth=max_growth, at_level=at_level)
    inside = np.empty(0, dtype=np.int64) if found.bin is None else cells[found.bin]
    return SimpleNamespace(**vars(found), members=inside[is_recent[inside]])


def by_hand(cells, is_recent, max_growth, at_level):
    """The lowest p-value times Tarone's count, with loops and without logarithms."""
    odds = max_growth * is_recent.sum() / (~is_recent).sum()
    pi = odds / (1 + odds)
    count = 1
    while sum(pi ** len(cell) <= at_level / count for cell in cells) > count:
        count += 1
    able = [cell for cell in cells if pi ** len(cell) <= at_level / count]
    tails = [binom.sf(is_recent[cell].sum() - 1, len(cell), pi) for cell in able]
    return min(1, count * min(tails)) if able else 1


def test_the_p_value_is_the_binomial_tail_times_the_number_of_cells_that_can_reach_the_level():
    is_recent = np.arange(100) >= 80
    cells = [np.arange(76, 90), np.arange(0, 10), np.arange(95, 100), np.array([99]), np.array([0, 99])]
    found = appearance(cells, is_recent, max_growth=1, at_level=0.01)
    # pi is 0.2. A cell of five can reach 0.2^5 = 0.00032, one of two 0.04: three cells of five count.
    assert found.p_value == pytest.approx(3 * binom.sf(9, 14, 0.2), rel=1e-9)
    assert found.p_value < 3 * 0.2**5  # of the pure cell of five
    assert found.members.tolist() == list(range(80, 90))
    assert found.least_members == 4  # 0.2^3 = 0.008 is above 0.01 / 3, and 0.2^4 below


def test_cells_that_are_too_small_to_reach_the_level_neither_count_nor_ring():
    is_recent = np.arange(100) >= 80
    large = np.arange(70, 90)
    alone = appearance([large], is_recent, max_growth=1, at_level=0.01)
    pairs = [np.array([80 + k, 99]) for k in range(19)]
    assert appearance([*pairs, large], is_recent, max_growth=1, at_level=0.01).p_value == alone.p_value
    assert appearance(pairs, is_recent, max_growth=1, at_level=0.01).p_value == 1
    assert not len(appearance(pairs, is_recent, max_growth=1, at_level=0.01).members)


@pytest.mark.parametrize("seed", range(8))
def test_the_p_value_is_the_same_by_hand_for_random_cells(seed):
    rng = np.random.default_rng(seed)
    is_recent = rng.random(400) < 0.15
    recent, other = np.flatnonzero(is_recent), np.flatnonzero(~is_recent)
    cells = [
        np.concatenate([rng.choice(recent, rng.integers(0, 20)), rng.choice(other, rng.integers(1, 40))])
        for _ in range(25)
    ]
    cells += [rng.choice(recent, size, replace=False) for size in (1, 2, 3, 6, 12)]
    for max_growth, at_level in [(1, 0.05), (3, 0.01), (20, 0.001)]:
        found = appearance(cells, is_recent, max_growth=max_growth, at_level=at_level)
        assert found.p_value == pytest.approx(by_hand(cells, is_recent, max_growth, at_level), rel=1e-9)
        assert is_recent[found.members].all()


@pytest.mark.parametrize("inside", [(60, 0), (60, 5), (30, 3)])
def test_growth_is_the_largest_that_still_rings(inside):
    is_recent = np.arange(1000) >= 900
    recent, earlier = inside
    cells = [np.arange(900 - earlier, 900 + recent)]
    found = appearance(cells, is_recent, max_growth=2, at_level=0.001)
    for factor, rings in [(0.99, True), (1.01, False)]:
        other = appearance(cells, is_recent, max_growth=found.growth * factor, at_level=0.001)
        assert (other.p_value <= 0.001) == rings


def test_growth_that_many_cells_share_is_never_too_large():
    """A growth that is higher makes fewer cells count, so that a little more may ring, and never less."""
    is_recent = np.arange(1000) >= 900
    cells = [np.arange(895, 960), *(np.arange(k, 1000, 20) for k in range(20)), *np.split(np.arange(1000), 100)]
    found = appearance(cells, is_recent, max_growth=2, at_level=0.001)
    assert found.growth > 2
    assert appearance(cells, is_recent, max_growth=found.growth * 0.99, at_level=0.001).p_value <= 0.001


@pytest.mark.parametrize("max_growth", [1, 3, 10])
def test_a_pure_cell_with_the_least_members_rings_and_with_one_fewer_does_not(max_growth):
    is_recent = np.arange(1000) >= 900
    others = [np.arange(k, 900, 9) for k in range(9)]  # without recent nodes: they count, and do not ring
    rings = {}
    for size in range(1, 100):
        found = appearance([*others, np.arange(900, 900 + size)], is_recent, max_growth=max_growth, at_level=0.01)
        rings[size] = found.p_value <= 0.01
        assert rings[size] == (size >= found.least_members)
    assert set(rings.values()) == {True, False}


def test_without_recent_nodes_or_cells_nothing_rings():
    nobody = np.zeros(100, dtype=bool)
    assert appearance([np.arange(50)], nobody, max_growth=3, at_level=0.01).p_value == 1
    assert appearance([], np.arange(100) > 50, max_growth=3, at_level=0.01).p_value == 1
    assert appearance([np.arange(50)], ~nobody, max_growth=3, at_level=0.01).p_value <= 1


def test_where_no_node_is_recent_no_number_of_members_is_said_to_ring():
    assert appearance([np.arange(50)], np.zeros(100, dtype=bool), max_growth=3, at_level=0.01).least_members != 0


def test_levels_fall_and_add_up_to_alpha():
    levels = np.array([level(number, 0.05) for number in range(1, 200_001)])
    assert (np.diff(levels) < 0).all()
    rest = 0.05 / alarm.SPENT * 2 / math.sqrt(200_001.5)  # the integral of what follows
    assert levels.sum() + rest == pytest.approx(0.05, rel=1e-6)
    assert levels.sum() < 0.05


# Three categories may be as much more frequent as is allowed; the others are rarer, so that the numbers of recent and
# of earlier nodes are what they are.
SIZES = np.array([100, 200, 50, 500, 1150])
GROWTH, ODDS = 3.0, 0.1


def recent_probability(growth):
    allowed = np.array([growth * ODDS, growth * ODDS, growth * ODDS, ODDS])
    fixed = allowed / (1 + allowed)
    rest = (SIZES.sum() * ODDS / (1 + ODDS) - (SIZES[:4] * fixed).sum()) / SIZES[4]
    assert 0 < rest < ODDS / (1 + ODDS)
    return np.append(fixed, rest)


def fraction_of_alarms(growth, draws=400, at_level=0.05):
    category = np.repeat(np.arange(5), SIZES)
    rng = np.random.default_rng(3)
    cells = [np.flatnonzero(category == k) for k in range(5)]
    cells += [rng.choice(np.flatnonzero(category == k), 20, replace=False) for k in range(5)]
    cells += [np.flatnonzero((category == k) & (rng.random(len(category)) < 0.4)) for k in (0, 1, 2)]
    cells += [rng.choice(len(category), size, replace=False) for size in (5, 30, 100, 400)]
    probability = recent_probability(growth)[category]
    alarms = 0
    for _ in range(draws):
        is_recent = rng.random(len(category)) < probability
        alarms += appearance(cells, is_recent, max_growth=GROWTH, at_level=at_level).p_value <= at_level
    return alarms / draws


def test_categories_that_grow_as_much_as_is_allowed_ring_no_more_often_than_promised():
    standard_error = math.sqrt(0.05 * 0.95 / 400)
    assert 0 < fraction_of_alarms(GROWTH) <= 0.05 + 3 * standard_error


def test_categories_that_grow_more_than_is_allowed_ring_often():
    assert fraction_of_alarms(2 * GROWTH, draws=100) > 0.5


@pytest.fixture(scope="module")
def pooled():
    frame = table("p", [*quiet(350, 1), *[BORN] * 50], seed=1)
    ends = edges_of(frame)
    position = {node: k for k, node in enumerate(frame["id"])}
    edge_index = np.array([[position[a], position[b]] for a, b in ends.rows()]).T
    x = frame.select(COLUMNS).to_numpy().astype(np.float32)
    return NodeGraph(x, np.hstack([edge_index, edge_index[::-1]]), np.arange(400) >= 350)


def grown(graph):
    return Partitions.of(graph, trees=TREES, first=FIRST)


def test_bins_are_the_same_whoever_is_recent(pooled):
    first = grown(pooled.with_features(pooled.x))
    for mask in (~pooled.is_target, np.random.default_rng(0).random(400) < 0.5, np.arange(400) < 3):
        other = grown(pooled.with_features(pooled.x).with_target(mask))
        np.testing.assert_array_equal(first.leaf, other.leaf)


def test_the_nodes_of_a_bin_are_those_that_are_counted_in_it(pooled):
    partitions = grown(pooled)
    counts = partitions.count(pooled.is_target.astype(int))
    for chosen in np.random.default_rng(0).choice(len(counts), 30):
        inside = nodes_in(partitions, chosen)
        assert [(inside & ~pooled.is_target).sum(), (inside & pooled.is_target).sum()] == counts[chosen].tolist()


def test_a_new_node_is_of_the_kind_of_the_earlier_nodes_around_it_and_of_a_group_by_a_majority_alone(pooled):
    own = np.arange(400) % 4 == 0
    truth = category_of(table("p", [*quiet(350, 1), *[BORN] * 50], seed=1)["id"].to_numpy())
    found = kinds_of(grown(pooled), np.where(own, -1, truth), own, first_group=BORN)
    assert (found == truth[own]).mean() > 0.95
    alone = np.where(truth == BORN, BORN, 0)  # a group whose nodes are all new: no earlier node votes for it
    assert set(kinds_of(grown(pooled), alone, truth == BORN, first_group=BORN)) == {0}


def test_a_table_with_few_different_rows_is_watched_without_warnings(tmp_path):
    known = pl.DataFrame({"id": [f"k{k}" for k in range(300)], "x": [1.0, 2.0, 3.0] * 100})
    watch = Watch.begin(tmp_path / "state", known)
    assert watch.add(known.head(60).with_columns(id="new" + pl.col("id"))).exit_code == 0


# A stream: two quiet batches, a category that is born with the third and rings with the fourth, and stays


STORY = {
    1: quiet(seed=1), 2: quiet(seed=2), 3: with_some(BORN, 11, seed=3), 4: with_some(BORN, 40, seed=4),
    5: with_some(BORN, 45, seed=5), 6: with_some(BORN, 60, seed=6),
}  # fmt: skip


@pytest.fixture(scope="module")
def story(begun, tmp_path_factory):
    """The outcomes by batch, and the state's folder at the end."""
    folder = shutil.copytree(begun, tmp_path_factory.mktemp("story") / "state")
    watch = Watch(folder)
    return {number: watch.add(*batch(number, categories)) for number, categories in STORY.items()}, folder


def test_quiet_batches_end_with_zero_and_say_what_would_ring(story):
    outcomes, _ = story
    for number, recent in [(1, 150), (2, 300), (3, 300)]:
        found = outcomes[number]
        assert (found.exit_code, found.alarm, found.group, found.again) == (0, False, None, False)
        assert found.batch.verdict == "nothing"
        least = found.batch.least_members
        assert list(STORY[number]).count(BORN) < least < 40
        assert found.batch.sentence == (
            "Nothing new: known categories that became up to 3.0 times as frequent explain where the nodes of the last "
            f"batches lie. To raise an alarm, a new category must hold at least {least} of the {recent} recent nodes "
            f"({percent(least / recent)})."
        )
        assert found.batch.p_value > found.batch.level == level(number, 0.05)


def test_a_category_that_is_born_rings_with_its_members_its_beginning_and_its_feature(story):
    outcomes, folder = story
    found = outcomes[4]
    assert (found.batch.verdict, found.alarm, found.exit_code) == ("new", True, 10)
    assert found.batch.p_value <= found.batch.level
    group = found.group
    born = category_of(group.members) == BORN
    assert born.mean() > 0.9
    assert born.sum() >= 0.9 * (11 + 40)
    assert (group.number, group.alarm, group.since, group.name, group.status) == (1, 4, 3, "high glitter", "open")
    assert group.size == len(group.members)
    assert group.growth > 3
    assert found.batch.sentence == (
        f"A new category has appeared: group 1, {group.size} nodes of the last 2 batches, 'high glitter', since batch "
        f"3. If they were known, such nodes would have become more than {math.floor(group.growth)} times as frequent; "
        f"the alarm allows for 3.0. Look at these first: {', '.join(group.members[:10])}."
    )
    assert found.to_dict()["group"]["members"] == group.members
    assert Watch(folder).state.groups == (group,)


def test_one_category_raises_one_alarm_which_stays_open_and_its_nodes_are_counted(story):
    outcomes, folder = story
    assert {outcomes[number].batch.verdict for number in (5, 6)} <= {"nothing", "grown"}
    assert [outcomes[number].group for number in (5, 6)] == [None, None]
    assert [outcomes[number].exit_code for number in (4, 5, 6)] == [10, 10, 10]
    assert [[group.number for group in outcomes[number].open_groups] for number in (3, 4, 5)] == [[], [1], [1]]
    by_batch = {each.number: each.counts.get("1001", 0) for each in Watch(folder).state.batches}
    for number, planted in [(0, 0), (1, 0), (3, 11), (4, 40), (5, 45), (6, 60)]:
        assert abs(by_batch[number] - planted) <= 0.1 * planted


def test_a_second_category_rings_as_a_second_group(story, tmp_path):
    _, folder = story
    watch = Watch(shutil.copytree(folder, tmp_path / "state"))
    found = watch.add(*batch(7, with_some(LATER, 60, seed=7)))
    assert (found.exit_code, found.group.number, found.group.since) == (10, 2, 7)
    assert (category_of(found.group.members) == LATER).mean() > 0.9
    assert [group.number for group in watch.state.groups] == [1, 2]


def test_a_batch_that_holds_nothing_but_a_category_that_rang_is_taken_in(tmp_path):
    watch = Watch.begin(tmp_path / "state", KNOWN, max_growth=3, window=1)
    assert watch.add(table("b1", with_some(BORN, 60))).exit_code == 10
    found = watch.add(table("b2", [BORN] * 60, seed=2))
    assert (found.batch.verdict, found.exit_code) == ("nothing", 10)
    assert "must hold at least 0 of" not in found.batch.sentence


def test_decisions_are_kept_and_shown(story, tmp_path):
    _, folder = story
    watch = Watch(shutil.copytree(folder, tmp_path / "state"))
    assert "open" in ParsedHtml((watch.folder / "report.html").read_text()).text_of["td"]
    assert watch.accept(1, "sequins").label == "sequins"
    (group,) = json.loads((watch.folder / "watch.json").read_text())["groups"]
    assert (group["status"], group["label"]) == ("accepted", "sequins")
    page = ParsedHtml((watch.folder / "report.html").read_text())
    assert "accepted as 'sequins'" in page.text_of["td"]
    assert "group 1: sequins" in page.text
    assert Watch(watch.folder).state.groups[0].status == "accepted"
    assert watch.add(*batch(7, with_some(BORN, 60, seed=7))).exit_code == 0
    assert watch.reject(1).status == "rejected"
    (group,) = json.loads((watch.folder / "watch.json").read_text())["groups"]
    assert (group["status"], group["label"]) == ("rejected", None)
    assert "rejected" in ParsedHtml((watch.folder / "report.html").read_text()).text_of["td"]
    assert watch.add(*batch(8, with_some(BORN, 60, seed=8))).exit_code == 0


def test_decisions_change_groups_and_nothing_else(story, tmp_path):
    _, folder = story
    watch = Watch(shutil.copytree(folder, tmp_path / "state"))
    before, *nodes = contents(watch.folder)
    for _ in range(3):
        watch.accept(1, "sequins")
    after, *same = contents(watch.folder)
    assert same == nodes
    assert {key: value for key, value in after.items() if key != "groups"} == {
        key: value for key, value in before.items() if key != "groups"
    }
    assert len(files_in(watch.folder)) == len(files_in(folder))


@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_group_that_is_not_there_cannot_be_decided_on(story, tmp_path, number):
    _, folder = story
    watch = Watch(shutil.copytree(folder, tmp_path / "state"))
    with nothing_changes(watch.folder):
        with pytest.raises(WatchError, match=f"there is no group {number}; there are: 1"):
            watch.accept(number, "x")
        with pytest.raises(WatchError, match="there is no group"):
            watch.reject(number)


def test_before_any_alarm_there_is_no_group(own):
    with pytest.raises(WatchError, match="there is no group 1; there are: none yet"):
        own.reject(1)


def test_a_known_category_that_grows_is_said_to_grow_and_does_not_ring(tmp_path):
    watch = Watch.begin(tmp_path / "state", KNOWN, KNOWN_EDGES, max_growth=10, window=1)
    found = watch.add(*batch(1, with_some(RARE, 20, seed=1)))  # of 40 in 1,500 to 20 in 150: five times
    assert (found.batch.verdict, found.exit_code, found.group) == ("grown", 0, None)
    (kind,) = [k for k, name in watch.state.kinds.items() if name == "high speed"]
    first, last = (each.counts[kind] for each in watch.state.batches)
    assert abs(first - 40) <= 2
    assert abs(last - 20) <= 2
    bound = least_growth(first, last, 1500, 150, 1 - 0.05 / len(watch.state.kinds))
    assert 2 <= bound < 5
    assert found.batch.sentence.startswith(
        f"What is known grows: in the last batch nodes like 'high speed' are at least "
        f"{math.floor(10 * bound) / 10:.1f} "
        "times as frequent as among the known nodes. Nothing new: known categories that became up to 10 times"
    )
    assert found.batch.sentence in ParsedHtml((watch.folder / "report.html").read_text()).text


def test_where_no_category_can_ring_that_is_said_and_none_rings(tmp_path):
    watch = Watch.begin(tmp_path / "state", SMALL, max_growth=300)
    found = watch.add(table("b1", [BORN] * 12))
    assert found.exit_code == 0
    assert found.batch.least_members > 12
    assert found.batch.sentence.endswith(
        "With so few earlier and recent nodes, no new category can raise an alarm yet, however large."
    )


def test_a_first_batch_from_another_world_is_told_apart_from_a_new_category(own):
    found = own.add(*batch(1, quiet(seed=1), shift=30.0))
    assert (found.batch.verdict, found.exit_code, found.alarm, found.group) == ("apart", 11, False, None)
    assert not own.state.groups
    assert found.batch.sentence.startswith("Inconclusive: nodes of ")
    assert found.batch.sentence in ParsedHtml((own.folder / "report.html").read_text()).text


def test_a_batch_from_another_world_after_quiet_ones_is_no_new_category(own):
    for number in (1, 2):
        assert own.add(*batch(number, quiet(seed=number))).exit_code == 0
    found = own.add(*batch(3, quiet(seed=3), shift=30.0))
    assert found.batch.verdict != "new", found.batch.sentence


def test_a_batch_from_another_world_after_an_alarm_is_not_called_quiet(own):
    assert own.add(*batch(1, with_some(BORN, 60, seed=1))).exit_code == 10
    found = own.add(*batch(2, quiet(seed=2), shift=30.0))
    assert found.exit_code != 0, found.batch.counts


def test_the_sentence_of_another_world_names_as_many_batches_as_have_come(own):
    found = own.add(*batch(1, quiet(seed=1), shift=30.0))
    assert found.batch.verdict == "apart"
    assert "the last 2 batches" not in found.batch.sentence


def test_an_open_alarm_is_in_every_outcome_and_on_the_page_until_it_is_decided(story, tmp_path):
    outcomes, folder = story
    assert "group 1 of batch 4 is still open" not in outcomes[4].sentence  # it is the alarm itself
    assert "group 1 of batch 4 is still open" in outcomes[5].sentence
    for number, decide in enumerate((lambda watch: watch.accept(1, "sequins"), lambda watch: watch.reject(1))):
        watch = Watch(shutil.copytree(folder, tmp_path / f"{number}"))
        page = ParsedHtml((watch.folder / "report.html").read_text())
        assert "still open" in page.text
        assert 'class="headline alarm"' in (watch.folder / "report.html").read_text()
        decide(watch)
        assert "still open" not in (watch.folder / "report.html").read_text()
        assert 'class="headline alarm"' not in (watch.folder / "report.html").read_text()
        again = watch.add(*batch(6, STORY[6]))
        assert (again.again, again.exit_code, again.alarm, again.sentence) == (True, 0, False, again.batch.sentence)
        assert watch.add(*batch(7, quiet(seed=7))).exit_code == 0


def test_a_batch_that_cannot_be_judged_has_its_own_code_and_names_the_open_alarm(own):
    assert own.add(*batch(1, with_some(BORN, 60, seed=1))).exit_code == 10
    found = own.add(*batch(2, quiet(seed=2), shift=30.0))
    assert (found.batch.verdict, found.exit_code, found.alarm) == ("apart", 11, True)
    assert "group 1 of batch 1 is still open" in found.sentence


def test_the_guarantee_names_the_settings_of_the_watch(tmp_path):
    watch = Watch.begin(tmp_path / "state", SMALL, alpha=0.01, max_growth=4.5, window=7)
    page = ParsedHtml((watch.folder / "report.html").read_text())
    (guarantee,) = [text for text in page.text_of["p"] if "false alarm" in text]
    assert {"1", "4.5", "7"} <= set(guarantee.split())
    assert "300 known nodes, then 0 nodes in 0 batches; 300 are kept." in page.text


def test_text_is_watched_too(tmp_path):
    def titled(name, bags, seed):
        rng = np.random.default_rng(seed)
        titles = [" ".join(rng.permutation(bag)[:3]) for bag in bags]
        return pl.DataFrame({"id": [f"{name}{k}" for k in range(len(titles))], "title": titles})

    hats, oils, tools = ["hat", "wool", "brim", "felt"], ["oil", "olive", "press", "grove"], ["hammer", "saw", "nail"]
    mixed = [[tool, *bag[:2]] for tool in tools for bag in (hats, oils)]  # every word is known, one tool at a time
    known = titled("k", [hats, oils] * 250 + mixed * 17, 0)
    watch = Watch.begin(tmp_path / "state", known, text=["title"], max_growth=2, window=1)
    assert watch.add(titled("a", [hats, oils] * 50, 1)).exit_code == 0
    found = watch.add(titled("b", [hats, oils] * 30 + [tools] * 60, 2))
    assert found.exit_code == 10
    assert sum(int(node[1:]) >= 60 for node in found.group.members) > 0.9 * found.group.size


# What is refused, with nothing changed


def test_the_last_batch_given_again_changes_nothing_and_ends_as_before(story, tmp_path):
    outcomes, folder = story
    watch = Watch(shutil.copytree(folder, tmp_path / "state"))
    frame, edges = batch(6, STORY[6])
    with nothing_changes(watch.folder):
        again = watch.add(frame.reverse(), edges)
    assert again.again
    assert again.to_dict() == outcomes[6].to_dict() | {"given_before": True}


def test_a_corrected_row_in_the_batch_given_again_is_refused_and_not_passed_over(own):
    frame, edges = batch(1, quiet(seed=1))
    own.add(frame, edges)
    corrected = frame.with_columns(price=pl.when(pl.int_range(pl.len()) == 7).then(99.0).otherwise("price"))
    with (
        nothing_changes(own.folder),
        pytest.raises(WatchError, match=r"150 ids came with batch 1 .* cannot be correct"),
    ):
        own.add(corrected, edges)
    assert own.add(frame, edges).again


def test_a_batch_that_rang_rings_again_when_it_is_given_again(own):
    assert own.add(*batch(1, with_some(BORN, 60))).exit_code == 10
    with nothing_changes(own.folder):
        again = own.add(*batch(1, with_some(BORN, 60)))
    assert (again.again, again.exit_code, again.group.number) == (True, 10, 1)


def test_ids_that_came_before_are_refused_by_the_name_of_their_batch(story, tmp_path):
    _, folder = story
    watch = Watch(shutil.copytree(folder, tmp_path / "state"))
    frame, _ = batch(7, quiet(seed=7))
    old = {"the known nodes": KNOWN.head(2), "batch 1": batch(1, STORY[1])[0].head(1), "batch 6": batch(6, STORY[6])[0]}
    for which, rows in old.items():
        both = pl.concat([frame, rows.head(5)])
        first = rows["id"][0]
        with (
            nothing_changes(watch.folder),
            pytest.raises(WatchError, match=f"{min(5, rows.height)} of {both.height} ids .* {which} .*'{first}'"),
        ):
            watch.add(both)


def test_a_whole_batch_that_came_earlier_and_the_known_world_are_refused(story, tmp_path):
    _, folder = story
    watch = Watch(shutil.copytree(folder, tmp_path / "state"))
    with nothing_changes(watch.folder), pytest.raises(WatchError, match="batch 2"):
        watch.add(*batch(2, STORY[2]))
    with nothing_changes(watch.folder), pytest.raises(WatchError, match="the known nodes"):
        watch.add(KNOWN)


def test_the_known_world_as_the_first_batch_is_refused(small):
    with nothing_changes(small.folder), pytest.raises(WatchError, match="300 of 300 ids came with the known nodes"):
        small.add(SMALL)


def test_ids_repeated_within_a_batch_are_refused(small):
    frame = table("b1", quiet(20))
    with nothing_changes(small.folder), pytest.raises(TableError, match=r"2 are repeated \(first: '.*000', '.*001'\)"):
        small.add(pl.concat([frame, frame.head(2)]))


@pytest.mark.parametrize("change", [
    lambda frame: frame.drop("price"),
    lambda frame: frame.rename({"id": "key"}),
    lambda frame: frame.with_columns(price=pl.lit("dear")),
    lambda frame: frame.with_columns(price=pl.lit(math.inf)),
    lambda frame: frame.clear(),
])  # fmt: skip
def test_a_batch_that_cannot_be_read_like_the_known_world_is_refused(small, change):
    with nothing_changes(small.folder), pytest.raises(RecoslipError):
        small.add(change(table("b1", quiet(20))))


def test_what_a_batch_lacks_is_filled_or_named_with_a_remedy_that_works(small, tmp_path):
    frame = table("b1", quiet(30))
    with (
        nothing_changes(small.folder),
        pytest.raises(WatchError, match=r"lacks 'price' in 30 rows; .*impute=True"),
    ):
        small.add(frame.drop("price"))
    assert Watch.begin(tmp_path / "all", SMALL, impute=True).add(frame.drop("price")).batch.nodes == 30
    assert Watch.begin(tmp_path / "values", SMALL).add(blank(frame)).batch.nodes == 30
    strict = Watch.begin(tmp_path / "strict" / "state", SMALL, impute=False)
    with nothing_changes(strict.folder), pytest.raises(WatchError, match=r"lacks 'price' in 3 rows; .*impute=True"):
        strict.add(blank(frame))


def blank(frame):
    return frame.with_columns(price=pl.when(pl.int_range(pl.len()) < 3).then(None).otherwise("price"))


def test_more_columns_than_the_known_world_had_are_passed_over(small):
    assert small.add(table("b1", quiet(50)).with_columns(more=pl.lit("x"))).exit_code == 0


@pytest.mark.parametrize("moments", [[10, 20, 30], [1.5, 2.5, 3.5], ["2024-01-31", "2024-02-01", "2024-11-01"]])
def test_batches_must_come_in_the_order_of_their_times(tmp_path, moments):
    watch = Watch.begin(tmp_path / "state", at(SMALL, moments[0]), time="when")
    assert "when" not in watch.state.encoding
    watch.add(at(table("b1", quiet(30)), moments[1]))
    late, other_type = table("b2", quiet(30), seed=2), "soon" if moments[0] in (10, 1.5) else 7
    for moment, message in [
        (moments[0], "give batches in their order"),
        (None, "in 30 rows"),
        (other_type, "batches held"),
    ]:
        with nothing_changes(watch.folder), pytest.raises(RecoslipError, match=message):
            watch.add(at(late, moment))
    watch.add(at(late, moments[1]))  # at the same time is in order
    watch.add(at(table("b3", quiet(30), seed=3), moments[2]))


def at(frame, moment):
    return frame.with_columns(when=moment if isinstance(moment, pl.Series) else pl.lit(moment))


@pytest.mark.parametrize("moment", [math.inf, -math.inf, math.nan])
def test_a_time_that_cannot_be_compared_is_refused_before_anything_is_written(tmp_path, moment):
    some = pl.Series([moment if k == 17 else 1.0 for k in range(300)])
    with pytest.raises(WatchError, match=r"'when' .*row 17"):
        Watch.begin(tmp_path / "state", at(SMALL, some), time="when")
    assert not list(tmp_path.iterdir())
    watch = Watch.begin(tmp_path / "state", at(SMALL, 1.0), time="when")
    with nothing_changes(watch.folder), pytest.raises(WatchError, match=r"'when' .*row 17"):
        watch.add(at(table("b1", quiet(30)), some.head(30)))
    assert watch.add(at(table("b1", quiet(30)), 2.0)).exit_code == 0


ZONE = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2024-05-01T12:00", "2024-05-01 23:00"),
        ("2024-05-01T23:00+02:00", "2024-05-01T22:00Z"),
        ("2024-05-01 22:30:00 UTC", "2024-05-02T01:00+02:00"),
        ("2024-05-01T23:59:59.25", "2024-05-02"),
        ("30.9.2024", "2024-10-01"),
        ("9/30/2024", "10/13/2024"),
        (date(2024, 9, 30), "2024-09-30T00:01"),
        (datetime(2024, 5, 1, 23, tzinfo=ZONE), "2024-05-01T22:00Z"),
        ("2024-05-01T22:00Z", datetime(2024, 5, 2, 1, tzinfo=ZONE)),
    ],
)
def test_times_of_batches_are_compared_as_instants(tmp_path, before, after):
    watch = Watch.begin(tmp_path / "state", at(SMALL, before), time="when")
    watch.add(at(table("b1", quiet(30)), after))
    with nothing_changes(watch.folder), pytest.raises(WatchError, match="give batches in their order"):
        watch.add(at(table("b2", quiet(30), seed=2), before))
    watch.add(at(table("b2", quiet(30), seed=2), after))


@pytest.mark.parametrize(
    ("before", "moment", "message"),
    [
        ("2024-05-01T12:00", "2024-05-02T12:00Z", "with an offset from UTC .* beside times without"),
        ("2024-05-01T12:00Z", "2024-05-02T12:00", "with an offset from UTC .* beside times without"),
        ("2024-09-30", "2024-10-1", "must hold numbers or dates such as 2007-01-31; got '2024-10-1'"),
        ("2024-09-30", pl.Series(["2024-10-01T00:00"] * 29 + ["2024-10-01T00:00Z"]), "beside times without"),
        ("2024-09-30", pl.Series([2**40] * 30).cast(pl.Datetime("ms")).dt.offset_by("9000y"), "got '11004-11-03"),
    ],
)
def test_times_that_cannot_be_compared_with_earlier_ones_are_refused(tmp_path, before, moment, message):
    watch = Watch.begin(tmp_path / "state", at(SMALL, before), time="when")
    with nothing_changes(watch.folder), pytest.raises(RecoslipError, match=message):
        watch.add(at(table("b1", quiet(30)), moment))


def test_times_in_nanoseconds_are_compared_to_the_nanosecond(tmp_path):
    first = 1_700_000_000_000_000_001
    watch = Watch.begin(tmp_path / "state", at(SMALL, first), time="when")
    watch.add(at(table("b1", quiet(30)), first + 2))
    with pytest.raises(WatchError, match="give batches in their order"):
        watch.add(at(table("b2", quiet(30), seed=2), first + 1))
    watch.add(at(table("b2", quiet(30), seed=2), first + 3))


def test_a_batch_without_the_time_column_is_refused(tmp_path):
    watch = Watch.begin(tmp_path / "state", SMALL.with_columns(when=1), time="when")
    with nothing_changes(watch.folder), pytest.raises(RecoslipError, match="when"):
        watch.add(table("b1", quiet(30)))


def test_edges_to_nodes_that_never_came_are_refused_unless_they_may_be_dropped(small):
    frame = table("b1", quiet(30))
    edges = pl.DataFrame({"a": [*frame["id"][:3]], "b": [frame["id"][5], "nobody", "k-0-999"]})
    message = r"name 2 ids that never came \(first: 'k-0-999', 'nobody'\).*drop_unknown=True"
    with nothing_changes(small.folder), pytest.raises(WatchError, match=message):
        small.add(frame, edges)
    small.add(frame, edges, drop_unknown=True)
    new = small.state.nodes.edge_index[:, small.state.nodes.edge_index.max(axis=0) >= 300]
    assert new.tolist() == [[300], [305]]


def test_edges_to_nodes_that_never_came_are_not_said_to_lead_to_nodes_no_longer_kept(small):
    frame = table("b1", quiet(30))
    edges = pl.DataFrame({"a": [*frame["id"][:3]], "b": [frame["id"][5], "nobody", "k-0-999"]})
    assert small.add(frame, edges, drop_unknown=True).batch.lost_edges == 0


def test_edges_reach_earlier_nodes_and_each_counts_once_however_often_it_is_given(small):
    first, second = table("b1", quiet(40)), table("b2", quiet(40), seed=2)
    near = pl.DataFrame({"a": [first["id"][0], first["id"][1]], "b": [SMALL["id"][7], first["id"][2]]})
    small.add(first, near)
    more = pl.DataFrame(
        {"a": [second["id"][0], SMALL["id"][7], first["id"][3]], "b": [first["id"][0], *second["id"][:2]]}
    )
    small.add(second, pl.concat([near, near.select(a="b", b="a"), more]))
    edges = small.state.nodes.edge_index
    ids = small.state.nodes.table["id"].to_numpy()
    found = [tuple(sorted(pair)) for pair in ids[edges].T.tolist()]
    assert set(found) >= {tuple(sorted(pair)) for pair in (*near.rows(), *more.rows())}
    assert len(found) == len(set(found))


def test_so_many_earlier_nodes_are_kept_as_allowed_and_always_the_same_part(tmp_path):
    watch = Watch.begin(tmp_path / "state", KNOWN, KNOWN_EDGES, max_growth=3, window=2, keep=500)
    lowest = KNOWN["id"].to_numpy()[np.argsort(id_hashes(KNOWN["id"].to_list()).view(np.uint64))[:500]]
    assert set(watch.state.nodes.table["id"]) == set(lowest)
    shuffled = KNOWN.sample(fraction=1, shuffle=True, seed=1)
    assert set(Watch.begin(tmp_path / "other", shuffled, window=2, keep=500).state.nodes.table["id"]) == set(lowest)
    kept = set(lowest)
    for number in (1, 2, 3, 4):
        watch.add(*batch(number, quiet(seed=number)))
        now = watch.state.nodes.table
        earlier = now.filter((pl.col("batch") == 0) | (pl.col("batch") <= number - 1))
        assert earlier.height <= 500
        assert now.height <= 500 + 2 * 150
        assert set(now.filter(pl.col("batch") == 0)["id"]) <= kept
        kept = set(now.filter(pl.col("batch") == 0)["id"])
        assert now.filter(pl.col("batch") == number).height == 150
    found = watch.add(*batch(5, with_some(BORN, 60, seed=5)))
    assert found.exit_code == 10
    assert (category_of(found.group.members) == BORN).mean() > 0.9


def test_edges_to_nodes_that_are_no_longer_kept_are_counted(tmp_path):
    watch = Watch.begin(tmp_path / "state", SMALL, keep=100)
    kept = watch.state.nodes.table["id"]
    gone = SMALL.filter(~pl.col("id").is_in(kept.implode()))["id"]
    assert (len(kept), len(gone)) == (100, 200)
    frame = table("b1", quiet(30))
    edges = pl.DataFrame({"a": frame["id"][:12], "b": [*kept[:5], *gone[:7]]})
    assert watch.add(frame, edges).batch.lost_edges == 7
    assert json.loads((watch.folder / "watch.json").read_text())["batches"][1]["lost_edges"] == 7
    assert (watch.state.nodes.edge_index.max(axis=0) >= 100).sum() == 5


# Where a watch begins


def test_fewer_than_a_hundred_known_nodes_are_refused(tmp_path):
    with pytest.raises(WatchError, match="needs 100 known nodes at least; got 99"):
        Watch.begin(tmp_path / "state", SMALL.head(99))
    assert not list(tmp_path.iterdir())
    Watch.begin(tmp_path / "state", SMALL.head(100))


def test_a_watch_begins_in_a_new_or_an_empty_folder_alone(small, tmp_path):
    with nothing_changes(small.folder), pytest.raises(WatchError, match="is not empty; begin a watch in a new folder"):
        Watch.begin(small.folder, SMALL)
    other = tmp_path / "other"
    other.mkdir()
    Watch.begin(other, SMALL)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("Dear")
    with pytest.raises(WatchError, match="is not empty"):
        Watch.begin(foreign, SMALL)
    assert files_in(foreign) == {"letter.txt": b"Dear"}


def test_a_file_is_no_folder_for_a_watch(tmp_path):
    (tmp_path / "letter.txt").write_text("Dear")
    with pytest.raises(RecoslipError):
        Watch.begin(tmp_path / "letter.txt", SMALL)
    with pytest.raises(RecoslipError):
        Watch(tmp_path / "letter.txt")


@pytest.mark.parametrize(
    "wrong",
    [{"alpha": 0}, {"alpha": 1}, {"alpha": math.nan}, {"max_growth": 0.5}, {"max_growth": math.inf}, {"window": 0},
     {"window": 1.5}, {"keep": 99}, {"time": "nowhen"}, {"id": "nobody"}, {"features": ["nothing"]}],
)  # fmt: skip
def test_wrong_settings_are_refused_and_leave_nothing(tmp_path, wrong):
    with pytest.raises((SettingError, TableError)):
        Watch.begin(tmp_path / "state", SMALL, **wrong)
    assert not list(tmp_path.iterdir())


def test_edges_of_the_known_world_to_others_are_refused_unless_they_may_be_dropped(tmp_path):
    edges = pl.DataFrame({"a": [SMALL["id"][0], SMALL["id"][0]], "b": ["nobody", SMALL["id"][1]]})
    with pytest.raises(WatchError, match=r"1 ids that never came \(first: 'nobody'\)"):
        Watch.begin(tmp_path / "state", SMALL, edges)
    assert not list(tmp_path.iterdir())
    watch = Watch.begin(tmp_path / "state", SMALL, edges, drop_unknown=True)
    assert watch.state.nodes.edge_index.tolist() == [[0], [1]]


def test_a_folder_without_a_watch_is_said_to_hold_none(tmp_path):
    with pytest.raises(WatchError, match="holds no watch; begin one with the nodes that are known"):
        Watch(tmp_path)


# The folder, after kills, full disks, damage and forgery


NEXT = (*batch(1, with_some(BORN, 25, 60)),)


@pytest.fixture(scope="module")
def added(small_begun, tmp_path_factory):
    """The folder of a watch after a batch that nothing interrupted."""
    folder = shutil.copytree(small_begun, tmp_path_factory.mktemp("added") / "state")
    assert Watch(folder).add(*NEXT).exit_code == 10
    return folder


def left_over(folder):
    return sorted(set(files_in(folder)) - set(read_manifest(folder).files) - {"recoslip.json"})


@pytest.fixture(scope="module")
def killed(forked, small_begun, added, tmp_path_factory):
    """What a kill right before a change of the file system leaves, and what the same batch makes of it then.

    Many changes, and all of the last, where the new state takes the place of the old one.
    """
    root = tmp_path_factory.mktemp("killed")
    NEXT[0].write_csv(root / "nodes.csv")
    NEXT[1].write_csv(root / "edges.csv")
    old, new = contents(small_begun), contents(added)
    found = []
    tables = ["--nodes", root / "nodes.csv", "--edges", root / "edges.csv"]
    changes = forked.count_changes("watch", shutil.copytree(small_begun, root / "counted"), *tables)
    for change in spread(changes, 8, 8):
        folder = shutil.copytree(small_begun, root / f"{change}" / "state")
        ended = forked.run("watch", folder, *tables, kill_at_change=change)
        assert ended.killed, ended.stderr
        left = contents(folder)
        outcome = Watch(folder).add(NEXT[0], NEXT[1])
        found.append(
            {
                "change": change,
                "left": "old" if left == old else "new" if left == new else "neither",
                "code": outcome.exit_code,
                "same": contents(folder) == new,
                "page": (folder / "report.html").read_text() == (added / "report.html").read_text(),
                "extra": left_over(folder),
            }
        )
    return found


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_the_old_state_or_the_new_one(killed):
    assert len(killed) >= 12
    left = [each["left"] for each in killed]
    assert left == sorted(left, reverse=True)  # old, then new
    assert set(left) == {"old", "new"}


@pytest.mark.slow
def test_after_a_kill_at_any_step_the_same_batch_leads_to_the_state_without_a_kill(killed):
    assert [each["change"] for each in killed if not each["same"] or each["code"] != 10] == []


@pytest.mark.slow
def test_after_a_kill_at_any_step_and_the_same_batch_again_the_page_is_that_of_the_state(killed):
    assert [each["change"] for each in killed if not each["page"]] == []


@pytest.mark.slow
def test_after_a_kill_at_any_step_and_the_same_batch_again_no_file_is_left_over(killed):
    assert {each["change"]: each["extra"] for each in killed if each["extra"]} == {}


@pytest.mark.slow
def test_a_watch_whose_beginning_was_killed_can_be_begun(forked, tmp_path):
    SMALL.write_csv(tmp_path / "nodes.csv")
    refused = {}
    for change in range(0, 1000, 5):
        command = ["watch", tmp_path / f"{change}", "--begin", "--nodes", tmp_path / "nodes.csv"]
        if not forked.run(*command, kill_at_change=change).killed:
            break
        if not (tmp_path / f"{change}" / "watch.json").exists() and (again := forked.run(*command)).returncode:
            refused[change] = again.stderr
    assert change > 10
    assert refused == {}


@pytest.mark.parametrize("step", range(7))
def test_a_disk_that_fails_at_any_file_leaves_the_old_state_or_the_new_one(
    small, small_begun, added, monkeypatch, step
):
    place, calls = Path.replace, []

    def fails(path, target):
        calls.append(target)
        if len(calls) > step:  # from here on
            raise OSError(28, "No space left on device")
        return place(path, target)

    monkeypatch.setattr(Path, "replace", fails)
    if step < 6:
        with pytest.raises(RecoslipError, match="No space left"):
            small.add(*NEXT)
        monkeypatch.undo()
        assert contents(small.folder) == contents(
            added
        )  # complete when it failed, so that the next command completes it
        assert not left_over(small.folder)
    assert Watch(small.folder).add(*NEXT).exit_code == 10
    assert contents(small.folder) == contents(added)


def test_a_full_disk_leaves_the_old_state(small, small_begun, added, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(RecoslipError, match="No space left"):
            small.add(*NEXT)
    assert files_in(small.folder) == files_in(small_begun)
    assert Watch(small.folder).add(*NEXT).exit_code == 10
    assert contents(small.folder) == contents(added)


OWN = ("nodes-2025-final.xlsx", "seen-by-customs.txt", "nodes-000007.parquet", ".nodes-x", ".watch.json-draft", "n.csv")


def test_no_file_of_the_users_is_removed_by_a_beginning_a_batch_or_a_decision(small, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    for folder in (own, small.folder):
        for name in OWN:
            (folder / name).write_bytes(b"mine")
    SMALL.write_csv(own / "nodes-2025.csv")
    before = files_in(own)
    with pytest.raises(WatchError, match="is not empty"):
        Watch.begin(own, own / "nodes-2025.csv")
    assert files_in(own) == before
    assert small.add(*NEXT).exit_code == 10
    small.reject(1)
    assert {name: (small.folder / name).read_bytes() for name in OWN} == dict.fromkeys(OWN, b"mine")


def test_a_file_of_the_users_in_the_place_of_one_of_the_watch_stops_it_and_stays(small, added):
    for name in ("seen.safetensors", "report.html", "watch.json"):
        kept = (small.folder / name).read_bytes() if (small.folder / name).exists() else None
        (small.folder / name).write_bytes(b"mine")
        before = files_in(small.folder)
        with pytest.raises(RecoslipError):
            small.add(*NEXT)
        assert files_in(small.folder) == before
        (small.folder / name).rename(small.folder / f"moved-{name}")  # as the message says
        if name != "report.html":
            (small.folder / name).write_bytes(kept)
    assert small.add(*NEXT).exit_code == 10
    assert contents(small.folder) == contents(added)


def test_two_processes_do_not_write_one_watch_at_once(small):
    ready, done = threading.Event(), threading.Event()

    def hold():
        with output_lock(small.folder):
            ready.set()
            done.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert ready.wait(60)
        before = files_in(small.folder)
        for refused in (
            lambda: small.add(*NEXT),
            lambda: small.accept(1, "x"),
            lambda: Watch.begin(small.folder, SMALL),
        ):
            with pytest.raises(RecoslipError, match="another process"):
                refused()
        assert files_in(small.folder) == before
    finally:
        done.set()
        other.join()
    assert small.add(*NEXT).exit_code == 10


def test_two_watches_in_turn_see_what_the_other_wrote(small):
    other = Watch(small.folder)
    small.add(*NEXT)
    assert other.add(*batch(2, quiet(60, 2))).batch.number == 2
    assert small.add(*batch(3, quiet(60, 3))).batch.number == 3


@pytest.mark.parametrize("version", [1, 2, "3", None, 2.5, [3]])
def test_another_version_of_a_state_is_refused(added, tmp_path, version):
    folder = shutil.copytree(added, tmp_path / "state")
    change_document(folder, lambda document: document.update(version=version))
    with pytest.raises(WatchError, match="use the recoslip that wrote it"):
        Watch(folder)


def change_document(folder, change):
    document = json.loads((folder / "watch.json").read_text())
    change(document)
    (folder / "watch.json").write_text(json.dumps(document))
    seal(folder)


def change_files(folder, change):
    """Change which files the manifest names."""
    files = dict(read_manifest(folder).files)
    change(files)
    (folder / "recoslip.json").write_bytes(read_manifest(folder)._replace(files=files).content())


def test_every_truncated_or_changed_file_is_noticed(added, tmp_path):
    rng = np.random.default_rng(0)
    for name, content in files_in(added).items():
        if name in ("report.html", "recoslip.json"):
            continue
        for attempt in range(12):
            folder = shutil.copytree(added, tmp_path / f"{name}{attempt}")
            if attempt < 4:
                wrong = content[: len(content) * attempt // 4]
            elif attempt == 4:
                wrong = content + b"x"
            else:
                position = int(rng.integers(len(content)))
                wrong = content[:position] + bytes([content[position] ^ 0x81]) + content[position + 1 :]
            (folder / name).write_bytes(wrong)
            with pytest.raises(WatchError):
                Watch(folder)
        if name != "watch.json":
            folder = shutil.copytree(added, tmp_path / f"{name} missing")
            (folder / name).unlink()
            with pytest.raises(WatchError, match=r"is damaged: .* is missing"):
                Watch(folder)


@pytest.mark.parametrize("content", [
    b"", b"null", b"[]", b"{", b'"text"', b"\xff\xfe", b"1" * 10_000, b"[" * 100_000, b'{"format": "recoslip watch"}',
    b'{"format": "recoslip watch", "version": 1}', b'{"version": 1}',
])  # fmt: skip
def test_another_document_is_refused(added, tmp_path, content):
    folder = shutil.copytree(added, tmp_path / "state")
    (folder / "watch.json").write_bytes(content)
    with pytest.raises(WatchError):
        Watch(folder)


FORGED = {
    "a setting fewer": lambda d: d["settings"].pop("alpha"),
    "no encoding": lambda d: d.update(encoding=None),
    "an encoding of another kind": lambda d: d["encoding"].update(glitter=7),
    "a batch of text": lambda d: d["batches"].__setitem__(1, "x"),
    "a group of null": lambda d: d.update(groups=[None]),
}  # fmt: skip

FORGED_FILES = {
    "no files": lambda files: files.clear(),
    "a file elsewhere": lambda files: files.update({"../../etc/passwd": (1, "a")}),
    "a file fewer": lambda files: files.pop("seen.safetensors"),
    "another hash": lambda files: files.update({"watch.json": (files["watch.json"][0], "a")}),
}


@pytest.mark.parametrize("name", FORGED_FILES)
def test_a_forged_manifest_is_refused_before_a_batch_is_taken_in(added, tmp_path, name):
    folder = shutil.copytree(added, tmp_path / "state")
    change_files(folder, FORGED_FILES[name])
    with nothing_changes(folder), pytest.raises(WatchError):
        Watch(folder).add(*batch(2, quiet(60, 2)))


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_document_is_refused_before_a_batch_is_taken_in(added, tmp_path, name):
    folder = shutil.copytree(added, tmp_path / "state")
    change_document(folder, FORGED[name])
    with nothing_changes(folder), pytest.raises(WatchError):
        Watch(folder).add(*batch(2, quiet(60, 2)))


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_link_a_pipe_or_a_folder_in_place_of_a_file_is_refused(added, tmp_path):
    for name in ("watch.json", "seen.safetensors"):
        for kind in ("link", "pipe", "folder"):
            folder = shutil.copytree(added, tmp_path / f"{name} {kind}")
            moved = (folder / name).rename(tmp_path / f"{name} of {kind}")
            if kind == "link":
                (folder / name).symlink_to(moved)
            elif kind == "pipe":
                os.mkfifo(folder / name)
            else:
                (folder / name).mkdir()
            with pytest.raises(WatchError):
                Watch(folder)


# The page


def test_the_page_names_every_group_and_batch(story, tmp_path):
    outcomes, folder = story
    watch = Watch(shutil.copytree(folder, tmp_path / "state"))
    outcomes = outcomes | {7: watch.add(*batch(7, with_some(LATER, 60, seed=7)))}
    page = ParsedHtml((watch.folder / "report.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    for outcome in outcomes.values():
        assert outcome.batch.sentence in page.text
    for group in watch.state.groups:
        assert f"group {group.number}: {group.name or 'new'}" in page.text
        assert f"{group.size} at batch {group.alarm}, since batch {group.since}" in page.text
        assert ", ".join(group.members[:10]) in page.text
    assert "1,500 known nodes, then 1,050 nodes in 7 batches" in page.text
    assert f"{len(watch.state.nodes):,} are kept." in page.text
    sentences = [text for text in page.text_of["td"] if text in {each.batch.sentence for each in outcomes.values()}]
    assert sentences[0] == outcomes[7].batch.sentence  # the last batch first


def named_nodes(frame):
    return frame.with_columns(title="Hat " + pl.col("id"))


def test_nodes_are_called_by_their_labels_in_the_sentence_and_on_the_page(tmp_path):
    watch = Watch.begin(tmp_path / "state", named_nodes(SMALL), max_growth=3, window=2, ignore=["title"])
    assert watch.state.settings.label == "title"  # as in a report, a column that is plainly a name
    found = watch.add(named_nodes(NEXT[0]).drop("title"), NEXT[1])
    assert found.group.shown == found.group.members[:10]  # where a batch has none, ids stand in
    folder = tmp_path / "other"
    watch = Watch.begin(folder, named_nodes(SMALL), max_growth=3, window=2, label="title", ignore=["title"])
    found = watch.add(named_nodes(NEXT[0]), NEXT[1])
    assert found.group.shown == [f"Hat {node}" for node in found.group.members[:10]]
    assert ", ".join(found.group.shown) in found.sentence
    assert ", ".join(found.group.shown) in ParsedHtml((folder / "report.html").read_text()).text_of["td"]


def test_what_is_remembered_has_a_bounded_size(small, monkeypatch):
    monkeypatch.setattr("recoslip.products.watch.state.MAX_BATCHES", 2)
    monkeypatch.setattr("recoslip.products.watch.state.MAX_SEEN", 400)
    for number in range(1, 6):
        small.add(*batch(number, quiet(60, number)))
    assert [each.number for each in small.state.batches] == [0, 4, 5]
    assert small.state.batches[-1].came == 300
    assert small.state.seen.shape == (2, 400)
    assert "then 300 nodes in 5 batches" in (small.folder / "report.html").read_text()
    assert sorted(path.name for path in small.folder.iterdir()) == sorted(
        ["recoslip.json", "watch.json", "report.html", "nodes.parquet", "nodes.safetensors", "seen.safetensors"]
    )
    with pytest.raises(WatchError, match="with batch 2"):
        small.add(*batch(2, quiet(60, 2)))


def test_the_nodes_of_an_open_group_are_neither_earlier_nor_recent_ones(own):
    assert own.add(*batch(1, with_some(BORN, 60, seed=1))).exit_code == 10
    first = own.state.batches[-1].least_members
    for number in (2, 3, 4):
        own.add(*batch(number, with_some(BORN, 60, seed=number)))
    assert own.state.nodes.table.filter(pl.col("kind") >= 1000).height >= 200
    least = own.state.batches[-1].least_members
    assert least == pytest.approx(first, abs=6)  # the allowance depends on the sizes of what is counted alone
    found = own.add(*batch(5, with_some(LATER, 45, seed=5)))
    assert (found.batch.verdict, found.group.number) == ("new", 2)


def test_the_policy_of_the_page_allows_its_styles_alone(own):
    page = ParsedHtml((own.folder / "report.html").read_text(encoding="utf-8"))
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == rules["script-src"] == rules["connect-src"] == "'none'"
    assert rules["style-src"].count("'sha256-") == len(page.text_of["style"])
    assert "unsafe" not in page.policy


@pytest.mark.parametrize("hostile", HOSTILE)
def test_whatever_ids_columns_and_labels_are_called_the_page_shows_it_as_text(story, hostile):
    _, folder = story
    state = Watch(folder).state
    plain = ParsedHtml(render(state))
    (group,) = state.groups
    ids = [f"{hostile}{k}" for k in range(12)]
    named = replace(group, name=hostile, members=ids, shown=ids[:10])
    last = replace(state.batches[-1], sentence=f"Batch of {hostile}")
    changed = replace(
        state, groups=(named,), batches=(*state.batches[:-1], last), kinds=dict.fromkeys(state.kinds, hostile)
    )
    page = ParsedHtml(render(changed))
    assert page.tags == plain.tags
    assert {hostile, ", ".join(ids[:10]), last.sentence} <= set(page.text_of["td"])
    assert last.sentence in page.text_of["strong"]
    assert f"group 1: {hostile}" in page.text
    accepted = ParsedHtml(render(replace(changed, groups=(replace(named, status="accepted", label=hostile),))))
    assert f"accepted as {hostile!r}" in accepted.text_of["td"]
    assert accepted.tags == plain.tags


def test_the_page_fits_a_phone(story, browser, tmp_path):
    _, folder = story
    state = Watch(folder).state
    (group,) = state.groups
    words = replace(group, shown=["a title of many words, such as those that people write" * 3] * 10, name="x" * 200)
    (tmp_path / "report.html").write_text(render(replace(state, groups=(words,))), encoding="utf-8")
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.goto((tmp_path / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()


def test_the_page_does_not_round_a_bound_up(story):
    _, folder = story
    state = Watch(folder).state
    page = render(replace(state, groups=(replace(state.groups[0], growth=12.7),)))
    assert "more than 13 times" not in page


# The command


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    KNOWN.write_csv(folder / "known.csv")
    KNOWN_EDGES.write_csv(folder / "known_edges.csv")
    streams = {"quiet": quiet(seed=1), "born": with_some(BORN, 60, seed=2), "apart": quiet(seed=3)}
    for number, (name, categories) in enumerate(streams.items(), 1):
        frame, edges = batch(number, categories, shift=30.0 if name == "apart" else 0.0)
        frame.write_csv(folder / f"{name}.csv")
        edges.write_csv(folder / f"{name}_edges.csv")
    return folder


BEGIN = ["--begin", "--nodes", "known.csv", "--edges", "known_edges.csv", "--max-growth", "3", "--window", "1"]


@pytest.fixture
def command(forked, tables, tmp_path):
    """Run `recoslip watch` on one state, and return the words of what it says."""

    def run(*arguments, code=0):
        ended = forked.run("watch", tmp_path / "state", *arguments, cwd=tables)
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr
        return ended.stdout if "--json" in arguments else " ".join((ended.stdout + ended.stderr).split())

    return run


def given(name):
    return ["--nodes", f"{name}.csv", "--edges", f"{name}_edges.csv"]


def test_a_stream_is_watched_by_one_command_per_batch(command, tmp_path):
    assert "The watch has begun" in command(*BEGIN)
    said = command(*given("quiet"))
    assert said.startswith("Batch 1, 150 nodes. Nothing new: ")
    assert str(tmp_path / "state" / "report.html") in said
    assert "Inconclusive: " in command(*given("apart"), code=11)
    said = command(*given("born"), code=10)
    assert said.startswith("Batch 3, 150 nodes. A new category has appeared: group 1, ")
    assert "'high glitter'" in said
    said = command(*given("born"), code=10)
    assert "given before, as batch 3; nothing was changed" in said
    decide = re.search(r"recoslip watch \S+ (--accept 1 --as) NAME, or (--reject 1)", said)
    assert command(*decide[1].split(), "sequins") == "group 1 is accepted as 'sequins'"
    assert command(*decide[2].split()) == "group 1 is rejected"
    assert "there is no group 4" in command("--reject", "4", code=2)
    assert [each.verdict for each in Watch(tmp_path / "state").state.batches] == ["nothing", "nothing", "apart", "new"]


def test_the_outcome_is_printed_as_json_alone(command, tmp_path):
    command(*BEGIN)
    found = json.loads(command(*given("quiet"), "--json"))
    assert (found["alarm"], found["exit_code"], found["given_before"], found["group"]) == (False, 0, False, None)
    found = json.loads(command(*given("apart"), "--json", code=11))
    assert (found["alarm"], found["exit_code"]) == (False, 11)
    found = json.loads(command(*given("born"), "--json", code=10))
    assert (found["alarm"], found["exit_code"], found["number"], found["verdict"]) == (True, 10, 3, "new")
    assert found["group"]["name"] == "high glitter"
    assert found["sentence"] == Watch(tmp_path / "state").state.batches[3].sentence
    found = json.loads(command(*given("born"), "--json", code=10))
    assert (found["given_before"], found["exit_code"]) == (True, 10)


def test_a_quiet_command_prints_nothing_and_rings_by_its_exit_code(command):
    command(*BEGIN)
    assert command(*given("born"), "--quiet", code=10) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the table of the batch"),
        (["--begin"], "give the table of the batch"),
        (["--accept", "1"], "accept a group with its name"),
        (["--as", "sequins"], "accept a group with its name"),
        (["--accept", "1", "--as", "x", "--reject", "1"], "do not go together"),
        (["--begin", "--reject", "1"], "do not go together"),
        (["--reject", "1", "--nodes", "quiet.csv"], "two calls"),
        (["--nodes", "quiet.csv"], "holds no watch"),
        (["--nodes", "nothing.csv", "--begin"], "nothing.csv"),
        (["--nodes", "known.csv", "--begin", "--alpha", "2"], "alpha"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(command, tmp_path, arguments, message):
    assert message in command(*arguments, code=2)
    assert not (tmp_path / "state").exists()


def test_settings_are_fixed_when_a_watch_begins(command, tmp_path):
    command(*BEGIN)
    before = files_in(tmp_path / "state")
    for option, value in [
        ("--alpha", "0.05"), ("--max-growth", "3"), ("--window", "1"), ("--keep", "200"), ("--time", "age"),
        ("--id", "id"), ("--features", "age"), ("--ignore", "age"), ("--text", "age"), ("--block-weights", "x=1"),
        ("--impute", None), ("--label", "age"),
    ]:  # fmt: skip
        said = command(*given("quiet"), option, *([] if value is None else [value]), code=2)
        assert f"{option} was fixed when the watch began" in said
    assert "is not empty" in command(*BEGIN, code=2)
    assert files_in(tmp_path / "state") == before


def test_edges_that_are_lost_or_dropped_are_told_by_the_command(command, tables, tmp_path):
    command("--begin", "--nodes", "known.csv", "--keep", "500")
    kept = Watch(tmp_path / "state").state.nodes.table["id"]
    gone = KNOWN.filter(~pl.col("id").is_in(kept.implode()))["id"]
    frame = pl.read_csv(tables / "quiet.csv")
    pl.DataFrame({"a": frame["id"][:9], "b": gone[:9]}).write_csv(tmp_path / "lost.csv")
    assert "9 edges lead to nodes that are no longer kept." in command(
        "--nodes", "quiet.csv", "--edges", tmp_path / "lost.csv"
    )
    pl.DataFrame({"a": ["nobody"], "b": gone[:1]}).write_csv(tmp_path / "never.csv")
    late = ["--nodes", "born.csv", "--edges", tmp_path / "never.csv"]
    assert "1 ids that never came (first: 'nobody')" in command(*late, code=2)
    command(*late, "--drop-unknown", "--quiet", code=10)
