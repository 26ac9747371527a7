"""Remedies that messages name are applied: what was refused is read, checked or fitted then."""

import ast
import re
import warnings
from datetime import date, timedelta

import networkx as nx
import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

import recoslip
from recoslip import NodeGraph, read_graph
from recoslip.base.errors import RecoslipError, TableError
from recoslip.products.cli.console import ARGUMENT

ROWS = 40
IDS = [f"n{k}" for k in range(ROWS)]
NODES = pl.DataFrame({"id": IDS, "domain": ["source", "target"] * 20, "v": np.random.default_rng(0).normal(size=ROWS)})
EDGES = pl.DataFrame({"a": IDS[:-1], "b": IDS[1:], "w": np.arange(1.0, ROWS)})
DAYS = [date(2020, 1, 1) + timedelta(days=k) for k in range(ROWS)]
UNKNOWN = pl.concat([EDGES, pl.DataFrame({"a": ["zz"], "b": ["n1"], "w": [1.0]})])


def nodes(**columns):
    return NODES.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def weights(value):
    return EDGES.with_columns(w=pl.Series([1 if isinstance(value, str) else 1.0] * (ROWS - 2) + [value], strict=False))


MISSING = nodes(v=[None, *range(ROWS - 1)])
THREE = nodes(domain=["a", "b", "c", "a"] * 10)
NEAR = nodes(domain=["source", "source "] * 20)
EMPTY = nodes(id=[None, *IDS[1:]])
FAR = EDGES.with_columns(x=pl.lit("zz"), y=pl.lit("yy")).select("x", "y", "a", "b")
WHEN = nodes(when=DAYS)
OTHER = nodes(domain=["North Sea", "south"] * 20)
EVENTS = nodes(when=["1/2/2020", "3/4/2020"] * 20)
NOTES = nodes(v=[f"some words {k}" for k in range(ROWS)])

# What is given besides NODES and EDGES, a part of the refusal, and each remedy that it names, as what is then given.
READING = {
    "an unknown column": ({"id": "idd"}, "did you mean 'id'", [{"id": "id"}]),
    "an unknown domain": ({"domain": "domian"}, "did you mean 'domain'", [{"domain": "domain"}]),
    "an unknown argument": ({"domian": "domain"}, "did you mean 'domain'", [{"domain": "domain", "domian": None}]),
    "an unknown end": ({"edge_from": "aa"}, "did you mean 'a'", [{"edge_from": "a"}]),
    "an unknown column to ignore": ({"ignore": ["vv"]}, "it has id, domain, v", [{"ignore": []}]),
    "missing values": (
        {"nodes": MISSING.with_columns(u=NODES["v"]), "impute": False},
        "fill them, ignore the columns, or impute=True",
        [{"nodes": MISSING.fill_null(0.0)}, {"ignore": ["v"]}, {"impute": True}],
    ),
    "three domains": (
        {"nodes": THREE},
        "say which one is the target (target=...); all others are source",
        [{"target": "a"}, {"target": "c"}],
    ),
    "a domain of one value": (
        {"nodes": nodes(domain=["a"] * ROWS)}, "name another",
        [{"nodes": NODES.rename({"domain": "own"}), "domain": "own"}],
    ),
    "domains that name no target": ({"nodes": OTHER}, "say which one is the target", []),
    "domains that differ by a blank": ({"nodes": NEAR}, "say which one is the target", []),
    "a target that is no domain": ({"nodes": OTHER, "target": "North"}, "give one of them as it is written", []),
    "a target that is two domains": (
        {"nodes": nodes(domain=["Source", "source"] * 20), "target": "SOURCE"}, "give one of them as it is written", [],
    ),
    "nodes without a domain": (
        {"nodes": nodes(domain=[None] * ROWS).with_columns(pl.col("domain").cast(pl.String))},
        "name another column, or fill it",
        [{"nodes": NODES}],
    ),
    "a time without since": ({"nodes": WHEN, "time": "when"}, "needs both", [{"since": "2020-01-20"}]),
    "a since that is no date": (
        {"nodes": WHEN, "time": "when", "since": "soon"}, "a date such as 2007-01-31", [{"since": "2020-01-31"}],
    ),
    "a since outside": (
        {"nodes": WHEN, "time": "when", "since": "2030-01-01"},
        "it runs from 2020-01-01 to 2020-02-09",
        [{"since": "2020-02-09"}, {"since": "2020-01-02"}],
    ),
    "dates that may be read in two ways": (
        {"nodes": EVENTS, "time": "when", "since": "2020-02-15"},
        "write dates as 2007-01-31 (the year first) or 31.01.2007 (the day first)",
        [
            {"nodes": nodes(when=["2020-02-01", "2020-04-03"] * 20)},
            {"nodes": nodes(when=["01.02.2020", "03.04.2020"] * 20)},
        ],
    ),
    "ids that are repeated": (
        {"nodes": pl.concat([NODES, NODES[:1]])}, "leave the repeated rows out, or give them other ids",
        [{"nodes": NODES}, {"nodes": pl.concat([NODES, NODES[:1].with_columns(id=pl.lit("other"))])}],
    ),
    "ids that are missing": (
        {"nodes": EMPTY}, "fill it, or leave these rows out",
        [{"nodes": NODES}, {"nodes": NODES[1:], "drop_unknown": True}],
    ),
    "edges to unknown nodes": (
        {"edges": UNKNOWN},
        "add those nodes or pass drop_unknown=True, or name other columns",
        [{"nodes": pl.concat([NODES, NODES[:1].with_columns(id=pl.lit("zz"))])}, {"edge_from": "b", "edge_to": "b2",
          "edges": UNKNOWN.with_columns(b2=pl.lit("n0"))}],
    ),
    "edges none of which is left": (
        {"edges": FAR.select("x", "y"), "drop_unknown": True},
        "name the columns of the ends (edge_from=..., edge_to=...) or of the ids (id=...)",
        [{"edges": FAR, "edge_from": "a", "edge_to": "b"}, {"nodes": nodes(code=["zz", "yy", *IDS[2:]]), "id": "code",
          "ignore": ["id"]}],
    ),
    "both ends in one column": ({"edge_from": "a", "edge_to": "a"}, "name two", [{"edge_to": "b"}]),
    **{
        f"a weight of {value}": (
            {"edges": weights(value), "weight": "w"},
            "correct it, leave such rows out, or leave weight out",
            [{"edges": weights(1.0)}, {"edges": weights(value)[:-1]}, {"weight": None}],
        )
        for value in (-1.0, 0.0, float("inf"), None)
    },
    "weights that may be read in two ways": (
        {"edges": EDGES.with_columns(w=pl.lit("1,234")), "weight": "w"},
        "write it without the comma or with a point",
        [{"edges": EDGES.with_columns(w=pl.lit("1234"))}, {"edges": EDGES.with_columns(w=pl.lit("1.234"))}],
    ),
    "text that is not used": ({"nodes": NOTES}, "text=['v'] uses it", []),
    "text that is asked for as it is": ({"nodes": NOTES, "features": ["v"]}, "text=['v'] uses it", []),
    "dates that are not used": (
        {"nodes": nodes(v=DAYS)}, "time='v' takes it for the domain",
        [{"nodes": nodes(v=DAYS, u=range(ROWS)), "time": "v", "since": "2020-01-20"}],
    ),
    "a matrix of another shape": (
        {"edges": sp.eye(3)}, "must have shape (40, 40)", [{"edges": sp.coo_array(np.eye(ROWS, k=1))}],
    ),
}  # fmt: skip


def read(given):
    given = {name: value for name, value in given.items() if value is not None}
    return read_graph(given.pop("nodes", NODES), given.pop("edges", EDGES), **given)


def arguments_in(message):
    """Return the arguments that a message names with a value, one dictionary each."""
    found = []
    for match in ARGUMENT.finditer(message):
        if match["value"] != "..." and (match["value"] in ("True",) or match["value"][0] in "'\"[{0123456789"):
            found.append({match["name"]: ast.literal_eval(match["value"])})
    return found


@pytest.mark.parametrize("case", READING)
def test_a_table_is_read_once_the_remedy_is_applied(case):
    given, said, remedies = READING[case]
    with pytest.raises(RecoslipError, match=re.escape(said)) as refused:
        read(given)
    named = [
        each for each in arguments_in(said) or arguments_in(str(refused.value)) if not each.items() <= given.items()
    ]
    assert remedies or named
    for remedy in [*remedies, *(named if not (remedies and "since" in str(refused.value)) else [])]:
        if "time" in remedy and "since" not in {**given, **remedy}:
            continue  # needs a second argument, and is among the remedies with it
        assert read({**given, **remedy}).num_nodes >= ROWS - 11


def test_every_target_that_a_message_offers_gives_that_target():
    for domains in (["source", "source "], ["Source", "source"], ["'a'", '"a"'], ["a, b", "a"], ["1", "01"]):
        table = nodes(domain=domains * 20)
        with pytest.raises(TableError) as refused:
            read_graph(table, EDGES)
        offered = [each["target"] for each in arguments_in(str(refused.value))]
        assert sorted(offered) == sorted(domains)
        for target in offered:
            graph = read_graph(table, EDGES, target=target)
            assert (graph.is_target == (table["domain"] == target).to_numpy()).all()


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "cp1251", "shift_jis"])
def test_another_encoding_is_recognised(encoding, tmp_path):
    word = {"cp1251": "Москва, Санкт-Петербург и Новгород", "shift_jis": "東京都と大阪府と京都府"}.get(
        encoding, "Köln, Straße"
    )
    table = nodes(place=[word if k % 3 else "x" for k in range(ROWS)])
    path = tmp_path / "n.csv"
    path.write_bytes(table.write_csv().encode(encoding))
    graph = read_graph(path, EDGES)
    assert any(name.endswith(word.split(", ")[-1]) for name in graph.feature_names)
    assert f"was read as {encoding.replace(chr(95), chr(45))}, a guess (encoding=...)" in graph.reading.notes[0]


def test_each_encoding_that_is_offered_for_an_unknown_one_is_known(tmp_path):
    NODES.write_csv(tmp_path / "n.csv")
    with pytest.raises(TableError, match="there is no encoding") as refused:
        read_graph(tmp_path / "n.csv", EDGES, encoding="klingon")
    offered = re.findall(r"[a-z]+(?:-[a-z0-9]+)+|cp\d+|gb\d+", str(refused.value).split("such as")[1])
    assert len(offered) >= 6
    for encoding in offered:
        (tmp_path / "n.csv").write_bytes(NODES.write_csv().encode(encoding))
        assert read_graph(tmp_path / "n.csv", EDGES, encoding=encoding).num_nodes == ROWS


@pytest.mark.parametrize(("suffix", "write"), [("parquet", "write_parquet"), ("arrow", "write_ipc")])
def test_a_file_is_read_under_the_name_that_a_message_gives_it(suffix, write, tmp_path):
    path = tmp_path / "n.csv"
    getattr(NODES, write)(path)
    with pytest.raises(TableError, match=r"call it \.(\w+)") as refused:
        read_graph(path, EDGES)
    ending = re.search(r"call it \.(\w+)", str(refused.value))[1]
    assert ending == suffix
    assert read_graph(path.rename(tmp_path / f"n.{ending}"), EDGES).num_nodes == ROWS


def test_edges_of_networkx_get_a_weight_or_leave_all_out():
    graph = nx.path_graph(ROWS)
    nx.set_node_attributes(graph, {k: {"v": float(k), "domain": k % 2} for k in graph})
    nx.set_edge_attributes(graph, 2.0, "weight")
    del graph[3][4]["weight"]
    with pytest.raises(TableError, match=r"set it, such as to 1, or leave out all weights: weight=''"):
        read_graph(graph)
    assert read_graph(graph, weight="").edge_weight is None
    graph[3][4]["weight"] = 1
    assert np.unique(read_graph(graph).edge_weight).tolist() == [1.0, 2.0]


X = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
ENDS = np.array([range(ROWS - 1), range(1, ROWS)])
TARGET = np.arange(ROWS) % 2 == 1
DATES = np.array(DAYS, dtype="datetime64[D]")[:, None]
MASKED = np.ma.masked_less(X, -1)
ARRAYS = {
    "features without a value": ({"x": np.where(X < -1, np.nan, X)}, "fill or drop them", {"x": X}),
    "masked features": ({"x": MASKED}, "fill or drop them", {"x": MASKED.filled(0)}),
    "complex features": ({"x": X + 1j}, "take the real part or the absolute value", {"x": (X + 1j).real}),
    "dates as features": (
        {"x": DATES}, "divide the time since a date by a unit such as a day",
        {"x": (DATES - DATES[0]) / np.timedelta64(1, "D")},
    ),
    "edges the other way": ({"edge_index": ENDS.T}, "it looks transposed", {"edge_index": ENDS}),
    "weights that are too small": (
        {"edge_weight": np.full(ROWS - 1, 1e-60)}, "scale the weights",
        {"edge_weight": np.full(ROWS - 1, 1e-60) * 1e60},
    ),
    "ids in a set": ({"ids": set(IDS)}, "which has no order", {"ids": sorted(IDS)}),
}  # fmt: skip


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_are_a_graph_once_the_remedy_is_applied(case):
    given, said, remedy = ARRAYS[case]
    good = {"x": X, "edge_index": ENDS, "is_target": TARGET}
    with pytest.raises(RecoslipError, match=re.escape(said)):
        NodeGraph(**{**good, **given})
    assert NodeGraph(**{**good, **given, **remedy}).num_nodes == ROWS


def fit(table=NODES, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return recoslip.detect(table, EDGES, **{"method": "lp-pul", "rotations": 2, **options})


def source(count):
    return nodes(domain=["source"] * count + ["target"] * (ROWS - count))


SETTINGS = {
    "a leak": ({"table": nodes(leak=TARGET * 1.0)}, "says exactly the same as the domain", []),
    "an unknown method": ({"method": "lp-pull"}, "did you mean 'lp-pul'", [{"method": "lp-pul"}]),
    "an unknown setting": ({"settings": {"alhpa": 0.5}}, "did you mean 'alpha'", [{"settings": {"alpha": 0.5}}]),
    "a setting out of range": ({"settings": {"alpha": 2}}, "alpha must be", [{"settings": {"alpha": 0.5}}]),
    "too few source nodes for the rotations": ({"table": source(3)}, "pass rotations=3", []),
    "too few source nodes": ({"table": source(1)}, "give at least 2 more", [{"table": source(3), "rotations": 3}]),
    "a rate that cannot be": ({"max_fpr": 2}, "in 0 to 1", [{"max_fpr": 1.0}]),
    "a device that is not there": ({"device": "cuda:99"}, "use auto", [{"device": "auto"}, {"device": "cpu"}]),
    "a device without memory": ({"device": "meta"}, "use auto", [{"device": "auto"}]),
    "an alignment that is none": ({"align": "maybe"}, "one of off, on, auto", [{"align": a} for a in ("off", "auto")]),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_graph_is_fitted_once_the_remedy_is_applied(case):
    given, said, remedies = SETTINGS[case]
    with pytest.raises(RecoslipError, match=re.escape(said)) as refused:
        fit(**given)
    remedies = remedies or arguments_in(str(refused.value))
    assert remedies
    for remedy in remedies:
        assert fit(**{**given, **remedy}).table.height == ROWS
