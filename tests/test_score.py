"""A fitted detector and tables of new nodes: their scores, the look before, and the command `score`."""

import json
import shutil
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from arrays import dense_x
from scoring import read_table, score_table

import recoslip
from recoslip import detector, read_graph
from recoslip.base.errors import GraphError, TableError
from recoslip.data.datasets.block_model import csbm
from recoslip.data.ids import id_hashes
from recoslip.data.packed.reader import open_packed
from recoslip.data.packed.writer import pack
from recoslip.data.tables.table_encoder import TableEncoder
from recoslip.inference.analysis import find_novel
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.metrics import auroc
from recoslip.inference.p_values import benjamini_hochberg
from recoslip.pipeline.result import Result
from recoslip.pipeline.score import check_new, score_new

QUICK = {"hidden_channels": 16, "out_channels": 16, "head_channels": 8, "epochs": 60, "device": "cpu"}
BRANDS = ["acme", "bolt", "core"]


def quick(name="domain-discriminator", **settings):
    of_networks = {} if name in ("nearest-source", "lp-pul") else QUICK
    return detector(name, **(of_networks | settings))


def tables_of(graph, names):
    """The tables of a graph: numbers, a category that says nothing, and edges with weights."""
    rng = np.random.default_rng(0)
    nodes = pl.DataFrame({"id": names, "domain": graph.is_target.astype(int)})
    nodes = nodes.with_columns(**{f"x{k}": graph.x[:, k].astype(float) for k in range(graph.num_features)})
    nodes = nodes.with_columns(brand=pl.Series(rng.choice(BRANDS, graph.num_nodes)))
    ends = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    edges = pl.DataFrame({"a": names[ends[0]], "b": names[ends[1]], "w": rng.uniform(0.5, 2, ends.shape[1])})
    return nodes, edges


@dataclass
class World:
    """Nodes of yesterday, and some of their kind that come today."""

    old: pl.DataFrame
    old_edges: pl.DataFrame
    new: pl.DataFrame  # without domain
    new_edges: pl.DataFrame  # to each other and to old nodes
    novel: np.ndarray  # (new nodes,)

    @property
    def inner_edges(self):
        """The edges among new nodes."""
        own = self.new["id"].implode()
        return self.new_edges.filter(pl.col("a").is_in(own) & pl.col("b").is_in(own))

    @property
    def given(self):
        return {"old_nodes": self.old, "old_edges": self.old_edges}


def make_world(seed=0, nodes=360, **options):
    settings = {"categories": 4, "features": 8, "noise": 0.4, "shift": 0.0, "novel_share": 0.3, "seed": seed}
    graph = csbm(nodes=nodes, **(settings | options))
    names = np.array([f"n{k:03}" for k in range(nodes)])
    table, edges = tables_of(graph, names)
    is_new = (np.random.default_rng(seed).random(nodes) < 0.4) & graph.is_target
    new_ids = names[is_new].tolist()
    touches = pl.col("a").is_in(new_ids) | pl.col("b").is_in(new_ids)
    return World(
        old=table.filter(~is_new),
        old_edges=edges.filter(~touches),
        new=table.filter(is_new).drop("domain"),
        new_edges=edges.filter(touches),
        novel=graph.categories[is_new] == 3,
    )


@pytest.fixture(scope="module")
def world():
    return make_world()


@pytest.fixture(scope="module")
def old_graph(world):
    return read_graph(world.old, world.old_edges)


@pytest.fixture(scope="module")
def fitted(old_graph):
    return recoslip.calibrate(quick(), old_graph, rotations=3)


def fit(name, graph, rotations):
    own = quick(name, **({"epochs": 3} if name == "reco-slip-plus" else {}))
    return (
        Calibrated.uncalibrated(own.fit(graph))
        if rotations == 1
        else recoslip.calibrate(own, graph, rotations=rotations)
    )


def by_id(table):
    return table.sort("id")


def same_bits(one, other):
    """Whether two columns hold the same numbers, to the last bit, and are null in the same rows."""
    return one.to_list() == other.to_list()


# The rows that were fitted


def expected(fitted, graph):
    p = fitted.p_values()
    return by_id(
        pl.DataFrame(
            {
                "id": [str(name) for name in graph.ids],
                "score": fitted.scores,
                "p_value": pl.Series(p, nan_to_null=True),
                "listed": fitted.select(),
            }
        )
    )


@pytest.mark.parametrize("name", ["domain-discriminator", "reco-slip-plus", "nearest-source", "lp-pul", "energy"])
@pytest.mark.parametrize("rotations", [3, 1])
def test_the_rows_fitted_on_have_the_scores_of_the_fit_to_the_last_bit(world, old_graph, name, rotations, tmp_path):
    model = fit(name, old_graph, rotations)
    model.save(tmp_path / "model")
    nodes, edges = world.old.sample(fraction=1, shuffle=True, seed=1), world.old_edges.reverse()
    for used in (model, Calibrated.load(tmp_path / "model")):
        found = score_table(used, nodes, edges)
        assert found["id"].to_list() == nodes["id"].to_list()  # in the order of the table
        assert by_id(found).equals(expected(model, old_graph))


@pytest.mark.parametrize("first", [0, 995])
def test_whole_number_ids_of_parquet_files_are_the_same_nodes(world, tmp_path, first):
    number = {name: first + k for k, name in enumerate(world.old["id"])}
    nodes = world.old.with_columns(pl.col("id").replace_strict(number))
    edges = world.old_edges.with_columns(pl.col("a", "b").replace_strict(number))
    nodes.write_parquet(tmp_path / "nodes.parquet")
    edges.write_parquet(tmp_path / "edges.parquet")
    files = (tmp_path / "nodes.parquet", tmp_path / "edges.parquet")
    graph = read_graph(*files)
    assert graph.ids.dtype.kind == "i"
    model = recoslip.calibrate(quick(), graph, rotations=3)
    assert by_id(score_table(model, *files)).equals(expected(model, graph))
    nodes.sample(fraction=1, shuffle=True, seed=2).write_csv(tmp_path / "nodes.csv")  # there they are text
    found, exact = by_id(score_table(model, tmp_path / "nodes.csv", files[1])), expected(model, graph)
    assert found["id"].equals(exact["id"])
    for column in ("score", "p_value"):  # text is sorted in another order, and sums are rounded in that order
        np.testing.assert_allclose(found[column].cast(float), exact[column].cast(float), rtol=1e-5)
    assert found["listed"].equals(exact["listed"])


def test_target_rows_given_again_beside_the_old_ones_have_the_scores_of_the_fit(world, old_graph, fitted):
    some = world.old.filter(pl.col("domain") == 1).tail(40)
    found = score_table(fitted, some, None, **world.given)
    of_fit = expected(fitted, old_graph).filter(pl.col("id").is_in(some["id"].implode()))
    assert by_id(found).equals(of_fit)


def test_source_rows_alone_have_scores_and_no_p_values(world, old_graph, fitted):
    found = score_table(fitted, world.old.filter(pl.col("domain") == 0), world.old_edges)
    assert found["p_value"].null_count() == found.height
    assert not found["listed"].any()


def test_edges_with_weights_that_are_given_twice_count_once(world):
    graph = read_graph(world.old, world.old_edges, weight="w")
    model = recoslip.calibrate(quick(), graph, rotations=3)
    again = score_table(model, world.old, world.old_edges, weight="w", **world.given)
    assert by_id(again).equals(expected(model, graph))


# New nodes


def test_new_nodes_are_scored_with_old_ones_as_tables_as_a_packed_graph_and_without(world, fitted, tmp_path):
    world.old.write_csv(tmp_path / "nodes.csv")
    world.old_edges.write_csv(tmp_path / "edges.csv")
    pack(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "packed")
    with_tables = score_table(fitted, world.new, world.new_edges, **world.given)
    with_files = score_table(
        fitted, world.new, world.new_edges, old_nodes=tmp_path / "nodes.csv", old_edges=tmp_path / "edges.csv"
    )
    with_packed = score_table(fitted, world.new, world.new_edges, old_nodes=open_packed(tmp_path / "packed"))
    alone = score_table(fitted, world.new, world.new_edges)
    assert with_tables.equals(with_files)
    assert with_tables.equals(with_packed)
    for found in (with_tables, alone):
        assert found.columns == ["id", "score", "p_value", "listed"]
        assert found["id"].to_list() == world.new["id"].to_list()
        assert found["p_value"].is_between(0, 1).all()
    assert (with_tables["score"] - alone["score"]).abs().max() > 0.001  # half of the neighbours are missing


def test_novel_new_nodes_rank_above_known_new_ones(world, fitted):
    for options, least in ((world.given, 0.9), ({}, 0.8)):  # without old nodes, most neighbours are missing
        found = score_table(fitted, world.new, world.new_edges, **options)
        assert auroc(world.novel, found["score"].to_numpy()) > least


@pytest.mark.parametrize("name", ["domain-discriminator", "nearest-source", "lp-pul"])
def test_few_known_new_nodes_have_low_p_values(name):
    low = []
    for seed in range(1, 5):
        own = make_world(seed, nodes=300)
        model = recoslip.calibrate(quick(name, random_state=seed), read_graph(own.old, own.old_edges), rotations=3)
        p = score_table(model, own.new, own.new_edges, **own.given)["p_value"].to_numpy()[~own.novel]
        low += (p <= 0.1).tolist()
    assert len(low) > 100
    assert np.mean(low) <= 0.15


def test_a_row_of_the_old_table_given_again_is_taken_from_the_new_one_and_counted(world, fitted):
    again = world.old.filter(pl.col("domain") == 1).head(3).drop("domain").with_columns(x0=pl.lit(50.0))
    both = pl.concat([world.new, again])
    new = read_table(fitted, both, world.new_edges, **world.given)
    assert (new.replaced, new.old) == (3, world.old.height)
    assert new.graph.num_nodes == world.old.height + world.new.height
    assert new.graph.ids[new.is_new].tolist() == both["id"].to_list()
    column, state = new.graph.feature_names.index("x0"), fitted.fits[0].encoding_["x0"]
    value = (50 - state["median"] - state["mean"]) / state["scale"] * state["weight"]
    x = dense_x(new.graph)
    assert x[-3:, column].tolist() == pytest.approx([value] * 3, rel=1e-5)
    every = {tuple(sorted(edge)) for edge in [*world.old_edges.select("a", "b").rows()]}
    every |= {tuple(sorted(edge)) for edge in world.new_edges.select("a", "b").rows()}
    found = {tuple(sorted(edge)) for edge in new.graph.ids[new.graph.edge_index].T.tolist()}
    assert found == every  # the edges of a row that is given again stay


def test_new_ids_that_are_repeated_are_refused_with_and_without_old_nodes(world, fitted):
    twice = pl.concat([world.new, world.new.head(1)])
    for options in ({}, world.given):
        with pytest.raises(TableError, match=r"ids in the nodes table must be unique; 1 are repeated"):
            read_table(fitted, twice, None, **options)


def test_old_nodes_that_were_source_are_source_and_all_others_target(world, fitted):
    new = read_table(fitted, world.new, world.new_edges, **world.given)
    source = set(world.old.filter(pl.col("domain") == 0)["id"])
    assert set(new.graph.ids[~new.graph.is_target]) == source
    assert read_table(fitted, world.new, world.new_edges).graph.is_target.all()


def test_edges_to_nodes_that_are_not_given_are_dropped_and_counted_without_old_nodes(world, fitted):
    new = read_table(fitted, world.new, world.new_edges)
    assert new.graph.num_edges == world.inner_edges.height
    assert new.lost_edges == world.new_edges.height - world.inner_edges.height > 0


def test_edges_to_nodes_in_no_table_are_refused_beside_old_ones_unless_they_are_to_be_dropped(world, fitted):
    edges = pl.concat([world.new_edges, pl.DataFrame({"a": [world.new["id"][0]], "b": ["nobody"], "w": [1.0]})])
    with pytest.raises(TableError, match=r"names 1 ids that the nodes table does not have .*'nobody'"):
        read_table(fitted, world.new, edges, **world.given)
    dropped = score_table(fitted, world.new, edges, drop_unknown=True, **world.given)
    assert dropped.equals(score_table(fitted, world.new, world.new_edges, **world.given))


@pytest.mark.parametrize("weighted", [True, False])
def test_weights_of_old_or_of_new_edges_alone_are_refused(world, weighted):
    old = read_graph(world.old, world.old_edges, weight="w" if weighted else None)
    model = quick(epochs=2).fit(old)
    with pytest.raises(TableError, match="must all have weights, or none"):
        read_table(model, world.new, world.new_edges, old_nodes=old, weight=None if weighted else "w")
    both = read_table(model, world.new, world.new_edges, old_nodes=old, weight="w" if weighted else None)
    assert (both.graph.edge_weight is not None) == weighted


def test_weights_of_old_and_new_edges_stay_theirs(world):
    old = read_graph(world.old, world.old_edges, weight="w")
    new = read_table(quick(epochs=2).fit(old), world.new, world.new_edges, old_nodes=old, weight="w")
    expected = {frozenset((a, b)): w for a, b, w in [*world.old_edges.rows(), *world.new_edges.rows()]}
    ends = new.graph.ids[new.graph.edge_index]
    found = {frozenset(pair): w for pair, w in zip(ends.T.tolist(), new.graph.edge_weight.tolist(), strict=True)}
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["lp-pul", "nearest-source"])
def test_a_detector_that_scores_by_source_nodes_says_so_without_them_and_works_with_them(world, old_graph, name):
    model = recoslip.calibrate(quick(name), old_graph, rotations=3)
    with pytest.raises(GraphError, match=rf"{name} scores nodes by the source nodes .*\(old=\.\.\."):
        score_table(model, world.new, world.new_edges)
    found = score_table(model, world.new, world.new_edges, **world.given)
    assert found["score"].is_between(0, 1).all()
    assert found["p_value"].null_count() == 0


def test_a_detector_fitted_without_edges_leaves_edges_out_and_says_so(world, caplog):
    model = recoslip.calibrate(quick(), read_graph(world.old, None), rotations=3)
    without = score_table(model, world.new, None, old_nodes=world.old)
    with caplog.at_level("INFO", "recoslip"):
        given = score_table(model, world.new, world.new_edges, **world.given)
    assert "edges are left out, as the graph that was fitted had none" in caplog.messages
    assert given.equals(without)


def test_a_detector_without_an_encoder_says_so(world, graph):
    model = quick(epochs=2).fit(graph)
    with pytest.raises(TableError, match="this detector has no encoder"):
        score_table(model, world.new, world.new_edges)


def test_an_unfitted_detector_says_so(world):
    with pytest.raises(ValueError, match="not fitted yet"):
        score_table(quick(), world.new, world.new_edges)


def test_old_edges_without_a_table_of_old_nodes_are_refused(world, fitted, old_graph):
    for options in ({}, {"old_nodes": old_graph}):
        with pytest.raises(TableError, match="old edges go with a table of old nodes"):
            read_table(fitted, world.new, None, old_edges=world.old_edges, **options)


def test_an_old_graph_of_another_encoder_is_refused(world, fitted):
    other = read_graph(world.old.head(150), None)
    with pytest.raises(TableError, match="made by another encoder than the model's"):
        read_table(fitted, world.new, None, old_nodes=other)


def test_a_repeated_id_is_refused_and_rows_without_ids_are_numbered(world, fitted):
    with pytest.raises(TableError, match="unique"):
        read_table(fitted, pl.concat([world.new, world.new.head(1)]), world.new_edges)
    with pytest.raises(GraphError, match="unique"):
        read_table(fitted, pl.concat([world.new, world.new.head(1)]), None)
    numbered = read_table(fitted, world.new.drop("id"), None)
    assert numbered.graph.ids[0] == "new row 0"
    with pytest.raises(TableError, match="no column 'ids'"):
        read_table(fitted, world.new, None, id="ids")


def test_a_number_too_large_for_single_precision_is_refused_in_our_words(world, fitted):
    with pytest.raises(GraphError, match="extreme values"):
        score_table(fitted, world.new.with_columns(x0=pl.lit(1e90)), None)


def test_pandas_frames_are_read(world, fitted):
    found = score_table(fitted, world.new.to_pandas(), world.new_edges.to_pandas())
    assert found.equals(score_table(fitted, world.new, world.new_edges))


def test_a_missing_column_can_be_renamed_or_filled(world, fitted):
    renamed = world.new.rename({"x0": "x0_eur"})
    with pytest.raises(TableError, match=r"rename=.*'new': 'x0'"):
        score_table(fitted, renamed, None)
    as_it_was = score_table(fitted, world.new, None)
    assert score_table(fitted, renamed, None, rename={"x0_eur": "x0"}).equals(as_it_was)
    assert score_table(fitted, renamed, None, impute=True)["score"].is_between(0, 1).all()


# Transfer


@pytest.mark.parametrize("name", ["domain-discriminator", "reco-slip-plus", "nearest-source", "lp-pul"])
def test_the_transfer_to_the_graph_that_was_fitted_is_the_model_itself(old_graph, name):
    model = fit(name, old_graph, 3)
    order = np.random.default_rng(3).permutation(old_graph.num_nodes)
    for graph, back in ((old_graph, np.arange(len(order))), (old_graph.permuted(order), order)):
        view = model.transfer(graph)
        assert view.is_about(graph)
        assert (view.threshold(), view.transferred, view.is_calibrated) == (model.threshold(), False, True)
        for attribute in ("scores", "is_target", "calibration", "node"):
            np.testing.assert_array_equal(getattr(view, attribute), getattr(model, attribute)[back])
        np.testing.assert_array_equal(view.p_values(), model.p_values()[back])
        np.testing.assert_array_equal(view.select(), model.select()[back])


def test_a_transfer_changes_nothing_on_the_detector(world, fitted):
    before = {name: np.copy(value) for name, value in vars(fitted).items() if isinstance(value, np.ndarray)}
    view = fitted.transfer(read_table(fitted, world.new, world.new_edges, **world.given).graph)
    assert view.transferred
    assert not fitted.transferred
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(fitted, name), value)


def test_a_transfer_can_be_about_some_of_the_nodes(world, fitted):
    graph = read_table(fitted, world.new, world.new_edges, **world.given).graph
    whole, nodes = fitted.transfer(graph), np.array([5, 3, graph.num_nodes - 1, 0])
    some = fitted.transfer(graph, nodes)
    for attribute in ("scores", "is_target", "calibration", "node"):
        np.testing.assert_array_equal(getattr(some, attribute), getattr(whole, attribute)[nodes])
    assert some.is_about(graph.subgraph(nodes))


def test_a_transferred_detector_is_saved_as_one(world, fitted, tmp_path):
    graph = read_table(fitted, world.new, world.new_edges, **world.given).graph
    view = fitted.transfer(graph)
    view.save(tmp_path / "model")
    again = Calibrated.load(tmp_path / "model")
    assert again.transferred
    assert again.is_about(graph)
    np.testing.assert_array_equal(again.p_values(), view.p_values())


def test_a_detector_is_about_a_graph_with_its_nodes_order_and_domains_alone(old_graph, fitted):
    assert fitted.is_about(old_graph)
    assert not fitted.is_about(old_graph.permuted(np.roll(np.arange(old_graph.num_nodes), 1)))
    assert not fitted.is_about(old_graph.subgraph(np.arange(old_graph.num_nodes - 1)))
    assert not fitted.is_about(old_graph.with_target(~old_graph.is_target))


def test_another_graph_is_analysed_if_it_has_calibration_nodes_and_refused_otherwise(world, fitted):
    graph = read_table(fitted, world.new, world.new_edges, **world.given).graph
    findings = find_novel(fitted, graph, grouped=False)
    assert findings.model.transferred
    np.testing.assert_array_equal(findings.p_value, fitted.transfer(graph).p_values())
    assert findings.table().height == graph.num_nodes
    assert set(graph.ids[findings.listed]) <= set(graph.ids[graph.is_target])
    alone = read_table(fitted, world.new, world.new_edges).graph
    with pytest.raises(GraphError, match=r"fitted on another graph, .*none of the source nodes .* calibrated by"):
        find_novel(fitted, alone, grouped=False)


def test_the_promise_of_a_transfer_says_that_it_is_one(world, fitted, old_graph):
    graph = read_table(fitted, world.new, world.new_edges, **world.given).graph
    assert find_novel(fitted, graph, grouped=False).guarantee != find_novel(fitted, old_graph, grouped=False).guarantee


def test_a_subgraph_has_the_edges_among_its_nodes_in_the_order_asked_for(old_graph):
    nodes = np.array([9, 2, 40, 7, 100])
    part = old_graph.subgraph(nodes)
    assert part.ids.tolist() == old_graph.ids[nodes].tolist()
    assert part.is_target.tolist() == old_graph.is_target[nodes].tolist()
    assert part.encoding == old_graph.encoding
    inside = {tuple(pair) for pair in old_graph.ids[old_graph.edge_index].T.tolist()}
    chosen = set(part.ids.tolist())
    found = {tuple(pair) for pair in part.ids[part.edge_index].T.tolist()}
    assert found == {pair for pair in inside if set(pair) <= chosen}
    one = old_graph.subgraph(np.flatnonzero(old_graph.is_target))
    with pytest.raises(GraphError, match="source"):
        one.require_both_domains()


def test_an_id_has_one_hash_however_its_column_is_typed():
    assert id_hashes([7, "7", np.int64(7), np.str_("7")]).tolist() == [id_hashes(["7"])[0]] * 4
    assert len(set(id_hashes(range(10_000)).tolist())) == 10_000
    assert id_hashes([]).shape == (0,)


# Scored


def test_with_old_nodes_there_are_findings_of_source_and_new_nodes_alone(world, fitted):
    new = read_table(fitted, world.new, world.new_edges, **world.given)
    scored = Result(*score_new(fitted, new, check_new(fitted, new), grouped=False))
    assert set(scored.table["id"]) == set(world.new["id"])
    assert scored.table["score"].is_sorted(descending=True)
    expected = score_table(fitted, world.new, world.new_edges, **world.given)
    assert same_bits(by_id(scored.table)["score"], by_id(expected)["score"])
    assert same_bits(by_id(scored.table)["p_value"], by_id(expected)["p_value"])
    targets = scored.findings.graph.ids[scored.findings.graph.is_target]
    assert set(targets) == set(world.new["id"])
    summary = scored.to_dict()
    assert summary["nodes"] == world.new.height
    assert summary["listed"] == scored.table["listed"].sum()
    assert summary["headline"] == scored.findings.headline()
    assert json.loads(json.dumps(summary)) == summary


def test_without_old_nodes_there_is_a_list_without_a_promise(world, fitted):
    new = read_table(fitted, world.new, world.new_edges)
    scored = Result(*score_new(fitted, new, check_new(fitted, new)))
    assert scored.findings is None
    assert scored.verdict.kind == "inconclusive"
    assert f"{int(fitted.calibration.sum())} source nodes" in scored.guarantee
    expected = score_table(fitted, world.new, world.new_edges)
    for column in ("score", "p_value", "listed"):
        assert same_bits(by_id(scored.table)[column], by_id(expected)[column])
    by_rate = score_new(fitted, new, check_new(fitted, new), fdr=0.3)
    p = by_rate.table["p_value"].to_numpy()
    assert by_rate.table["listed"].to_list() == benjamini_hochberg(p, 0.3).tolist()


def test_the_advice_to_give_the_old_nodes_is_not_given_to_who_gave_them(world, fitted):
    source = world.old.filter(pl.col("domain") == 0).head(10)
    new = read_table(fitted, source, None, **world.given)
    scored = Result(*score_new(fitted, new, check_new(fitted, new), grouped=False))
    assert scored.table["domain"].unique().to_list() == ["source"]
    assert "Give the old nodes" not in scored.guarantee


# The look before scoring

SHOP = pl.DataFrame(
    {
        "id": [f"s{k:03}" for k in range(200)],
        "domain": [k % 2 for k in range(200)],
        "price": np.random.default_rng(0).normal(10, 2, 200),
        "brand": [BRANDS[k % 3] for k in range(200)],
        "title": [("red hat", "blue hat", "red coat", "blue coat")[k % 4] for k in range(200)],
    }
)
SHOP_EDGES = pl.DataFrame({"a": SHOP["id"].head(199), "b": SHOP["id"].tail(199)})
OLD_SHOP = {"old_nodes": SHOP, "old_edges": SHOP_EDGES}


@pytest.fixture(scope="module")
def clerk():
    return recoslip.calibrate(quick(epochs=2), read_graph(SHOP, SHOP_EDGES, text=["title"]), rotations=3)


def arrivals(rows=60, **columns):
    rng = np.random.default_rng(1)
    frame = SHOP.sample(rows, seed=1, with_replacement=True).drop("domain")
    frame = frame.with_columns(
        id=pl.Series([f"t{k:03}" for k in range(rows)]), price=pl.Series(rng.normal(10, 2, rows))
    )
    return frame.with_columns(**columns)


def look(clerk, nodes, edges=None, **options):
    check = check_new(clerk, read_table(clerk, nodes, edges, **options))
    assert json.loads(json.dumps(check.to_dict())) == check.to_dict()
    assert check.to_dict()["rows"] == [list(row) for row in check.rows()]
    return dict(check.rows())


NOT_GIVEN = "Not given."
NOT_COMPARED = "No source node of the fit is given, so there are no regions and no groups."
NOT_FAR = "No column is far from the table that was fitted."


def test_rows_like_those_fitted_are_said_to_be_like_them(clerk):
    old_nodes = f"{NOT_GIVEN} {NOT_COMPARED}"
    assert look(clerk, arrivals()) == {"new nodes": "60 rows.", "old nodes": old_nodes, "drift": NOT_FAR}
    assert look(clerk, arrivals(1))["new nodes"] == "1 row."


def test_rows_that_took_part_in_the_fit_are_counted(clerk):
    both = pl.concat([arrivals(5), SHOP.filter(pl.col("domain") == 1).head(7).drop("domain")])
    assert look(clerk, both)["new nodes"] == "12 rows, of which 7 took part in the fit."


def test_old_nodes_and_those_given_again_are_counted(clerk):
    assert look(clerk, arrivals(), **OLD_SHOP)["old nodes"] == "200 nodes. Neighbourhoods are complete."
    both = pl.concat([arrivals(5), SHOP.head(7).drop("domain")])
    found = look(clerk, both, **OLD_SHOP)
    again = "200 nodes, 7 of them given again and taken from the new table. Neighbourhoods are complete."
    assert found["old nodes"] == again
    assert found["new nodes"] == "12 rows, of which 7 took part in the fit."


def test_old_nodes_all_of_which_are_given_again_are_still_given(clerk):
    found = look(clerk, pl.concat([arrivals(5), SHOP.drop("domain")]), **OLD_SHOP)
    assert found["old nodes"].startswith("200 nodes, 200 of them given again")


def test_neighbourhoods_are_not_called_complete_where_edges_were_dropped(clerk):
    edges = pl.DataFrame({"a": ["t000", "t001"], "b": ["nobody", "s000"]})
    assert "complete" not in look(clerk, arrivals(), edges, drop_unknown=True, **OLD_SHOP)["old nodes"]


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [(1, "1 edge leads"), (2, "2 edges lead"), (1200, "1,200 edges lead")],
)
def test_edges_that_lead_out_of_the_table_are_counted(clerk, lost, sentence):
    edges = pl.DataFrame({"a": ["t000", *["t001"] * lost], "b": ["t002", *[f"s{k}" for k in range(lost)]]})
    not_given = f"{NOT_GIVEN} {sentence} to nodes that are not given, and cannot be used. {NOT_COMPARED}"
    assert look(clerk, arrivals(), edges)["old nodes"] == not_given


def test_the_old_nodes_need_not_be_given_where_the_table_holds_the_source_nodes_itself(clerk):
    check = check_new(clerk, read_table(clerk, SHOP, SHOP_EDGES))
    assert check.compared
    assert dict(check.rows())["old nodes"] == "Not given."


def test_old_nodes_without_those_of_the_source_are_counted_and_said_to_give_no_groups(clerk):
    targets = SHOP.filter(pl.col("domain") == 1)
    check = check_new(clerk, read_table(clerk, arrivals(), old_nodes=targets))
    assert not check.compared
    assert check.new.old == targets.height
    missing = "100 nodes of the fit are not given. Their edges, which the fit had, are not given."
    assert dict(check.rows())["old nodes"] == f"{targets.height} nodes. {missing} {NOT_COMPARED}"


@pytest.mark.parametrize(
    ("old", "edges", "said"),
    [
        (SHOP, None, "200 nodes. Their edges, which the fit had, are not given."),
        (SHOP.head(199), SHOP_EDGES.head(198), "199 nodes. 1 node of the fit is not given."),
    ],
)
def test_neighbourhoods_are_not_called_complete_where_old_nodes_or_edges_are_missing(clerk, old, edges, said):
    assert look(clerk, arrivals(), old_nodes=old, old_edges=edges)["old nodes"].startswith(said)


def test_what_is_said_of_regions_and_groups_is_so(clerk, world, fitted):
    """The table that was fitted holds the source nodes, so that there are findings without --with."""
    new = read_table(fitted, world.old, world.old_edges)
    check = check_new(fitted, new)
    scored = Result(*score_new(fitted, new, check, grouped=False))
    says_none = "no regions and no groups" in dict(check.rows())["old nodes"]
    assert says_none == (scored.findings is None)


def test_columns_without_use_are_named(clerk):
    assert look(clerk, arrivals(rating=pl.lit(1)))["unused"] == "rating: columns that the model was not fitted with."
    four = arrivals(c1=pl.lit(1), c2=pl.lit(1), c3=pl.lit(1), c4=pl.lit(1))
    assert look(clerk, four)["unused"] == "c1, c2, c3 and 1 more: columns that the model was not fitted with."


def test_a_renamed_column_is_not_said_to_have_no_use(clerk):
    renamed = arrivals().rename({"price": "price_eur"})
    assert "unused" not in look(clerk, renamed, rename={"price_eur": "price"})


def test_filled_values_are_counted(clerk):
    holes = arrivals(price=pl.when(pl.int_range(pl.len()) < 4).then(None).otherwise("price"))
    assert look(clerk, holes, impute=True)["missing"] == "price (4 rows): filled by what was learned of the old table."
    gone = look(clerk, arrivals().drop("brand"), impute=True)
    assert gone["missing"] == "brand (60 rows): filled by what was learned of the old table."


def test_values_that_were_not_seen_are_counted(clerk):
    first = pl.int_range(pl.len()) < 3
    strange = arrivals(
        brand=pl.when(first).then(pl.lit("dune")).otherwise("brand"),
        title=pl.when(first).then(pl.lit("unheard of")).otherwise("title"),
    )
    found = look(clerk, strange)
    expected = "brand (3 rows), title (3 rows): values that were not seen, or texts without a known word."
    assert found["unknown"] == expected
    assert found["drift"] == NOT_FAR  # 5 % of the rows


def test_columns_that_are_far_are_named_with_how_far_the_farthest_first(clerk):
    far = arrivals(price=pl.col("price") + 6.0, brand=pl.lit("acme"))
    found = look(clerk, far)["drift"]
    price, brand = found.index("price ("), found.index("brand (")
    assert price < brand
    assert "standard deviations away" in found[price:brand]
    assert 2.5 < float(found[price + len("price (") :].split()[0]) < 3.5  # the deviation is 2
    assert "% of its values or words changed" in found[brand:]
    assert "title" not in found
    assert found.startswith("Far from the table that was fitted: ")
    assert "fit again with the new nodes among the target" in found


def test_rows_that_hold_nothing_seen_before_make_a_column_far(clerk):
    found = look(clerk, arrivals(title=pl.lit("wholly unheard of")))["drift"]
    assert "title (100 % of the rows hold nothing that was seen before)" in found


def test_shift_below_the_limit_is_not_called_far(clerk):
    assert look(clerk, arrivals(price=pl.col("price") + 1.0))["drift"] == NOT_FAR


# The command


@pytest.fixture
def run(forked):
    def run_command(*arguments, cwd, code=0):
        result = forked.run(*arguments, cwd=cwd)
        assert result.returncode == code, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        return result

    return run_command


@pytest.fixture(scope="module")
def folder(forked, world, tmp_path_factory):
    """Tables, and what `detect` made of the old ones."""
    path = tmp_path_factory.mktemp("score")
    for name in ("old", "old_edges", "new", "new_edges"):
        getattr(world, name).write_csv(path / f"{name}.csv")
    settings = ["--method", "domain-discriminator", "--epochs", "20", "--hidden-channels", "8", "--rotations", "3"]
    tables = ["old.csv", "old_edges.csv", "--max-fpr", "0.05"]
    result = forked.run("detect", *tables, *settings, "--out", "run", cwd=path)
    assert result.returncode == 0, result.stderr
    return path


NEW = ("--nodes", "new.csv", "--edges", "new_edges.csv")
WITH = ("--with", "old.csv", "old_edges.csv")


def scores(path):
    return by_id(pl.read_csv(path / "scores.csv"))


def test_the_command_gives_the_rows_fitted_on_the_numbers_of_detect(run, folder, tmp_path, world):
    world.old.sample(fraction=1, shuffle=True, seed=5).write_csv(tmp_path / "shuffled.csv")
    of_detect = scores(folder / "run").select("id", "domain", "score", "p_value", "listed")
    run("score", "run", "--nodes", "old.csv", "--edges", "old_edges.csv", "--out", tmp_path / "a", cwd=folder)
    assert scores(tmp_path / "a").select(of_detect.columns).equals(of_detect)
    shuffled = ("--nodes", tmp_path / "shuffled.csv", "--out", tmp_path / "b")
    run("score", "run/model", *shuffled, *WITH, cwd=folder)
    assert scores(tmp_path / "b").select(of_detect.columns).equals(of_detect)


def test_the_command_scores_new_nodes_as_the_library_does(run, folder, tmp_path, world):
    run("score", "run", *NEW, *WITH, "--out", tmp_path / "out", cwd=folder)
    model = Calibrated.load(folder / "run" / "model")
    expected = by_id(score_table(model, world.new, world.new_edges, **world.given))
    found = scores(tmp_path / "out")
    for column in ("id", "score", "p_value", "listed"):
        assert same_bits(found[column], expected[column])


def test_with_old_nodes_there_is_a_page_and_without_none_and_never_a_model(run, folder, tmp_path):
    result = run("score", "run", *NEW, *WITH, "--out", tmp_path / "a", "--title", "Today", cwd=folder)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "recoslip.json", "report.html", "report.json", "scores.csv", "summary.json",
    ]  # fmt: skip
    assert "Today" in (tmp_path / "a" / "report.html").read_text()
    assert "Neighbourhoods are complete" in " ".join(result.stdout.split())
    result = run("score", "run", *NEW, "--out", tmp_path / "b", cwd=folder)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["recoslip.json", "scores.csv", "summary.json"]
    assert "No statistical guarantee" in result.stdout


def test_a_packed_graph_of_the_old_nodes_gives_the_same_scores(run, folder, tmp_path):
    run("pack", "old.csv", "old_edges.csv", tmp_path / "packed", cwd=folder)
    run("score", "run", *NEW, "--with-packed", tmp_path / "packed", "--out", tmp_path / "a", cwd=folder)
    run("score", "run", *NEW, *WITH, "--out", tmp_path / "b", cwd=folder)
    assert scores(tmp_path / "a").equals(scores(tmp_path / "b"))


def test_old_nodes_without_edges_are_given_with_a_dash(run, folder, tmp_path, world):
    run("score", "run", "--nodes", "new.csv", "--with", "old.csv", "-", "--out", tmp_path / "out", cwd=folder)
    expected = score_table(Calibrated.load(folder / "run" / "model"), world.new, None, old_nodes=world.old)
    assert same_bits(scores(tmp_path / "out")["score"], by_id(expected)["score"])


def test_json_prints_the_summary_alone_and_quiet_prints_nothing(run, folder, tmp_path):
    for number, options in enumerate((WITH, ())):
        out = tmp_path / f"json{number}"
        result = run("score", "run", *NEW, *options, "--json", "--out", out, "--format", "parquet", cwd=folder)
        assert json.loads(result.stdout) == json.loads((out / "summary.json").read_text())
        summary = json.loads(result.stdout)
        assert summary["listed"] == pl.read_parquet(out / "scores.parquet")["listed"].sum()
        assert summary["check_before_scoring"]["rows_read"] == summary["nodes"]
        assert summary["recoslip"] == recoslip.__version__
    assert run("score", "run", *NEW, "--quiet", "--out", tmp_path / "quiet", cwd=folder).stdout == ""


@pytest.mark.parametrize("old", [WITH, ()], ids=["with", "without"])
def test_a_false_discovery_rate_or_another_false_positive_rate_gives_another_list(run, folder, tmp_path, old):
    listed = {}
    choices = {"own": [], "all": ["--max-fpr", "1"], "half": ["--fdr", "0.5"]}
    for name, options in choices.items():
        result = run("score", "run", *NEW, *old, *options, "--json", "--out", tmp_path / name, cwd=folder)
        listed[name] = json.loads(result.stdout)["listed"]
        assert scores(tmp_path / name)["listed"].sum() == listed[name]
    assert 0 < listed["own"] < listed["all"] == scores(tmp_path / "all").height
    half = scores(tmp_path / "half")
    assert half["listed"].to_list() == benjamini_hochberg(half["p_value"].to_numpy(), 0.5).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["missing", *NEW], "missing is not a saved detector"),
        (["damaged", *NEW], "damaged"),
        (["run", "--nodes", "no_x0.csv"], "no column 'x0'"),
        (["run", *NEW, *WITH, "--with-packed", "packed"], "not both"),
        (["run", *NEW, "--with-packed", "packed"], "packed"),
        (["run", *NEW, "--with", "old.csv", "nowhere.csv"], "nowhere.csv"),
        (["run", "--nodes", "nowhere.csv"], "nowhere.csv"),
        (["run", *NEW, "--rename", "x0"], "--rename must be pairs"),
        (["run", *NEW, "--rename", "y=x0"], "no column 'y'"),
        (["run", *NEW, "--fdr", "2"], "fdr"),
        (["run", *NEW, "--max-fpr", "2"], "max_fpr"),
        (["run", *NEW, "--format", "xlsx"], "format"),
        (["run", *NEW, "--id", "name"], "no column 'name'"),
        (["run", *NEW, "--device", "abacus"], "device"),
    ],
)
def test_a_mistake_ends_with_code_2_and_writes_nothing(run, folder, tmp_path, world, options, message):
    if not (folder / "damaged").exists():
        shutil.copytree(folder / "run" / "model", folder / "damaged")
        (folder / "damaged" / "model.json").write_text((folder / "damaged" / "model.json").read_text()[:-50])
        world.new.drop("x0").write_csv(folder / "no_x0.csv")
    result = run("score", *options, "--out", tmp_path / "out", cwd=folder, code=2)
    assert message in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_results_are_replaced_only_if_that_is_asked_for(run, folder, tmp_path):
    run("score", "run", *NEW, "--out", tmp_path / "out", cwd=folder)
    run("score", "run", *NEW, "--out", tmp_path / "out", cwd=folder, code=2)
    before = (tmp_path / "out" / "summary.json").stat().st_ino
    run("score", "run", *NEW, "--out", tmp_path / "out", "--force", cwd=folder)
    assert (tmp_path / "out" / "summary.json").stat().st_ino != before


def test_a_renamed_column_is_given_to_the_command(run, folder, tmp_path, world):
    world.new.rename({"x0": "size", "x1": "width"}).write_csv(tmp_path / "renamed.csv")
    rest = ("--edges", "new_edges.csv", "--rename", "size=x0,width=x1", "--out", tmp_path / "a")
    run("score", "run", "--nodes", tmp_path / "renamed.csv", *rest, cwd=folder)
    run("score", "run", *NEW, "--out", tmp_path / "b", cwd=folder)
    assert scores(tmp_path / "a").equals(scores(tmp_path / "b"))


def test_the_encoder_of_a_saved_model_is_that_of_the_tables(folder, world):
    model = Calibrated.load(folder / "run" / "model")
    assert model.fits[0].encoding_ == read_graph(world.old, None).encoding
    assert TableEncoder.from_json(model.fits[0].encoding_).feature_names == list(model.fits[0].feature_names_in_)
