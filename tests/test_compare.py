"""Two results side by side: what joined and left the list, which groups go on, what differs; and damaged results."""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

from recoslip.base.errors import RecoslipError
from recoslip.pipeline.result import Result
from recoslip.pipeline.saved import for_spreadsheets, read_scores, read_summary
from recoslip.products.cli import app
from recoslip.products.compare import compare, write_changes

SUMMARY = {
    "recoslip": "0.1.0",
    "method": "reco-slip-plus",
    "settings": {"epochs": 400, "max_fpr": 0.01},
    "seed": 0,
    "nodes": 100,
    "verdict": "novel",
    "headline": "Something new.",
    "guarantee": "Of known nodes, at most 1 % are expected to be listed.",
    "novel_share": {"estimate": 0.11, "low": 0.0786, "high": 0.37},
}


def result(folder, groups, others=(), *, names=None, file_format="csv", table=None, **summary):
    """Write a result whose groups hold the given ids; the others are target nodes that are not listed."""
    folder.mkdir()
    if table is None:
        rows = [(node, "target", 0.9, 0.001, True, group) for group, nodes in groups.items() for node in nodes]
        rows += [(node, "target", 0.2, 0.5, False, None) for node in others]
        rows += [(node, "source", 0.1, None, False, None) for node in ("s1", "s2")]
        columns = ["id", "domain", "score", "p_value", "listed", "group"]
        table = pl.DataFrame(rows, schema=columns, orient="row", schema_overrides={"group": pl.Int64})
    if file_format == "csv":
        for_spreadsheets(table).write_csv(folder / "scores.csv")
    else:
        table.write_parquet(folder / "scores.parquet")
    found = [{"number": group, "size": len(nodes), "name": (names or {}).get(group)} for group, nodes in groups.items()]
    values = SUMMARY | {"groups": {"count": len(groups), "found": found}} | summary
    (folder / "summary.json").write_text(json.dumps(values))
    return folder


def ids(letter, start, stop):
    return [f"{letter}{k}" for k in range(start, stop)]


def kinds(comparison):
    return {(group.kind, group.first, group.second) for group in comparison.groups}


def run(*arguments, code=0):
    outcome = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    assert outcome.exit_code == code, outcome.output
    return outcome


# Nodes.


def test_nodes_join_leave_come_and_go(tmp_path):
    one = result(tmp_path / "one", {1: [*ids("a", 0, 10), "leaver", "lost"]}, ["joiner", "calm", "lost too"])
    two = result(tmp_path / "two", {1: [*ids("a", 0, 10), "joiner", "newcomer"]}, ["leaver", "calm", "new too"])
    compared = compare(one, two)
    assert (compared.both, compared.only_first, compared.only_second) == (15, 2, 2)
    assert dict(compared.changes.select("id", "change").iter_rows()) == {
        "joiner": "joined",
        "leaver": "left",
        "newcomer": "new",
        "lost": "gone",
    }
    left = compared.changed("left").row(0, named=True)
    assert (left["score_first"], left["score_second"], left["p_value_first"], left["p_value_second"]) == (
        0.9, 0.2, 0.001, 0.5,
    )  # fmt: skip
    assert (left["listed_first"], left["listed_second"], left["group_first"], left["group_second"]) == (
        True, False, 1, None,
    )  # fmt: skip
    gone = compared.changed("gone").row(0, named=True)
    assert (gone["score_first"], gone["score_second"], gone["listed_second"]) == (0.9, None, None)
    assert "Of the nodes in both, 1 joined the list and 1 left it." in compared.sentences()
    assert "Listed nodes that only one result has: 1 in the first, 1 in the second." in compared.sentences()


def test_the_same_result_twice_did_not_change(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 5), 0: ["stray"]}, ids("t", 0, 5))
    compared = compare(one, one)
    assert compared.identical
    assert compared.same_list
    assert compared.rank_correlation == pytest.approx(1)
    assert not compared.differences
    assert kinds(compared) == {("same", (1,), (1,))}
    assert "nothing changed" in run(one, one).output


def test_results_in_memory_and_folders_are_the_same(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 5)}, ids("t", 0, 5))
    two = result(tmp_path / "two", {1: ids("a", 1, 5)}, ids("t", 0, 6))
    in_memory = [Result(read_scores(folder), read_summary(folder), folder=folder) for folder in (one, two)]
    assert compare(*in_memory).to_dict() == compare(one, two).to_dict()


def test_a_score_that_moved_is_a_change_even_where_the_list_stays(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 5)}, ids("t", 0, 5))
    moved = read_scores(one).with_columns(score=pl.col("score") / 2)
    two = result(tmp_path / "two", {}, table=moved)
    compared = compare(one, two)
    assert compared.same_list
    assert not compared.identical
    assert "nothing changed" not in run(one, two).output


def test_a_node_that_became_source_left_the_list_and_changed_its_domain(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 5)}, ids("t", 0, 5))
    known = pl.col("id") == "a0"
    reviewed = read_scores(one).with_columns(
        domain=pl.when(known).then(pl.lit("source")).otherwise("domain"),
        listed=pl.col("listed") & ~known,
        group=pl.when(~known).then("group"),
    )
    compared = compare(one, result(tmp_path / "two", {}, table=reviewed))
    assert compared.changes["change"].to_list() == ["left"]
    assert (compared.changed_domain, compared.ranked) == (1, 9)


def scored(folder, values):
    rows = [(f"n{k}", "target", float(value), 0.5, False, None) for k, value in enumerate(values)]
    columns = ["id", "domain", "score", "p_value", "listed", "group"]
    return result(folder, {}, table=pl.DataFrame(rows, schema=columns, orient="row"))


def test_the_rank_correlation_is_spearmans_with_ties(tmp_path):
    random = np.random.default_rng(0)
    tied = random.integers(0, 20, (2, 300)) + np.arange(300) // 20
    cases = (tied, ([1, 2, 3], [9, 5, 1]), ([1, 1], [1, 2]), ([1], [1]))
    expected = (pytest.approx(spearmanr(*tied).statistic), pytest.approx(-1), None, None)
    for case, (values, correlation) in enumerate(zip(cases, expected, strict=True)):
        folders = [scored(tmp_path / f"{case}-{side}", each) for side, each in enumerate(values)]
        assert compare(*folders).rank_correlation == correlation


def test_only_nodes_that_are_target_in_both_are_ranked(tmp_path):
    one = result(tmp_path / "one", {1: ["a", "b"]}, ["c", "x"])
    two = result(tmp_path / "two", {1: ["a", "b"]}, ["c", "y"])
    assert compare(one, two).ranked == 3


# Groups.


def test_a_renumbered_group_is_the_same_and_its_nodes_did_not_change(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 10), 2: ids("b", 0, 6)}, names={1: "rotor", 2: "soil"})
    two = result(tmp_path / "two", {2: ids("a", 0, 10), 1: ids("b", 0, 6)}, names={2: "rotor", 1: "soil"})
    compared = compare(one, two)
    assert kinds(compared) == {("same", (1,), (2,)), ("same", (2,), (1,))}
    assert compared.same_list
    assert compared.groups[0].first_names == compared.groups[0].second_names == ("rotor",)  # the largest first


def test_split_merged_new_and_gone_groups_are_named_as_such(tmp_path):
    one = result(
        tmp_path / "one",
        {1: ids("split", 0, 20), 2: ids("m", 0, 8), 3: ids("n", 0, 6), 4: ids("gone", 0, 5), 5: ids("stay", 0, 9)},
        ids("new", 0, 7),
    )
    two = result(
        tmp_path / "two",
        {
            1: ids("split", 0, 12),
            2: ids("split", 12, 20),
            3: [*ids("m", 0, 8), *ids("n", 0, 6)],
            4: ids("new", 0, 7),
            5: ids("stay", 0, 9),
        },
        ids("gone", 0, 5),
    )
    compared = compare(one, two)
    assert kinds(compared) == {
        ("split", (1,), (1, 2)),
        ("merged", (2, 3), (3,)),
        ("gone", (4,), ()),
        ("same", (5,), (5,)),
        ("new", (), (4,)),
    }
    changed = dict(compared.changes["change"].value_counts().iter_rows())
    assert changed == {"joined": 7, "left": 5, "regrouped": 34}
    assert "34 nodes on both lists changed group." in compared.sentences()


def test_groups_that_grow_and_shrink_are_the_same_and_say_how_much_is_found_again(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 4), 2: ids("b", 0, 20)}, ids("t", 0, 4))
    two = result(tmp_path / "two", {1: ids("a", 0, 16), 2: ids("b", 0, 5)}, ids("t", 0, 4))
    grew, shrank = compare(one, two).groups
    assert (grew.kind, grew.found_again, grew.known_before) == ("same", 1.0, 0.25)
    assert (shrank.kind, shrank.found_again, shrank.known_before) == ("same", 0.25, 1.0)


def test_half_of_both_groups_is_not_more_than_half(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 4)}, ids("a", 4, 6))
    two = result(tmp_path / "two", {1: ids("a", 2, 6)}, ids("a", 0, 2))
    assert kinds(compare(one, two)) == {("gone", (1,), ()), ("new", (), (1,))}


def test_groups_that_exchange_their_halves_are_rearranged(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 10), 2: ids("b", 0, 10)})
    two = result(tmp_path / "two", {1: [*ids("a", 0, 6), *ids("b", 0, 7)], 2: [*ids("a", 6, 10), *ids("b", 7, 9)]})
    assert kinds(compare(one, two)) == {("rearranged", (1, 2), (1, 2))}


def test_a_node_that_moves_to_another_group_or_to_none_is_regrouped(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 10), 2: ids("b", 0, 10), 0: ["stray"]})
    two = result(tmp_path / "two", {1: ids("a", 0, 9), 2: [*ids("b", 0, 9), "a9"], 0: ["b9", "stray"]})
    compared = compare(one, two)
    assert set(compared.changed("regrouped")["id"]) == {"a9", "b9"}
    assert compared.changes.height == 2
    assert {group.kind for group in compared.groups} == {"same"}


def test_every_group_is_told_of_once(tmp_path):
    random = np.random.default_rng(1)
    for case in range(20):
        numbers = random.integers(0, 6, (2, 60)).tolist()
        folders = [
            result(tmp_path / f"{case}-{side}", {g: [f"n{k}" for k in range(60) if of[k] == g] for g in set(of)})
            for side, of in enumerate(numbers)
        ]
        groups = compare(*folders).groups
        for side, of in zip(("first", "second"), numbers, strict=True):
            told = [number for group in groups for number in getattr(group, side)]
            assert sorted(told) == sorted(set(of) - {0})


def test_results_without_groups_are_compared_by_their_lists(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 5)}, ["joiner"])
    table = read_scores(result(tmp_path / "more", {1: [*ids("a", 0, 5), "joiner"]})).drop("group")
    two = result(tmp_path / "two", {}, table=table)
    summary = read_summary(two)  # as score writes it without the old nodes
    for name in ("verdict", "headline", "novel_share", "groups", "seed"):
        del summary[name]
    (two / "summary.json").write_text(json.dumps(summary))
    compared = compare(one, two)
    assert compared.changes["change"].to_list() == ["joined"]
    assert not compared.groups
    assert "The second result has no groups, so groups are not compared." in compared.sentences()
    assert run(one, two).exit_code == 0


def test_where_nothing_is_listed_any_more_all_groups_are_gone(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 5)})
    two = result(tmp_path / "two", {}, ids("a", 0, 5))
    assert kinds(compare(one, two)) == {("gone", (1,), ())}


# Summaries.


def test_differences_of_method_settings_seed_and_promise_are_named(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 5)})
    other = {
        "method": "nnpu",
        "settings": {"epochs": 400, "max_fpr": 0.05, "prior": 0.2},
        "seed": 7,
        "guarantee": "None.",
    }
    two = result(tmp_path / "two", {1: ids("a", 0, 5)}, **other, verdict="inconclusive", novel_share=None)
    compared = compare(one, two)
    assert {each.name: (each.first, each.second) for each in compared.differences} == {
        "method": ("reco-slip-plus", "nnpu"),
        "seed": (0, 7),
        "guarantee": (SUMMARY["guarantee"], "None."),
        "settings.max_fpr": (0.01, 0.05),
        "settings.prior": (None, 0.2),
    }
    assert (compared.first.verdict, compared.second.verdict) == ("novel", "inconclusive")
    assert compared.second.novel_share is None
    assert not compared.identical


# Files.


def test_numbers_and_texts_are_the_same_ids_in_csv_and_parquet(tmp_path):
    numbers = pl.DataFrame(
        {
            "id": [7, 8, -9],
            "domain": ["target"] * 3,
            "score": [0.9, 0.5, 0.1],
            "p_value": [0.01, 0.5, float("nan")],
            "listed": [True, False, False],
            "group": [1, None, None],
        }
    )
    one = result(tmp_path / "one", {1: [7]}, table=numbers, file_format="parquet")
    two = result(tmp_path / "two", {1: [7]}, table=numbers.with_columns(pl.col("id").cast(pl.String)))
    compared = compare(one, two)
    assert (compared.both, compared.changes.height) == (3, 0)
    assert read_scores(one)["p_value"].to_list() == [0.01, 0.5, None]


def test_ids_that_look_like_formulas_are_read_as_they_were_and_written_safely(tmp_path):
    strange = ["=1+1", "'quoted", "@x", "007", "-7", "a,b", "ключ"]
    one = result(tmp_path / "one", {1: strange}, ["calm"])
    two = result(tmp_path / "two", {}, [*strange, "calm"], file_format="parquet")
    assert read_scores(one)["id"].to_list()[:7] == strange
    compared = compare(one, two)
    assert set(compared.changed("left")["id"]) == set(strange)
    write_changes(compared, tmp_path / "changes.csv")
    written = pl.read_csv(tmp_path / "changes.csv", schema_overrides={"id": pl.String})
    assert {"'=1+1", "''quoted", "'@x", "007", "-7"} <= set(written["id"])


def test_the_users_own_columns_are_kept_after_ours(tmp_path):
    table = read_scores(result(tmp_path / "one", {1: ["a"]}, ["b"]))
    table = table.select(pl.lit("=x").alias("title"), pl.int_range(table.height).alias("price"), pl.all())
    read = read_scores(result(tmp_path / "two", {1: ["a"]}, table=table))
    assert read.columns == ["id", "domain", "score", "p_value", "listed", "group", "title", "price"]
    assert set(read["title"]) == {"=x"}


def test_a_table_that_a_spreadsheet_or_pandas_saved_is_read(tmp_path):
    folder = result(tmp_path / "one", {1: ["a"]})
    text = "id,domain,score,p_value,listed,group\na,target,0.9,0.01,TRUE,1.0\nb,target,0.1,,False,\n"
    (folder / "scores.csv").write_text(text)
    read = read_scores(folder)
    assert (read["listed"].to_list(), read["group"].to_list()) == ([True, False], [1, None])


HEADER = "id,domain,score,p_value,listed,group\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as csv"),
        (b"id,score\na,1\n", "domain, p_value, listed are missing"),
        (HEADER.encode(), "holds no node"),
        (HEADER.encode() + b"a,target,0.9,0.01,true,1,8,9\n", "cannot be read as csv"),
        (HEADER.encode() + b"a,target,high,0.01,true,1\n", "score must be a finite number; row 1 has 'high'"),
        (HEADER.encode() + b"a,target,nan,0.01,true,1\n", "score must be a finite number; row 1"),
        (HEADER.encode() + b"a,target,,0.01,true,1\n", "score must be a finite number; row 1 has None"),
        (HEADER.encode() + b"a,target,1,0.01,true,1\n,target,1,0.01,true,1\n", "id must be .*; row 2 has None"),
        (HEADER.encode() + b"a,target,0.9,0.01,perhaps,1\n", "listed must be true or false; row 1 has 'perhaps'"),
        (HEADER.encode() + b"a,target,0.9,0.01,true,1.5\n", "group must be a whole number.*; row 1 has '1.5'"),
        (HEADER.encode() + b"a,novel,0.9,0.01,true,1\n", "domain must be source or target; row 1 has 'novel'"),
        (HEADER.encode() + b"a,target,0.9,0.01,true,1\n" * 2, "no other node has; row 1 has 'a'"),
        (b"\xff\xfe\x00\x01", "cannot be read|missing"),
    ],
)
def test_a_damaged_table_is_refused_with_the_damage(tmp_path, content, message):
    folder = result(tmp_path / "one", {1: ["a"]})
    (folder / "scores.csv").write_bytes(content)
    with pytest.raises(RecoslipError, match=message):
        read_scores(folder)


def test_a_truncated_or_overwritten_parquet_file_is_refused(tmp_path):
    folder = result(tmp_path / "one", {1: ids("a", 0, 50)}, file_format="parquet")
    path = folder / "scores.parquet"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"PAR1" + bytes(len(whole) - 8) + b"PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(RecoslipError, match="cannot be read as parquet"):
            read_scores(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "must hold an object"),
        ("{}", "does not say 'recoslip'"),
        (json.dumps(SUMMARY | {"groups": []}), "groups is not as"),
        (json.dumps(SUMMARY | {"groups": {"found": [{"number": [1], "name": None}]}}), "groups is not as"),
        (json.dumps(SUMMARY | {"groups": {"found": [{"number": 1, "name": 5}]}}), "groups is not as"),
        (json.dumps(SUMMARY | {"novel_share": {"low": "a"}}), "novel_share is not as"),
        (json.dumps(SUMMARY | {"verdict": 3}), "verdict is not as"),
    ],
)
def test_a_damaged_summary_is_refused_with_the_damage(tmp_path, content, message):
    one = result(tmp_path / "one", {1: ["a"]})
    two = result(tmp_path / "two", {1: ["a"]})
    (two / "summary.json").write_text(content)
    assert "Traceback" not in run(one, two, code=2).output
    with pytest.raises(RecoslipError, match=message):
        compare(one, two)


def test_what_is_no_result_is_refused(tmp_path):
    one = result(tmp_path / "one", {1: ["a"]})
    (tmp_path / "empty").mkdir()
    for folder, message in (
        (tmp_path / "nowhere", "is not there, expected a folder"),
        (one / "scores.csv", "is a file, expected a folder"),
        (tmp_path / "empty", "holds no scores.csv"),
    ):
        with pytest.raises(RecoslipError, match=message):
            compare(one, folder)
    read_scores(one).write_parquet(one / "scores.parquet")
    with pytest.raises(RecoslipError, match="holds both"):
        read_scores(one)
    (one / "summary.json").unlink()
    with pytest.raises(RecoslipError, match=r"holds no summary\.json"):
        read_summary(one)


def test_results_without_a_common_node_are_refused_with_a_remedy(tmp_path):
    tables = [
        read_scores(result(tmp_path / name, {1: [f"{name}1"]})).filter(pl.col("domain") == "target") for name in "ab"
    ]
    folders = [result(tmp_path / f"r{k}", {}, table=table) for k, table in enumerate(tables)]
    with pytest.raises(RecoslipError, match=r"no node in common .*'a1' and 'b1'.* if ids were renamed"):
        compare(*folders)


# The command.


@pytest.fixture
def two_weeks(tmp_path):
    one = result(tmp_path / "one", {1: ids("a", 0, 10)}, ids("t", 0, 10), names={1: "rotor, [red]"})
    two = result(tmp_path / "two", {1: [*ids("a", 0, 10), *ids("t", 0, 8)]}, ids("t", 8, 10), seed=7)
    return one, two


def test_the_command_prints_one_summary(two_weeks):
    output = run(*two_weeks).output
    for text in (
        "7.8 % to 37 %",
        "8 joined the list and 0 left it",
        "and 3 more changed nodes",
        "seed",
        "rotor, [red]",
    ):
        assert text in output
    assert output.count("0.2000 → 0.9000") == 5
    assert run(*two_weeks, "--quiet").output == ""


def test_json_prints_everything_and_nothing_else(two_weeks):
    facts = json.loads(run(*two_weeks, "--json").stdout)
    assert facts == compare(*two_weeks).to_dict()
    assert [row["id"] for row in facts["changes"]] == ids("t", 0, 8)
    assert facts["groups"][0]["first"] == {"groups": [{"number": 1, "name": "rotor, [red]"}], "size": 10}
    assert facts["differences"] == [{"name": "seed", "first": 0, "second": 7}]


def test_out_writes_the_changed_nodes_to_a_new_file_alone(two_weeks, tmp_path):
    changes = tmp_path / "new" / "changes.csv"
    assert "8 changed nodes written to" in run(*two_weeks, "--out", changes).output
    written = pl.read_csv(changes)
    assert written.columns[:4] == ["id", "change", "domain_first", "domain_second"]
    assert written["id"].to_list() == ids("t", 0, 8)
    before = changes.read_bytes()
    assert "is there already" in run(*two_weeks, "--out", changes, code=2).output
    assert changes.read_bytes() == before
    changes.rename(changes.with_name("moved.csv"))  # as the message says
    run(*two_weeks, "--out", changes)
    assert changes.read_bytes() == before
    run(*two_weeks, "--out", tmp_path / "other", "--force", code=2)
    assert not (tmp_path / "other").exists()
    assert "is a folder" in run(*two_weeks, "--out", tmp_path, code=2).output


def test_the_command_imports_no_torch(two_weeks):
    code = "import sys\nfrom recoslip.products.cli import app\ntry: app(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "print({'torch', 'sklearn', 'scipy'} & set(sys.modules))"
    command = [sys.executable, "-c", code, "compare", *map(str, two_weeks), "--quiet"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"


def test_the_lists_of_large_results_differ_as_sets_do(tmp_path):
    random = np.random.default_rng(0)
    folders = []
    for side in range(2):
        count = 50_000
        listed = random.random(count) < 0.1
        table = pl.DataFrame(
            {
                "id": [f"n{k}" for k in range(count)],
                "domain": "target",
                "score": random.random(count),
                "p_value": random.random(count),
                "listed": listed,
                "group": pl.Series(np.arange(count) // 5000 + 1),
            }
        ).with_columns(group=pl.when("listed").then("group"))
        folders.append(result(tmp_path / str(side), {}, table=table))
    compared = compare(*folders)
    listed = [set(read_scores(folder).filter("listed")["id"]) for folder in folders]
    assert set(compared.changed("joined")["id"]) == listed[1] - listed[0]
    assert set(compared.changed("left")["id"]) == listed[0] - listed[1]
