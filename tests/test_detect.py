"""The front door: `recoslip.detect` and its result, in Python and on the command line."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import polars as pl
import pytest
import torch
from torch_geometric.data import HeteroData
from typer.testing import CliRunner

import recoslip
from recoslip import NodeGraph, detector
from recoslip.base.errors import RecoslipError, SettingError, TableError
from recoslip.data.datasets.block_model import csbm
from recoslip.products.cli import app

QUICK = {"epochs": 12, "hidden_channels": 8}
METHOD = {"method": "domain-discriminator", "settings": QUICK, "rotations": 2, "max_fpr": 0.2, "progress": False}
FLAGS = [
    "--method",
    "domain-discriminator",
    "--epochs",
    "12",
    "--hidden-channels",
    "8",
    "--rotations",
    "2",
    "--max-fpr",
    "0.2",
]
TABLES = {"domain": "region", "target": "north"}


@pytest.fixture(scope="module")
def drawn():
    return csbm(nodes=200, features=4, seed=3)


def make_tables(folder, graph, shift=0.0):
    """Write the graph as tables; features of target nodes may be shifted, so that the domains are separable."""
    names = [f"n{k:03}" for k in range(graph.num_nodes)]
    is_target = graph.is_target
    x = graph.x + shift * is_target[:, None]
    nodes = pl.DataFrame({"id": names, "region": np.where(is_target, "north", "south")})
    nodes = nodes.with_columns(**{f"x{k}": x[:, k].astype(float) for k in range(4)}, title=pl.Series(names) + " thing")
    ends = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    edges = pl.DataFrame({"a": np.array(names)[ends[0]], "b": np.array(names)[ends[1]]})
    nodes.write_csv(folder / "nodes.csv")
    edges.write_csv(folder / "edges.csv")
    return nodes, edges


@pytest.fixture(scope="module")
def folder(drawn, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    nodes, edges = make_tables(folder, drawn)
    nodes.write_parquet(folder / "nodes.parquet")
    edges.write_parquet(folder / "edges.parquet")
    graph = nx.Graph()
    for row in nodes.drop("title").iter_rows(named=True):
        graph.add_node(row.pop("id"), **row)
    graph.add_edges_from(edges.iter_rows())
    nx.write_graphml(graph, folder / "graph.graphml")
    recoslip.pack(folder / "nodes.csv", folder / "edges.csv", folder / "packed", ignore=["title"], **TABLES)
    write_cells(folder, nodes)
    write_pyg(folder, drawn)
    (folder / "separable").mkdir()
    make_tables(folder / "separable", drawn, shift=40.0)
    return folder


def write_cells(folder, nodes):
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    cells = anndata.AnnData(rng.poisson(2, (nodes.height, 12)).astype(np.float32))
    cells.obs_names, cells.var_names = nodes["id"].to_list(), [f"g{k}" for k in range(12)]
    cells.obs["region"] = nodes["region"].to_list()
    cells.write_h5ad(folder / "cells.h5ad")


def write_pyg(folder, graph):
    torch.save(graph.to_pyg(), folder / "graph.pt")
    several = HeteroData()
    several["product"].x, several["product"].is_target = map(torch.from_numpy, (graph.x, graph.is_target))
    several["shop"].x = torch.arange(10.0)[:, None]
    several["product", "like", "product"].edge_index = torch.from_numpy(graph.edge_index)
    sold = torch.stack([torch.arange(graph.num_nodes), torch.arange(graph.num_nodes) % 10])
    several["product", "sold by", "shop"].edge_index = sold
    torch.save(several, folder / "several.pt")


@pytest.fixture(scope="module")
def result(folder):
    return recoslip.detect(
        folder / "nodes.csv", folder / "edges.csv", keep=["title"], ignore=["title"], **TABLES, **METHOD
    )


def scores(table):
    return table.select("id", "score", "p_value", "listed").with_columns(pl.col("id").cast(pl.String)).sort("id")


CASES = {
    "csv": (["nodes.csv", "edges.csv"], {"ignore": ["title"]}),
    "parquet": (["nodes.parquet", "edges.parquet"], {"ignore": ["title"]}),
    "text": (["nodes.csv", "edges.csv"], {"text": ["title"]}),
    "graphml": (["graph.graphml"], {}),
    "cells": (["cells.h5ad"], {}),
    "separable": (["separable/nodes.csv", "separable/edges.csv"], {"ignore": ["title"], "align": "on"}),
    "packed": (["packed"], None),
    "pyg": (["graph.pt"], {"domain": "is_target"}),
    "several kinds": (["several.pt"], {"domain": "is_target", "scored": "product"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_command_line_gives_the_bits_that_python_gives(folder, tmp_path, case):
    files, options = CASES[case]
    read = {} if options is None else options if "domain" in options else TABLES | options
    result = recoslip.detect(*(folder / name for name in files), **read, **METHOD)
    flags = [
        text
        for name, value in read.items()
        for text in (f"--{name}", ",".join(value) if isinstance(value, list) else value)
    ]
    ended = CliRunner().invoke(
        app, ["detect", *(str(folder / name) for name in files), *flags, *FLAGS, "--out", str(tmp_path / "out")]
    )
    assert ended.exit_code == 0, ended.output
    loaded = recoslip.load(tmp_path / "out")
    assert scores(loaded.table).equals(scores(result.table))
    assert loaded.verdict == result.verdict
    assert loaded.novel_share == result.novel_share
    names = [replace(group, members=tuple(map(str, group.members))) for group in result.groups]  # ids are saved as text
    assert loaded.groups == tuple(names)
    assert loaded.check.rows() == result.check.rows()
    timeless = {name: value for name, value in result.to_dict().items() if name != "seconds"}
    assert json.loads(json.dumps(timeless)) == {k: v for k, v in loaded.to_dict().items() if k != "seconds"}
    assert (tmp_path / "out" / "report.html").is_file()


def forms(folder):
    nodes, edges = pl.read_csv(folder / "nodes.csv").drop("title"), pl.read_csv(folder / "edges.csv")
    yield "paths", (folder / "nodes.csv", folder / "edges.csv"), {"ignore": ["title"]}
    yield "polars", (nodes, edges), {}
    yield "pandas", (nodes.to_pandas(), edges.to_pandas()), {}
    yield "networkx", (nx.read_graphml(folder / "graph.graphml"),), {}
    yield "graphml", (str(folder / "graph.graphml"),), {}
    yield "packed", (str(folder / "packed"),), None
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph.DictList(
        [{"name" if k == "id" else k: v for k, v in row.items()} for row in nodes.to_dicts()],
        [{"source": row["a"], "target": row["b"]} for row in edges.to_dicts()],
    )
    yield "igraph", (graph,), {}


def test_every_form_of_a_graph_gives_the_same_bits(folder, result):
    for name, given, options in forms(folder):
        read = {} if options is None else TABLES | options
        same = recoslip.detect(*given, **read, **METHOD)
        assert scores(same.table).equals(scores(result.table)), name
    graph = recoslip.read_graph(folder / "nodes.csv", folder / "edges.csv", ignore=["title"], **TABLES)
    assert scores(recoslip.detect(graph, **METHOD).table).equals(scores(result.table))


def test_an_object_in_memory_gives_the_bits_of_its_file(folder):
    anndata = pytest.importorskip("anndata")
    for name, read, options in (
        ("graph.pt", torch.load, {"domain": "is_target"}),
        ("several.pt", torch.load, {"domain": "is_target", "scored": "product"}),
        ("cells.h5ad", anndata.read_h5ad, TABLES),
    ):
        given = read(folder / name, weights_only=False) if read is torch.load else read(folder / name)
        tables = [recoslip.detect(each, **options, **METHOD).table for each in (given, folder / name)]
        assert scores(tables[0]).equals(scores(tables[1])), name
    cells = anndata.read_h5ad(folder / "cells.h5ad")
    written = recoslip.cells.detect(cells, markers=False, **TABLES, **METHOD)
    assert scores(written.table).equals(scores(tables[0]))
    assert dict(zip(cells.obs_names, cells.obs["recoslip_score"], strict=True)) == dict(
        written.table.select("id", "score").iter_rows()
    )


def test_a_result_says_what_a_saved_one_says_and_goes_on_from_it(result, folder, tmp_path):
    out = result.save(tmp_path / "out", table="parquet", graph="gexf")
    assert {"scores.parquet", "graph.gexf", "report.html", "summary.json", "model"} <= {
        path.name for path in out.iterdir()
    }
    loaded = recoslip.load(out)
    assert repr(loaded) == repr(result)
    assert loaded.report().data == json.loads(json.dumps(result.report().data))
    target = result.table.filter(pl.col("p_value").is_not_null())
    assert result.select(max_fpr=0.2)["id"].to_list() == result.listed["id"].to_list()
    assert loaded.select(max_fpr=0.5)["id"].to_list() == target.filter(pl.col("p_value") <= 0.5)["id"].to_list()
    assert loaded.select(fdr=0.9).height >= loaded.select(fdr=0.1).height
    assert result.to_networkx().number_of_nodes() == result.table.height
    members = [name for group in result.groups for name in group.members]
    assert set(members) <= set(result.listed["id"])
    new = pl.read_csv(folder / "nodes.csv").head(5).with_columns(id=pl.format("q{}", "id")).drop("region")
    old = (folder / "nodes.csv", folder / "edges.csv")
    by_result, by_folder = result.score(new, old=old), recoslip.score(out, new, old=old)
    assert scores(by_result.table).equals(scores(by_folder.table))
    assert set(by_result.table["id"]) == set(new["id"])
    with pytest.raises(RecoslipError, match="holds no graph"):
        loaded.to_networkx()
    with pytest.raises(RecoslipError, match="already"):
        loaded.save(tmp_path / "other")
    with pytest.raises(RecoslipError, match="load_detector"):
        recoslip.load(out / "model")


def test_learning_moves_what_is_like_a_decision(result):
    first = result.table.filter(pl.col("domain") == "target")["id"].to_list()
    learned = result.learn([first[0]], [first[1]])
    by_id = dict(learned.select("id", "score").iter_rows())
    assert (by_id[first[0]], by_id[first[1]]) == (1.0, 0.0)
    assert set(learned.columns) == set(result.table.columns)
    assert len(set(result.suggest([first[0]], [first[1]], 5))) == 5


def test_a_notebook_shows_verdict_table_and_where_the_report_is(result, tmp_path):
    shown = result._repr_html_()
    assert result.verdict.sentence.split(":")[0] in shown
    assert "score" in shown
    result.save(tmp_path / "out")
    assert 'href="file:' in recoslip.load(tmp_path / "out")._repr_html_()
    hostile = recoslip.detect(
        NodeGraph([[0.0], [1.0], [2.0]] * 9, [[0], [1]], [False, True, False] * 9, columns={"<b>": ["<i>"] * 27}),
        **METHOD,
    )
    assert "<i>" not in hostile._repr_html_()


def test_the_detector_of_a_caller_is_not_changed(drawn):
    own = detector("domain-discriminator", **QUICK)
    before = vars(own).copy()
    result = recoslip.detect(drawn, method=own, max_fpr=1e-6, rotations=2, progress=False)
    assert vars(own) == before
    assert result.calibrated.max_fpr > 1e-6
    assert any("max_fpr" in note for note in result.notes)


def test_a_rate_that_cannot_be_reached_is_raised_and_said_everywhere(drawn, folder, tmp_path):
    result = recoslip.detect(drawn, **METHOD | {"max_fpr": 1e-6})
    lowest = 1 / (int(result.calibrated.calibration.sum()) + 1)
    assert result.calibrated.max_fpr == lowest
    assert f"{lowest:.3g}" in result.notes[0]
    by_fdr = recoslip.detect(drawn, **METHOD | {"max_fpr": None, "fdr": lowest / 10})
    assert "fdr" in by_fdr.notes[0]
    flags = ["--domain", "region", "--target", "north", "--ignore", "title", *FLAGS[:-2], "--fdr", str(lowest / 10)]
    ended = CliRunner().invoke(
        app, ["detect", str(folder / "nodes.csv"), str(folder / "edges.csv"), *flags, "--out", str(tmp_path / "out")]
    )
    assert f"--fdr {lowest / 10:g}"[:7] in ended.output
    assert recoslip.load(tmp_path / "out").notes == by_fdr.notes[:1] or recoslip.load(tmp_path / "out").notes


def leaking(folder):
    nodes = pl.read_csv(folder / "nodes.csv").drop("title")
    return nodes.with_columns(opened=pl.when(pl.col("region") == "north").then(2024).otherwise(2001).cast(pl.Float64))


def test_a_leak_stops_the_run_everywhere_and_is_allowed_everywhere(folder, tmp_path):
    nodes, edges = leaking(folder), pl.read_csv(folder / "edges.csv")
    with pytest.raises(SettingError, match=r"ignore=\['opened'\]"):
        recoslip.detect(nodes, edges, **TABLES, **METHOD)
    with pytest.raises(SettingError, match="allow_leak names no column"):
        recoslip.detect(nodes, edges, allow_leak=["size"], **TABLES, **METHOD)
    assert recoslip.detect(nodes, edges, allow_leak=["opened"], **TABLES, **METHOD).table.height == nodes.height
    assert [each.column for each in recoslip.check(nodes, edges, **TABLES).columns.leaks] == ["opened"]
    nodes.write_csv(tmp_path / "leak.csv")
    flags = ["--domain", "region", "--target", "north", *FLAGS, "--out", str(tmp_path / "out")]
    ended = CliRunner().invoke(app, ["detect", str(tmp_path / "leak.csv"), *flags])
    assert ended.exit_code == 2
    assert "--ignore opened" in " ".join(ended.stderr.split())
    assert not (tmp_path / "out").exists()
    ended = CliRunner().invoke(app, ["detect", str(tmp_path / "leak.csv"), *flags, "--allow-leak", "opened"])
    assert ended.exit_code == 0, ended.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"domian": "region"}, "did you mean 'domain'"),
        ({"method": "domain-discriminater"}, "did you mean 'domain-discriminator'"),
        ({"method": "lp-pul", "settings": {"epochs": 5}}, "no setting 'epochs'"),
        ({"method": detector("lp-pul"), "settings": {"epochs": 5}}, "its own"),
        ({"rotations": 1}, "rotations"),
        ({"fdr": 1.5}, "fdr"),
        ({"align": "yes"}, "align"),
        ({"fdr": 0.1, "max_fpr": 0.1}, "leave one out"),
        ({"use_rep": "X_pca"}, "AnnData"),
    ],
)
def test_wrong_options_are_refused_before_training(folder, options, said):
    def never(*_):
        raise AssertionError("training began")

    with pytest.raises(RecoslipError, match=said):
        recoslip.detect(folder / "nodes.csv", folder / "edges.csv", progress=never, **{"domain": "region", **options})


def test_settings_that_the_chosen_method_does_not_take_are_refused(drawn, tmp_path):
    make_tables(tmp_path, drawn, shift=40.0)
    nodes = pl.read_csv(tmp_path / "nodes.csv").drop("title")
    found = recoslip.check(nodes, **TABLES, align="off")
    leaks = [each.column for each in found.columns.leaks]
    assert found.method == "nearest-source"
    given = {**TABLES, "align": "off", "allow_leak": leaks, "progress": False}
    assert recoslip.detect(nodes, **given).calibrated.name == "nearest-source"
    with pytest.raises(SettingError, match="nearest-source is taken instead"):
        recoslip.detect(nodes, settings={"trees": 5}, **given)
    with pytest.raises(SettingError, match="scan has no setting 'epochs'"):
        recoslip.detect(nodes, settings={"epochs": 5}, **given)


def test_a_graph_that_has_its_domains_takes_no_options_of_reading(drawn, folder):
    for given in (drawn, folder / "packed"):
        with pytest.raises(SettingError, match="impute is about reading tables"):
            recoslip.detect(given, impute=True, **METHOD)
        with pytest.raises(SettingError, match="its own edges"):
            recoslip.detect(given, folder / "edges.csv", **METHOD)
    with pytest.raises(TableError, match="must be a file"):
        recoslip.detect({"id": [1]}, **METHOD)


def test_progress_is_reported_and_an_interrupt_leaves_nothing(drawn, tmp_path, monkeypatch):
    steps = []
    recoslip.detect(drawn, **METHOD | {"progress": lambda done, total: steps.append((done, total))})
    assert steps[-1][0] == steps[-1][1]

    def interrupt(done, total):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        recoslip.detect(drawn, **METHOD | {"progress": interrupt})
    assert not list(Path().iterdir())


def test_an_executor_fits_in_the_place_of_this_process(drawn, folder):
    given = []

    def fit(model, graph, *, rotations, max_fpr, progress):
        given.append(graph)
        graph = recoslip.open_packed(graph) if isinstance(graph, Path) else graph
        return recoslip.calibrate(model, graph, rotations=rotations, max_fpr=max_fpr)

    ours = recoslip.detect(drawn, **METHOD, executor=fit)
    assert scores(ours.table).equals(scores(recoslip.detect(drawn, **METHOD).table))
    recoslip.detect(folder / "packed", **METHOD, executor=fit)
    assert given == [drawn, folder / "packed"]


def test_messages_name_arguments_and_the_command_line_its_options(folder, caplog):
    with caplog.at_level(logging.INFO, "recoslip"):
        recoslip.check(folder / "nodes.csv", domain="region", target="north")
    assert not any("--" in record.getMessage() for record in caplog.records)
    ended = CliRunner().invoke(app, ["check", str(folder / "nodes.csv"), "--domain", "region"])
    assert ended.exit_code == 2
    assert "--target north" in " ".join(ended.stderr.split())
    with pytest.raises(TableError, match="target='north'"):
        recoslip.check(folder / "nodes.csv", domain="region")
