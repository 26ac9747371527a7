"""Tables and graphs nobody means to hand in: each becomes a valid graph or an error of ours, and nothing else.

The cases are the same in every run, and of each kind at least a given fraction must be accepted, so that refusing too
much is noticed. RECOSLIP_FUZZ=20 draws twenty times as many, others each time.
"""

import codecs
import datetime
import functools
import importlib
import os
import pkgutil
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import recoslip
from recoslip import Calibrated, NodeGraph, detector, read_graph
from recoslip.base.errors import RecoslipError, RecoslipWarning
from recoslip.inference.analysis import find_novel
from recoslip.products.cli import app

TIMES = int(os.environ.get("RECOSLIP_FUZZ", "1"))

# Hypothesis also draws constants that it finds in the modules of the package. With all of them imported, the cases do
# not depend on which tests ran before.
for module in pkgutil.walk_packages(recoslip.__path__, "recoslip."):
    importlib.import_module(module.name)


def check_cases(is_accepted, strategy, *, count, accepted):
    """Call a function with drawn cases. It returns whether a case was accepted, and a fraction `accepted` must be."""
    outcomes = []

    @settings(max_examples=count * TIMES, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def check_case(case):
        outcomes.append(is_accepted(case))

    check_case()
    assert len(outcomes) >= count
    assert sum(outcomes) / len(outcomes) > accepted


def graph_or_error(build, *arguments, **options):
    """Return the graph, checked, or None where an error of ours came instead."""
    try:
        graph = build(*arguments, **options)
    except RecoslipError as problem:
        assert_has_message(problem)
        return None
    check(graph)
    return graph


def assert_has_message(problem):
    assert len(str(problem)) > 10


def check(graph):
    nodes = graph.num_nodes
    values = graph.x.data if sp.issparse(graph.x) else graph.x
    assert graph.x.shape == (nodes, graph.num_features)
    assert graph.x.dtype == np.float32
    assert nodes > 0
    assert graph.num_features > 0
    assert np.isfinite(values).all()
    left, right = graph.edge_index
    assert graph.edge_index.dtype == np.int64
    assert (left != right).all()
    keys = left * nodes + right
    assert (keys[1:] > keys[:-1]).all()  # sorted, and none twice
    assert np.array_equal(np.sort(right * nodes + left), keys)  # both directions
    if len(keys):
        assert 0 <= int(graph.edge_index.min()) <= int(graph.edge_index.max()) < nodes
    if graph.edge_weight is not None:
        assert graph.edge_weight.shape == left.shape
        assert (np.isfinite(graph.edge_weight) & (graph.edge_weight > 0)).all()
    assert graph.is_target.dtype == np.bool_
    assert graph.is_target.shape == (nodes,)
    assert graph.is_target.any()
    assert not graph.is_target.all()
    assert len(set(graph.ids.tolist())) == nodes
    for values in (graph.categories, graph.times):
        assert values is None or values.shape == (nodes,)
    assert graph.feature_names is None or len(graph.feature_names) == graph.num_features


# What tables are made of. Most of a table is tame, or every case would end at the first door.

WEIRD = [
    "",
    " ",
    "*",
    "^.*$",
    "id",
    "domain",
    "0",
    "007",
    "-1",
    "=1+1",
    "ключ",
    "مفتاح",
    "\u202eabc",
    "naïve",
    "🙂",
    "a,b",
    'q"q',
]
WEIRD += ["line\nbreak", "\t", "\x00", "None", "nan", "NaN", "inf", "1e400", "9" * 30, "2007-01-31", "null", "x" * 300]
EXTREME = [0.0, -0.0, 1e-300, 1e-40, 1e30, 1e39, 1e99, 1e200, 1.8e308, np.nan, np.inf, -np.inf]
WORDS = st.sampled_from(WEIRD) | st.text(max_size=5)
TAME = st.integers(-40, 40).map(lambda k: k / 8)
NUMBERS = TAME | st.sampled_from(EXTREME) | st.floats()
WHOLE = st.integers(-3, 3) | st.sampled_from([2**31, 2**53 + 1, -(2**63), 2**63 - 1])
DATES = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
ANYTHING = st.none() | WORDS | NUMBERS | WHOLE | st.booleans() | st.binary(max_size=3) | DATES
ROWS = st.sampled_from([6, 6, 6, 7, 8, 4, 3, 2, 1])
ODD_TYPES = [
    pl.Null,
    pl.Binary,
    pl.Duration,
    pl.Time,
    pl.Decimal(20, 2),
    pl.List(pl.String),
    pl.Struct({"a": pl.Int64}),
]
ODD_TYPES += [pl.Array(pl.Float64, 2), pl.Object, pl.UInt64, pl.Int8, pl.Categorical, pl.Float32]
DOMAINS = [("source", "target"), (0, 1), (False, True), ("0", "1"), (" Source", "TARGET "), (0.0, 1.0), ("x", "y")]


@functools.cache
def rarely_true(times):
    return st.sampled_from([False] * times + [True])


def seldom(draw, times=6):
    return draw(rarely_true(times))


@functools.cache
def of(values, rows):
    return st.lists(values, min_size=rows, max_size=rows)


@st.composite
def columns(draw, rows):
    """A column of features: tame, extreme, or of a kind that is none."""
    kind = draw(
        st.sampled_from(["tame", "tame", "extreme", "whole", "words", "few", "constant", "vector", "dates", "odd"])
    )
    if kind == "vector":
        width = draw(st.integers(1, 3))
        some = draw(
            st.sampled_from([of(TAME, width), of(NUMBERS, width), st.lists(NUMBERS | st.none(), max_size=width)])
        )
        series = pl.Series(draw(of(some, rows)), dtype=pl.List(pl.Float64))
    elif kind == "odd":
        series = odd(draw(of(ANYTHING, rows)), draw(st.sampled_from(ODD_TYPES)))
    else:
        values = {
            "tame": TAME,
            "extreme": NUMBERS,
            "whole": WHOLE,
            "words": WORDS,
            "few": st.sampled_from(["a", "b", ""]),
            "constant": st.just(draw(st.sampled_from([0, 1, -5, 1e30]))),
            "dates": DATES,
        }[kind]
        series = pl.Series(draw(of(values, rows)), strict=False)
    if seldom(draw):
        gone = pl.Series(draw(of(st.booleans(), rows)), dtype=pl.Boolean)
        series = (
            series.to_frame("").select(pl.when(~gone).then("")).to_series() if series.dtype != pl.Object else series
        )
    return series


def odd(values, dtype):
    """Values as a column of a type that tables seldom have."""
    if dtype == pl.Struct:
        values = [{"a": k} for k in range(len(values))]
    elif dtype == pl.Array:
        values = [[1.0, k] for k in range(len(values))]
    elif dtype == pl.List:
        values = [["a"] * (k % 3) for k in range(len(values))]
    elif dtype == pl.Duration:
        values = [datetime.timedelta(k) for k in range(len(values))]
    elif dtype == pl.Time:
        values = [datetime.time(k) for k in range(len(values))]
    elif dtype == pl.Binary:
        values = [str(value).encode() for value in values]
    elif dtype != pl.Object:
        values = [value if type(value) in (int, float) and abs(value) < 100 else k for k, value in enumerate(values)]
        values = [str(value) for value in values] if dtype == pl.Categorical else values
    return pl.Series(values, dtype=dtype, strict=False)


@st.composite
def node_tables(draw):
    """A nodes table: ids and domains that are nearly always right, and anything else besides."""
    rows = draw(ROWS)
    words, whole = (
        st.lists(some, min_size=rows, max_size=rows, unique=True) for some in (WORDS, WHOLE | st.integers())
    )
    ids = draw(st.one_of(st.just(list(range(rows))), words, whole.map(lambda k: [n % 2**63 for n in k])))
    ids = draw(columns(rows)) if seldom(draw) else pl.Series(ids, strict=False)
    source, target = draw(st.sampled_from(DOMAINS))
    known = draw(st.sampled_from([1, rows // 2, rows // 2, max(1, rows - 1)]))
    domain = draw(columns(rows)) if seldom(draw) else pl.Series([source] * known + [target] * (rows - known))
    given = {"id": ids, "domain": domain}
    if seldom(draw, 15):
        del given[draw(st.sampled_from(["id", "domain"]))]
    for name in draw(st.lists(WORDS | st.sampled_from(["when", "kind"]), max_size=3)):
        given.setdefault(name, draw(columns(rows)))
    if not seldom(draw):
        given.setdefault("v", pl.Series(range(rows)))
    return pl.DataFrame(given)


@st.composite
def edge_tables(draw, nodes):
    """An edges table among the nodes' ids, now and then with strangers: none, loops, parallels, all pairs."""
    known = [str(k) for k in nodes["id"].to_list()] if "id" in nodes.columns else ["1"]
    kind = draw(st.sampled_from(["none", "some", "some", "loops", "parallel", "complete", "empty", "strange"]))
    if kind == "none":
        return None
    if kind == "strange":
        rows = draw(st.integers(0, 4))
        return pl.DataFrame({str(k): draw(columns(rows)) for k in range(draw(st.integers(0, 3)))})
    name = st.sampled_from(known)
    pairs = {
        "some": lambda: draw(st.lists(st.tuples(name, name | WORDS if seldom(draw) else name), max_size=9)),
        "loops": lambda: [(k, k) for k in known],
        "parallel": lambda: [(known[0], known[-1]), (known[-1], known[0])] * 50,
        "complete": lambda: [(a, b) for a in known for b in known],
        "empty": lambda: [],
    }[kind]()
    weights = of(NUMBERS if seldom(draw, 2) else st.sampled_from([1.0, 2.5, 1e-30, 1e30]), len(pairs))
    return pl.DataFrame(
        {"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "w": draw(weights)},
        schema={"a": pl.String, "b": pl.String, "w": pl.Float64},
    )


@st.composite
def read_options(draw, nodes):
    """Options of `read_graph`."""
    names = st.sampled_from([*nodes.columns, *nodes.columns, "no such"])
    options = {"impute": not seldom(draw, 2), "drop_unknown": not seldom(draw, 2)}
    for name in ("text", "ignore", "features"):
        if seldom(draw, 9):
            options[name] = draw(st.lists(names, max_size=2))
    if seldom(draw):
        options["category"] = draw(names)
    if seldom(draw, 5):
        options["time"], options["since"] = draw(names), draw(WHOLE | NUMBERS | DATES | WORDS)
    if seldom(draw, 3):
        options["weight"] = draw(st.sampled_from(["w", "w", "w", "a"]))
    if draw(st.booleans()):
        options["target"] = nodes["domain"][-1] if "domain" in nodes.columns else "nobody"
    return options


def test_any_pair_of_data_frames_is_a_graph_or_an_error():
    def is_graph(data):
        nodes = data.draw(node_tables())
        edges = data.draw(edge_tables(nodes))
        return graph_or_error(read_graph, nodes, edges, **data.draw(read_options(nodes))) is not None

    check_cases(is_graph, st.data(), count=800, accepted=0.22)


def test_any_pandas_frame_is_a_graph_or_an_error():
    def is_graph(data):
        rows = data.draw(ROWS)
        names = data.draw(st.lists(WORDS | st.integers(0, 20), max_size=4, unique=not seldom(data.draw)))
        values = st.sampled_from([TAME, NUMBERS, WHOLE, WORDS, DATES, ANYTHING])
        columns = [data.draw(of(data.draw(values), rows)) for _ in names]
        frame = pd.DataFrame(list(zip(*columns, strict=True)), columns=names)
        frame = pd.DataFrame(index=range(rows)) if frame.empty else frame
        if not seldom(data.draw):
            frame["id"] = range(rows)
            frame["domain"] = [k % 2 for k in range(rows)]
        return graph_or_error(read_graph, frame, None, impute=data.draw(st.booleans())) is not None

    check_cases(is_graph, st.data(), count=200, accepted=0.18)


# What files are made of.

ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "utf-32", "cp1252", "shift-jis"]


@st.composite
def csv_files(draw, columns=("id", "domain", "v")):
    """Bytes that are nearly a CSV file: other encodings, separators and line ends, rows too short or too long, cuts."""
    header = draw(st.lists(WORDS, min_size=1, max_size=4)) if seldom(draw) else list(columns)
    cell = st.sampled_from(["0", "1", "a", "b", "source", "target", "", "1.5", '"', "2007-01-31"]) | WORDS
    rows = [[str(k), str(k % 2), str(k / 4)][: len(columns)] for k in range(draw(ROWS))]
    for row in rows:
        if seldom(draw, 12):
            row[draw(st.integers(0, len(row) - 1))] = draw(cell)
        if seldom(draw, 40):
            row += draw(st.lists(cell, max_size=2))
    separator = draw(st.sampled_from([",", ",", ",", ",", ";", "\t", "|"]))
    text = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"])).join(separator.join(row) for row in [header, *rows])
    data = codecs.encode(text, draw(st.sampled_from(ENCODINGS)), "replace")
    if seldom(draw):
        place = draw(st.integers(0, len(data)))
        data = data[:place] + draw(st.binary(max_size=4)) + data[place + draw(st.integers(0, 3)) :]
    return draw(st.binary(max_size=40)) if seldom(draw, 20) else data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def test_any_bytes_are_a_graph_or_an_error(folder):
    def is_graph(data):
        suffixes = ["csv", "csv", "csv", "tsv", "txt", "csv.gz", "parquet", "arrow", "feather", "xls"]
        suffix = data.draw(st.sampled_from(suffixes))
        nodes, edges = folder / f"nodes.{suffix}", folder / f"edges.{suffix}"
        nodes.write_bytes(data.draw(csv_files()))
        edges.write_bytes(data.draw(csv_files(("a", "b"))))
        options = {"impute": data.draw(st.booleans()), "drop_unknown": data.draw(st.booleans())}
        return graph_or_error(read_graph, nodes, data.draw(st.sampled_from([edges, None])), **options) is not None

    check_cases(is_graph, st.data(), count=400, accepted=0.055)


# What graphs are made of.


@st.composite
def graphs(draw):
    """Arguments of `NodeGraph`, most of them right."""
    nodes = draw(st.sampled_from([5, 5, 6, 7, 3, 2, 1, 0]))
    width = draw(st.sampled_from([2, 2, 3, 1, 0]))
    values = draw(st.sampled_from([TAME, TAME, st.sampled_from([0.0, 1.0, 1e30, 1e-30]), st.just(0.0), NUMBERS]))
    array = np.array(draw(of(of(values, width), nodes)), dtype=float).reshape(nodes, width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = draw(st.sampled_from(FORMS))(array)
    x = draw(of(of(ANYTHING, width), nodes)) if seldom(draw, 15) else x
    inside = st.integers(0, max(0, nodes - 1))
    ends = inside | st.sampled_from([-1, nodes, 2**40]) if seldom(draw) else inside
    edges = {
        "some": lambda: draw(of(of(ends, draw(st.integers(0, 9))), 2)),
        "complete": lambda: np.array(np.nonzero(np.ones((nodes, nodes)))),
        "loops": lambda: [list(range(nodes))] * 2,
        "none": lambda: np.zeros((2, 0)),
    }[draw(st.sampled_from(["some", "some", "complete", "loops", "none"]))]()
    edges = draw(st.lists(st.lists(ANYTHING, max_size=2), max_size=3)) if seldom(draw, 15) else edges
    target = [k % 2 for k in range(nodes)]
    target = draw(of(st.booleans(), nodes) | of(ANYTHING, nodes)) if seldom(draw) else target
    options = {}
    if draw(st.booleans()):
        weights = NUMBERS if seldom(draw, 3) else st.sampled_from([1.0, 1e-30, 1e30])
        options["edge_weight"] = draw(of(weights, len(edges[0]) if len(edges) else 0))
    if draw(st.booleans()):
        names = st.one_of(WHOLE, WORDS, ANYTHING, st.tuples(WHOLE, WORDS), st.just(1) if seldom(draw) else st.uuids())
        options["ids"] = draw(st.lists(names, min_size=nodes, max_size=nodes, unique=not seldom(draw)))
    for name in ("ids", "categories", "times", "feature_names", "edge_weight"):
        if seldom(draw, 20):
            options[name] = draw(of(ANYTHING, nodes) | st.lists(st.lists(WHOLE, max_size=2), max_size=3))
    return (x, edges, target), options


FORMS = [
    np.asarray,
    np.ndarray.tolist,
    np.float32,
    torch.from_numpy,
    sp.csr_array,
    sp.coo_matrix,
    lambda x: torch.from_numpy(x).to_sparse_csr(),
    np.ravel,
]


def test_any_arguments_are_a_graph_or_an_error():
    def is_graph(drawn):
        arguments, options = drawn
        graph = graph_or_error(NodeGraph, *arguments, **options)
        if graph is None:
            return False
        assert graph.ids.tolist() == list(options.get("ids", range(graph.num_nodes)))
        check(graph.without_edges())
        check(graph.permuted(range(graph.num_nodes)[::-1]))
        return True

    check_cases(is_graph, graphs(), count=800, accepted=0.2)


# From a graph to scores, and from files to a folder.

QUICK = {"epochs": 2, "rounds": 1, "prior_epochs": 2, "hidden_channels": 4, "device": "cpu"}
CHEAP = ["lp-pul", "lp-pul", "scan", "domain-discriminator", "nnpu", "energy", "reco-slip-none", "reco-slip-plus"]


def test_any_valid_graph_is_scored_or_refused():
    def is_scored(case):
        name, (arguments, options), hidden = case
        graph = graph_or_error(NodeGraph, *arguments, **options)
        if graph is None:
            return False
        known = detector(name).get_params()
        method = detector(name, **{key: value for key, value in QUICK.items() if key in known})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoslipWarning)
            try:
                model = (
                    recoslip.calibrate(method, graph, rotations=2)
                    if hidden
                    else Calibrated.uncalibrated(method.fit(graph))
                )
            except RecoslipError as problem:
                assert_has_message(problem)
                return False
        assert model.scores.shape == (graph.num_nodes,)
        assert ((model.scores >= 0) & (model.scores <= 1)).all()
        assert find_novel(model, graph).table().height == graph.num_nodes
        return True

    cases = st.tuples(st.sampled_from(CHEAP), graphs(), st.booleans())
    check_cases(is_scored, cases, count=200, accepted=0.15)


def test_detect_ends_with_a_whole_folder_or_with_code_2_and_nothing(tmp_path_factory):
    def is_whole(data):
        folder = tmp_path_factory.mktemp("detect")
        nodes, edges, out = folder / "nodes.csv", folder / "edges.csv", folder / "out"
        if data.draw(st.booleans()):
            nodes.write_bytes(data.draw(csv_files()))
            edges.write_bytes(data.draw(csv_files(("a", "b"))))
        else:
            table = data.draw(node_tables())
            nodes, edges = folder / "nodes.parquet", folder / "edges.parquet"
            pl.DataFrame([column for column in table if column.dtype != pl.Object]).write_parquet(nodes)
            links = data.draw(edge_tables(table).filter(lambda t: t is not None and pl.Object not in t.dtypes))
            links.write_parquet(edges)
        method, *more = data.draw(st.sampled_from([["lp-pul"], ["domain-discriminator", "--epochs", "2"]]))
        arguments = ["detect", nodes, edges, "--out", out, "--method", method, *more]
        arguments += ["--quiet", "--max-fpr", "0.5", "--drop-unknown", "--impute"]
        result = CliRunner().invoke(app, list(map(str, arguments)))
        left = sorted(path.name for path in folder.iterdir() if path not in (nodes, edges))
        if result.exit_code == 0:
            assert sorted(path.name for path in out.iterdir()) == WHOLE_FOLDER
            assert left == ["out"]
            return True
        assert result.exit_code == 2, result.exception
        assert result.stderr.startswith("error:")
        assert left == []
        return False

    check_cases(is_whole, st.data(), count=40, accepted=0.1)


WHOLE_FOLDER = ["model", "recoslip.json", "report.html", "report.json", "scores.csv", "summary.json"]
