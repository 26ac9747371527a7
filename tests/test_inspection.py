"""The check before training: separable domains, columns that leak, and bad input."""

import json

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from arrays import dense_x
from typer.testing import CliRunner

import recoslip
from recoslip import NodeGraph, detector
from recoslip.base.errors import GraphError, SettingError, TableError
from recoslip.data.alignment import aligned
from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.panel import Labelled, panel_case
from recoslip.data.tables.table_encoder import TableEncoder
from recoslip.inference.analysis import find_novel
from recoslip.inference.check import Check
from recoslip.inference.columns import check_columns, column_of
from recoslip.inference.metrics import auroc
from recoslip.inference.separability import Mixing, Region, measure_mixing
from recoslip.products.cli import app

NO_EDGES = np.empty((2, 0), dtype=int)


def drawn(case, seed=0, **more):
    """A case of the panel on a random graph of 900 nodes."""
    settings = {"nodes": 900, "categories": 6, "noise": 2.0, "homophily": 0.7, "degree": 8.0, "seed": seed} | more
    graph = csbm(**settings)
    labelled = Labelled(graph.x, graph.edge_index, graph.categories)
    return panel_case("csbm", labelled, case, 7 + seed)


def changed(graph, change):
    """The same graph with other features of the target."""
    x = graph.x.copy()
    target = graph.is_target
    x[target] = change(x[target])
    return graph.with_features(x)


def rewired(graph, seed=0):
    """The same graph; every edge of a target node leads to another target node, whichever."""
    rng = np.random.default_rng(seed)
    left, right = graph.edge_index
    target = graph.is_target
    once = left < right
    left, right = left[once], right[once]
    touched = target[left] | target[right]
    left = np.where(touched & ~target[left], right, left)
    right = np.where(touched, rng.choice(np.flatnonzero(target), len(right)), right)
    return graph.with_edges(np.stack([left, right]))


# How far source and target mix


@pytest.mark.parametrize("case", ["mixed0", "mixed1", "grown", "unshifted", "nothing", "common", "rewired", "edgeless"])
def test_proportions_alone_are_no_alarm(case):
    for seed in range(3):
        assert measure_mixing(drawn(case, seed).graph).situation != "apart"


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (lambda x: x + np.random.default_rng(1).normal(size=x.shape[1]) * x.std(axis=0), "aligned"),
        (lambda x: x * np.where(np.arange(x.shape[1]) % 2, 3.0, 1.0), "aligned"),
        (lambda x: x + 1.5 * x.std() * np.random.default_rng(1).normal(size=x.shape), "aligned"),
    ],
)
def test_other_units_offsets_and_noise_are_noticed_and_remedied(change, remedy):
    graph = drawn("unshifted").graph
    look = recoslip.check(changed(graph, change))
    assert look.mixing.situation == "apart"
    assert (look.remedy, look.remedied, look.is_separable) == (remedy, True, False)
    assert look.method == "scan"
    off = recoslip.check(changed(graph, change), align="off")
    assert off.is_separable
    assert off.prepared is off.graph
    assert (off.remedy, off.remedied) == (None, False)


def test_edges_that_differ_are_left_out():
    look = recoslip.check(rewired(drawn("unshifted", noise=1.0).graph))
    assert (look.mixing.situation, look.remedy, look.remedied) == ("apart", "without edges", True)
    assert look.prepared.num_edges == 0
    assert recoslip.check(look.graph, align="off").is_separable


def two_networks(seed=0):
    """Two graphs that share categories and hardly any words' frequencies, and no edge; the last category is new."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(300, 0.05), size=5)
    parts, edges, category = [], [], []
    for world, known in ((0, 4), (1, 5)):
        style = rng.dirichlet(np.full(300, 0.05))
        labels = rng.integers(0, known, 500)
        words = np.stack([rng.multinomial(30, 0.6 * topics[label] + 0.4 * style) for label in labels])
        near = [rng.choice(np.flatnonzero(labels == label), 4) for label in labels]
        edges.append(np.stack([np.repeat(np.arange(500), 4), np.concatenate(near)]) + 500 * world)
        parts.append(words)
        category.append(labels)
    is_target = np.arange(1000) >= 500
    graph = NodeGraph(sp.csr_array(np.vstack(parts).astype(np.float32)), np.hstack(edges), is_target)
    return graph, np.concatenate(category) == 4


def test_two_networks_get_the_distance_to_the_source_and_no_promise():
    graph, novel = two_networks()
    look = recoslip.check(graph)
    assert (look.mixing.situation, look.is_separable, look.method) == ("apart", True, "nearest-source")
    assert look.mixing.edges == 0
    fitted = recoslip.calibrate(detector(look.method), look.prepared, rotations=5)
    assert auroc(novel, fitted.scores, graph.is_target) > 0.9
    found = find_novel(fitted, look.prepared, check=look, grouped=False)
    assert (found.verdict.kind, found.verdict.stands_out) == ("inconclusive", False)
    assert "separable" in found.headline()
    assert "hardly any edge joins the source and the target" in found.verdict.conditions
    assert "no p-value is valid" in found.verdict.conditions
    assert found.guarantee == "No statistical guarantee."
    assert not found.verdict.supported


def test_the_three_situations_are_told_by_their_regions():
    mixed, alone, apart = Region(0.5, 0.4, 0.6), Region(0.0, 0.3, None), Region(0.5, 0.3, 0.97)
    assert (mixed.mixes, alone.mixes, apart.mixes) == (True, False, False)
    assert (mixed.is_target_alone, alone.is_target_alone) == (False, True)
    assert Mixing((mixed, apart), 0.9, 0.9, 0.6).situation == "proportions"
    assert Mixing((mixed, apart, alone), 0.9, 0.9, 0.6).situation == "new kind"
    assert Mixing((apart, alone), 0.1, 0.0, 0.97).situation == "apart"
    assert Mixing((), None, None, None).situation == "too few"
    assert Mixing((mixed, apart, alone), 0.9, 0.9, 0.6).mixed_share() == (0.5, 0.4)


def test_a_new_kind_is_seen_where_target_nodes_are_alone():
    graph = drawn("unshifted", noise=0.5).graph
    look = recoslip.check(graph)
    assert look.mixing.situation == "new kind"
    assert recoslip.check(drawn("nothing", noise=0.5).graph).mixing.situation == "proportions"


def test_after_alignment_there_is_a_ranking_and_no_guarantee():
    graph = changed(drawn("unshifted").graph, lambda x: x + x.std(axis=0) * np.resize([1.0, -1.0], x.shape[1]))
    look = recoslip.check(graph)
    assert look.remedied
    found = find_novel(
        recoslip.calibrate(detector("lp-pul"), look.prepared, rotations=5), look.prepared, check=look, grouped=False
    )
    assert (found.verdict.kind, found.verdict.supported) == ("inconclusive", False)
    assert found.guarantee == "No statistical guarantee."
    assert np.isfinite(found.model.scores).all()


def test_alignment_matches_means_and_scales_and_keeps_names():
    x = np.random.default_rng(0).normal(size=(60, 3)) * [1, 2, 0]
    target = np.arange(60) >= 20
    x[target] = 5 * x[target] + 3
    graph = NodeGraph(x, NO_EDGES, target, feature_names=["a", "b", "c"])
    result = aligned(graph)
    y = result.x
    np.testing.assert_allclose(y[target].mean(axis=0), y[~target].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(y[target].std(axis=0), y[~target].std(axis=0), atol=1e-5)
    np.testing.assert_allclose(y[~target], x[~target], atol=1e-6)
    assert result.feature_names == ("a", "b", "c")
    assert graph.x[-1, 0] == pytest.approx(x[-1, 0])


# Columns


def test_a_column_that_says_the_same_as_the_domain_is_named_every_time():
    for seed in range(10):
        graph = drawn("mixed0", seed).graph
        rng = np.random.default_rng(seed)
        target = graph.is_target
        for wrong in (0.0, 0.05):
            era = target ^ (rng.random(len(target)) < wrong)
            x = np.column_stack([graph.x[:, :20], era])
            names = [f"c{k}" for k in range(20)] + ["era"]
            for features in (x, sp.csr_array(x)):
                found = check_columns(NodeGraph(features, NO_EDGES, target, feature_names=names))
                assert [leak.column for leak in found.leaks] == ["era"]
                assert found.leaks[0].auroc == pytest.approx(1 - wrong, abs=0.03)


def test_of_few_nodes_a_column_that_agrees_by_chance_is_no_leak():
    rng = np.random.default_rng(0)
    few = NodeGraph(rng.normal(size=(12, 2000)), NO_EDGES, np.arange(12) >= 6)
    assert check_columns(few).differences[0].auroc > 0.95
    assert check_columns(few).leaks == ()
    more = np.arange(60) >= 30
    leak = NodeGraph(np.column_stack([rng.normal(size=(60, 20)), more]), NO_EDGES, more)
    assert [each.column for each in check_columns(leak).leaks] == ["feature 20"]


def test_columns_that_mostly_say_the_same_are_no_leak():
    graph = drawn("nothing").graph
    shifted = changed(graph, lambda x: x + 9)
    assert check_columns(shifted).leaks == ()
    assert "32 of 32" in dict(recoslip.check(shifted).rows())["columns"]


def test_the_auroc_of_a_column_is_that_of_its_values():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    target = rng.random(300) < 0.4
    x = rng.integers(0, 4, size=(300, 5)) + target[:, None] * [0, 1, 2, 0, -1]
    found = {each.column: each for each in check_columns(NodeGraph(x.astype(float), NO_EDGES, target)).differences}
    for k in range(5):
        expected = roc_auc_score(target, x[:, k])
        assert found[f"feature {k}"].auroc == pytest.approx(max(expected, 1 - expected))
    assert found["feature 2"].target == pytest.approx(x[target, 2].mean())


def test_features_are_named_after_their_columns():
    encoding = {
        "colour": {"encoding": "category", "values": ["red=1"], "rare": [], "shares": [1.0], "weight": 1.0},
        "a:b": {"encoding": "text", "words": ["word"], "idf": [1.0], "shares": [1.0], "spare": 0, "weight": 1.0},
        "v": {"encoding": "vector", "mean": [0.0, 0.0], "deviation": [1.0, 1.0], "weight": 1.0},
        "x=y": {"encoding": "number", "median": 0.0, "mean": 0.0, "scale": 1.0, "weight": 1.0},
    }
    assert TableEncoder.from_json(encoding).feature_names == ["colour=red=1", "a:b:word", "v[0]", "v[1]", "x=y"]
    assert [column_of(name, encoding) for name in ("colour=red=1", "a:b:word", "v[1]", "x=y", "other=1")] == [
        "colour", "a:b", "v", "x=y", "other=1",
    ]  # fmt: skip


# The command line


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Tables in the working folder: nodes with a category and a constant column, and edges."""
    monkeypatch.chdir(tmp_path)
    graph = drawn("mixed0", noise=1.0).graph
    target = graph.is_target
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "id": np.arange(graph.num_nodes),
            "domain": np.where(target, "target", "source"),
            **{f"c{k}": graph.x[:, k] for k in range(12)},
            "one": 1.0,
            "branch": [f"branch {rng.integers(4) + 4 * side}" for side in target.astype(int)],
        }
    )
    frame.write_csv("leak.csv")
    frame.drop("branch").write_csv("nodes.csv")
    frame.drop("branch").with_columns(
        pl.when(pl.int_range(pl.len()) < 7).then(None).otherwise("c3").alias("c3")
    ).write_csv("holes.csv")
    left, right = graph.edge_index
    pl.DataFrame({"a": left[left < right], "b": right[left < right]}).write_csv("edges.csv")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_check_prints_a_table_and_json(shop):
    result = run("check", "nodes.csv", "edges.csv")
    assert result.exit_code == 0
    for words in ("source and", "AU-ROC", "one: left out (1.0 in every row)", "p-value", "scan"):
        assert words in " ".join(result.output.split())
    facts = json.loads(run("check", "nodes.csv", "edges.csv", "--json", "--quiet").stdout)
    assert (facts["separable"], facts["leaks"], facts["constant"]) == (False, [], [])
    assert 0 < facts["lowest_p_value"] < 0.01
    assert facts["size"].keys() == {"source", "target", "edges", "features", "values", "bytes"}


@pytest.mark.parametrize("weight", [None, [1.0, 2.0]])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_size_of_a_graph_is_counted_in_its_arrays(form, weight):
    x = np.zeros((4, 3), dtype=np.float32)
    x[0, 1] = x[3, 2] = 1
    graph = NodeGraph(form(x), [[0, 1], [1, 2]], [False, False, True, True], edge_weight=weight)
    values, indices = (12, 0) if form is np.asarray else (2, 2 + 5)  # columns, and where each row begins
    assert recoslip.check(graph).size() == {
        "source": 2,
        "target": 2,
        "edges": 2,
        "features": 3,
        "values": values,
        "bytes": 4 * values + 4 * indices + 2 * 4 * 8 + (0 if weight is None else 4 * 4) + 4,
    }


def test_a_leak_stops_the_run_before_anything_is_written_or_trained(shop):
    for command in (["check", "leak.csv", "edges.csv"], ["detect", "leak.csv", "--out", "out", "--quiet"]):
        result = run(*command)
        assert result.exit_code == 2
        message = " ".join(result.stderr.split())
        assert "Column 'branch' says exactly the same as the domain (AU-ROC 1.000)." in message
        assert "--ignore branch" in message
        assert "--allow-leak branch" in message
    assert not (shop / "out").exists()
    assert run("check", "leak.csv", "edges.csv", "--ignore", "branch").exit_code == 0
    assert run("check", "leak.csv", "edges.csv", "--allow-leak", "branch").exit_code == 0
    assert "no column that is used: 'brunch'" in run("check", "leak.csv", "--allow-leak", "brunch").stderr


def test_missing_values_are_reported_where_they_are_filled(shop):
    assert run("check", "holes.csv", "--no-impute").exit_code == 2
    facts = json.loads(run("check", "holes.csv", "--json").stdout)
    assert facts["missing"] == {"c3": 7}
    assert ["missing", "c3 (7 rows): missing values were filled."] in facts["rows"]


def test_detect_writes_what_the_check_saw(shop):
    more = ("--method", "lp-pul", "--max-fpr", "0.2", "--out", "out")
    result = run("detect", "nodes.csv", "edges.csv", *more)
    assert result.exit_code == 0
    summary = json.loads((shop / "out" / "summary.json").read_text())
    assert summary["check"]["situation"] in ("proportions", "new kind")
    page = json.loads((shop / "out" / "report.json").read_text())
    assert page["facts"]["check"]["rows"] == summary["check"]["rows"]


def test_the_default_is_the_distance_to_the_source_where_domains_are_separable(shop):
    graph, _ = two_networks()
    words = {f"w{k}": dense_x(graph)[:, k] for k in range(60)}
    side = np.where(graph.is_target, "target", "source")
    pl.DataFrame({"id": np.arange(1000), "domain": side} | words).write_csv("two.csv")
    left, right = graph.edge_index
    pl.DataFrame({"a": left, "b": right}).write_csv("links.csv")
    result = run("detect", "two.csv", "links.csv", "--out", "apart", "--json")
    summary = json.loads(result.stdout)
    assert summary["method"] == "nearest-source"
    assert summary["verdict"] == "inconclusive"
    assert summary["novel_share"] is None
    assert summary["guarantee"] == "No statistical guarantee."


# Bad input


def rows_of(graph) -> dict[str, str]:
    return dict(recoslip.check(graph).rows())


def test_what_cannot_be_measured_is_said():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    few = rows_of(NodeGraph(x, NO_EDGES, np.arange(200) >= 2))
    assert "too few" in few["separability"]
    assert few["p-values"] == "2 source nodes are too few for any p-value."
    assert "no edges" in few["edges"]
    target = np.arange(200) >= 100
    equal = recoslip.check(NodeGraph(np.ones((200, 3)), NO_EDGES, target))
    assert equal.mixing.situation == "proportions"
    assert len(equal.mixing.regions) == 1
    assert "feature 0, feature 1, feature 2: the same in all nodes" in dict(equal.rows())["constant"]
    empty = rows_of(NodeGraph(np.where(target[:, None], 0, x), NO_EDGES, target))
    assert empty["empty"] == "4 features are zero in all target nodes and not in the others."
    assert "are separable" in empty["separability"]
    disjoint = rows_of(NodeGraph(x + 50 * target[:, None], NO_EDGES, target))
    assert "are separable" in disjoint["separability"]
    assert disjoint["neighbours"].startswith("0.00 times as many")


def test_what_is_no_graph_or_no_choice_is_refused(graph):
    with pytest.raises(TableError, match="got dict"):
        recoslip.check({})
    with pytest.raises(SettingError, match="align must be one of off, on, auto; got 'yes'"):
        recoslip.check(graph, align="yes")
    with pytest.raises(GraphError, match="features have 3 rows"):
        graph.with_features(np.ones((3, 2)))


def test_the_check_does_not_depend_on_the_caller(graph):
    before = recoslip.check(graph).to_dict()
    assert isinstance(recoslip.check(graph), Check)
    assert recoslip.check(graph).to_dict() == before
    forced = recoslip.check(graph, align="on")
    assert forced.remedy == "aligned"
    assert forced.prepared is not graph
