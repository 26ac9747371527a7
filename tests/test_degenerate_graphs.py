"""Every detector on degenerate graphs: scores in [0, 1] that a seed gives again, or an error with a reason.

Which cases are refused is written down, so that neither refusing more nor accepting more goes unnoticed.
"""

import json
import uuid
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from recoslip import NodeGraph, detector
from recoslip.base.errors import RecoslipError, RecoslipWarning
from recoslip.inference.analysis import find_novel
from recoslip.inference.calibrated import Calibrated
from recoslip.learning.methods import DETECTORS
from recoslip.pipeline.result import Result

QUICK = {
    "epochs": 3,
    "rounds": 2,
    "prior_epochs": 2,
    "em_steps": 2,
    "patience": 2,
    "categories": 3,
    "negatives_per_edge": 2,
    "recall_targets": (0.1, 0.3),
    "hidden_channels": 4,
    "out_channels": 4,
    "head_channels": 4,
    "random_state": 5,
    "device": "cpu",
}
RNG = np.random.default_rng(0)
N = 16
X = RNG.normal(size=(N, 3)).astype(np.float32)
HALF = np.arange(N) % 2 == 1
RANDOM = RNG.integers(0, N, (2, 40))
NONE = np.empty((2, 0), dtype=int)
PATH = np.array([np.arange(N - 1), np.arange(1, N)])
ALL = np.array(np.triu_indices(N, 1))
HUB = np.array([np.zeros(N - 1, dtype=int), np.arange(1, N)])


def single_entry(value):
    x = np.zeros((N, 3))
    x[3, 1] = value
    return x


GRAPHS = {
    "no edges": (X, NONE, HALF),
    "loops only": (X, [range(N), range(N)], HALF),
    "one edge": (X, [[0], [1]], HALF),
    "path": (X, PATH, HALF),
    "ring": (X, [np.arange(N), (np.arange(N) + 1) % N], HALF),
    "star": (X, HUB, HALF),
    "complete": (X, ALL, HALF),
    "bipartite by domain": (X, np.array([(a, b) for a in range(0, N, 2) for b in range(1, N, 2)]).T, HALF),
    "domains apart": (X, RANDOM[:, HALF[RANDOM[0]] == HALF[RANDOM[1]]], HALF),
    "isolated target": (X, RANDOM[:, ~HALF[RANDOM].any(axis=0)], HALF),
    "isolated source": (X, RANDOM[:, HALF[RANDOM].all(axis=0)], HALF),
    "a thousand times the same edge": (X, np.tile([[0], [1]], 1000), HALF),
    "a heavy hub": (X, np.hstack([HUB, np.tile(HUB[:, :1], 200)]), HALF),
    "two nodes": (X[:2], [[0], [1]], [False, True]),
    "three nodes": (X[:3], [[0, 1], [1, 2]], [False, False, True]),
    "four nodes": (X[:4], [[0, 1], [2, 3]], [False, False, True, True]),
    "one source node": (X, RANDOM, np.arange(N) > 0),
    "two source nodes": (X, RANDOM, np.arange(N) > 1),
    "three source nodes": (X, RANDOM, np.arange(N) > 2),
    "one target node": (X, RANDOM, np.arange(N) == 0),
    "two target nodes": (X, RANDOM, np.arange(N) < 2),
    "constant features": (np.ones((N, 3)), RANDOM, HALF),
    "no features but zeros": (np.zeros((N, 3)), RANDOM, HALF),
    "no features but zeros, and no edges": (np.zeros((N, 3)), NONE, HALF),
    "one feature": (X[:, :1], RANDOM, HALF),
    "one entry": (single_entry(1.0), RANDOM, HALF),
    "one huge entry": (single_entry(3e38), RANDOM, HALF),
    "the domain as a feature": (HALF[:, None].astype(float), RANDOM, HALF),
    "two nodes, eight times each": (np.repeat(X[:2], N // 2, axis=0), RANDOM, HALF),
    "one constant among the features": (np.column_stack([X, np.full(N, 7.0)]), RANDOM, HALF),
    "huge features": (X * 1e30, RANDOM, HALF),
    "tiny features": (X * 1e-30, RANDOM, HALF),
    "features below normal": (X * 1e-42, RANDOM, HALF),
    "features of every size": (X * np.array([1e-30, 1, 1e30]), RANDOM, HALF),
    "large offset": (X + 1e7, RANDOM, HALF),
    "sparse features": (sp.random_array((N, 30), density=0.1, rng=0), RANDOM, HALF),
    "sparse zeros": (sp.csr_array((N, 3)), RANDOM, HALF),
    "sparse huge features": (sp.csr_array(X * 1e30), RANDOM, HALF),
    "many features": (RNG.normal(size=(N, 500)), RANDOM, HALF),
    "many huge features of many nodes": (RNG.normal(size=(80, 90)) * 1e30, NONE, np.arange(80) % 2 == 1),
    "many zeros of many nodes": (np.zeros((80, 90)), NONE, np.arange(80) % 2 == 1),
    "many sparse zeros of many nodes": (sp.csr_array((80, 90)), NONE, np.arange(80) % 2 == 1),
}
WEIGHTS = {
    "tiny weights": np.full(40, 1e-30),
    "huge weights": np.full(40, 1e30),
    "weights of every size": 10.0 ** RNG.integers(-30, 31, 40),
    "weights below normal": np.full(40, 1e-40),
    "the largest weights": np.full(40, 1e38),
}
NAMES = "names of every kind"
ALL_GRAPHS = [*GRAPHS, *WEIGHTS, NAMES]

# What is refused; everything else is scored. Each domain needs a node to train and one to validate.
REFUSED_BY_ALL = {"two nodes", "three nodes", "one source node", "one target node"}
REFUSED = {
    ("four nodes", "oracle"),  # no node to train on is novel
    ("two target nodes", "oracle"),
    ("one huge entry", "reco-slip-plus"),  # squares and sums of numbers near 3e38 overflow, and the loss is not finite
    ("one huge entry", "thorough"),
    ("huge features", "dominant"),
    ("features of every size", "dominant"),
    ("sparse huge features", "dominant"),
    ("many huge features of many nodes", "dominant"),
}


def build_graph(name):
    if name in WEIGHTS:
        return NodeGraph(X, RANDOM, HALF, edge_weight=WEIGHTS[name])
    if name == NAMES:
        names = [
            "a",
            "ا",
            "",
            " ",
            1,
            -1,
            2.5,
            -0.5,
            True,
            (1, 2),
            b"b",
            2**70,
            uuid.UUID(int=3),
            "\x00",
            "\ud7ff",
            "🙂",
        ]
        return NodeGraph(X, RANDOM, HALF, ids=[False if name is True else name for name in names])
    return NodeGraph(*GRAPHS[name])


def assert_has_reason(problem):
    what, _, remedy = str(problem).partition(";")
    assert len(what) > 20
    assert len(remedy) > 10


@pytest.mark.parametrize("method_name", list(DETECTORS))
@pytest.mark.parametrize("graph_name", ALL_GRAPHS)
def test_it_is_scored_the_same_way_twice_or_refused_with_a_reason(graph_name, method_name):
    graph = build_graph(graph_name)
    known = detector(method_name).get_params()
    method = detector(method_name, **{key: value for key, value in QUICK.items() if key in known})
    novel = graph.is_target & (np.arange(graph.num_nodes) % 4 == 1)
    truth = {"novel": novel} if method.requires_truth else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoslipWarning)
        if graph_name in REFUSED_BY_ALL or (graph_name, method_name) in REFUSED:
            with pytest.raises(RecoslipError) as caught:
                method.fit(graph, **truth)
            assert_has_reason(caught.value)
            return
        first, second = (method.fit(graph, **truth).scores_ for _ in range(2))
        again = method.decision_function(graph)
    assert first.shape == (graph.num_nodes,)
    assert ((first >= 0) & (first <= 1)).all()
    assert np.array_equal(first, second)
    np.testing.assert_allclose(again, first, atol=1e-6)


@pytest.mark.parametrize("graph_name", [name for name in ALL_GRAPHS if name not in REFUSED_BY_ALL])
def test_what_is_scored_can_be_put_on_a_page(graph_name):
    graph = build_graph(graph_name)
    for method in (detector("lp-pul"), detector("domain-discriminator", epochs=2)):
        findings = find_novel(Calibrated.uncalibrated(method.fit(graph)).with_settings(max_fpr=0.5), graph)
        page = Result.of(findings).report()
        assert json.loads(json.dumps(page.data, allow_nan=False))["counts"]["nodes"] == graph.num_nodes
        assert findings.table().height == graph.num_nodes
