"""Vectors of nodes: own features, their neighbours', and those two hops far; computed once, and without domains."""

import copy
import pickle

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

import recoslip
from recoslip import NodeGraph
from recoslip.data.datasets.block_model import csbm
from recoslip.data.vectors import WIDTH, Reducer, Vectors

NO_EDGES = np.empty((2, 0), dtype=int)
PATH = np.array([[0, 1], [1, 2]])  # node 3 is alone


def alternating(nodes):
    return np.arange(nodes) % 2 == 1


def graph_of(x, edges=NO_EDGES, **more):
    return NodeGraph(x, edges, alternating(x.shape[0]), **more)


def of_length_one(rows):
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def standardised(x, scale=True):
    """What dense features become, in double precision."""
    x = x - x.mean(axis=0)
    x = x / x.std(axis=0) if scale else x
    return of_length_one(np.column_stack([x, np.full(len(x), np.sqrt((x**2).sum(axis=1).mean()))]))


def tf_idf(counts):
    weight = np.log((1 + len(counts)) / (1 + (counts > 0).sum(axis=0))) + 1
    return of_length_one(counts * weight)


def random_graph(nodes=300, seed=0, *, weighted=True, ids=None, features=6):
    rng = np.random.default_rng(seed)
    x, edges = rng.normal(size=(nodes, features)), rng.integers(0, nodes, (2, 3 * nodes))
    edges = edges[:, edges[0] < edges[1]]
    return graph_of(x, edges, edge_weight=rng.uniform(0.1, 9, edges.shape[1]) if weighted else None, ids=ids)


def all_vectors(vectors):
    return np.stack([vectors.own, vectors.one, vectors.two])


# What they are


DENSE = np.array([[1.0, 5.0], [2.0, -3.0], [4.0, 0.5], [-2.0, 1.0]])
COUNTS = np.array([[2.0, 0, 0, 0, 0], [1, 0, 3, 0, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 0]])


@pytest.mark.parametrize(
    ("x", "own"),
    [
        (DENSE, standardised(DENSE)),
        (COUNTS, tf_idf(COUNTS)),
        (sp.csr_array(COUNTS), tf_idf(COUNTS)),
    ],
)
def test_vectors_of_a_path_are_those_computed_by_hand(x, own):
    vectors = Vectors.of(graph_of(x, PATH, edge_weight=[1.0, 3.0]))
    one = np.stack([own[1], (own[0] + 3 * own[2]) / 4, own[1], own[3]])
    two = np.stack([one[1], (one[0] + 3 * one[2]) / 4, one[1], own[3]])
    for found, expected in ((vectors.own, own), (vectors.one, of_length_one(one)), (vectors.two, of_length_one(two))):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    total = of_length_one(own + of_length_one(one) + of_length_one(two))
    np.testing.assert_allclose(vectors.summary(), total, atol=1e-6)
    np.testing.assert_array_equal(vectors.beside(np.array([2])), np.hstack([v[2:3] for v in vectors.views()[:3]]))


def test_without_edges_there_are_own_vectors_alone():
    vectors = Vectors.of(graph_of(DENSE))
    assert (vectors.one, vectors.two, len(vectors.views())) == (None, None, 1)
    assert vectors.summary() is vectors.own
    np.testing.assert_array_equal(vectors.beside(), vectors.own)


def test_columns_of_tables_keep_the_weights_of_their_encoders():
    encoding = {"number": {}}
    found = Vectors.of(graph_of(DENSE, encoding=encoding)).own
    np.testing.assert_allclose(found, standardised(DENSE, scale=False), atol=1e-6)
    found = Vectors.of(graph_of(COUNTS, encoding=encoding)).own
    np.testing.assert_allclose(found, of_length_one(COUNTS), atol=1e-6)


def test_texts_beside_other_columns_have_vectors_of_their_own():
    rng = np.random.default_rng(0)
    words = [" ".join(rng.choice(["rotor", "camera", "spade", "hose", "novel", "author"], 4)) for _ in range(60)]
    table = pl.DataFrame(
        {"domain": [0, 1] * 30, "title": words, "price": rng.normal(size=60), "size": rng.normal(size=60)}
    )
    graph = recoslip.read_graph(table, text=["title"])
    vectors = Vectors.of(graph)
    assert vectors.names == ("texts", "features")
    texts, own = vectors.views()
    is_word = vectors.reducer.blocks["texts"]
    assert is_word.sum() == graph.num_features - 2
    x = np.asarray(graph.x.toarray() if sp.issparse(graph.x) else graph.x, dtype=np.float64) * is_word
    assert not np.array_equal(texts, own)
    others = graph.with_features(np.where(is_word, x, 7.0))  # other prices and sizes, same titles
    again = Vectors.of(others, vectors.reducer).views()
    np.testing.assert_allclose(again[0], texts, atol=1e-6)
    assert np.abs(again[1] - own).max() > 0.1
    reducer = Reducer.from_arrays(vectors.reducer.arrays())
    np.testing.assert_array_equal(Vectors.of(graph, reducer).views()[0], texts)
    assert Vectors.of(recoslip.read_graph(table.drop("price", "size"), text=["title"])).names == ("features",)


def test_sparse_features_with_negative_values_are_divided_by_their_size_and_stay_sparse():
    x = sp.random_array((60, 9), density=0.2, rng=np.random.default_rng(0), data_sampler=lambda size: np.ones(size))
    x = sp.csr_array(x)
    x.data = np.random.default_rng(1).normal(size=x.nnz)
    scaled = x.toarray() / np.sqrt((x.toarray() ** 2).mean(axis=0))
    constant = np.full(60, np.sqrt((scaled**2).sum(axis=1).mean()))
    vectors = Vectors.of(graph_of(x))
    np.testing.assert_allclose(vectors.own, of_length_one(np.column_stack([scaled, constant])), atol=1e-6)
    assert vectors.reducer.mean is None


@pytest.mark.parametrize("sparse", [False, True])
def test_many_features_become_few_that_keep_the_inner_products(sparse):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)) @ rng.normal(size=(5, 300))
    if sparse:
        x = (rng.random((400, 5)) < 0.05) @ rng.random((5, 300)) * (rng.random((5, 300)) < 0.5).any(axis=0)
    own = Vectors.of(graph_of(x)).own
    expected = tf_idf(x) if sparse else standardised(x)
    assert own.shape == (400, WIDTH + (not sparse))
    np.testing.assert_allclose(own @ own.T, expected @ expected.T, atol=1e-4)


# Values that a program could stumble over


def signed_sparse(scale):
    x = sp.random(80, 20, 0.1, random_state=0, format="csr")
    x.data = scale * np.random.default_rng(0).normal(size=x.nnz).clip(-3, 3)
    return x


HARD = {
    "all zero": np.zeros((80, 3)),
    "many, all zero": np.zeros((200, 200)),
    "sparse, all zero": sp.csr_array((200, 200)),
    "constant": np.ones((80, 3)),
    "one column": np.random.default_rng(0).normal(size=(80, 1)),
    "duplicates": np.repeat(np.random.default_rng(0).normal(size=(4, 3)), 20, axis=0),
    "outlier": np.where(np.arange(80)[:, None] == 0, 1e30, np.random.default_rng(0).normal(size=(80, 3))),
    "limits": np.random.default_rng(0).choice([-3.4e38, 3.4e38, 0.0, 1.0], (80, 3)),
    "two nodes": np.array([[1.0], [2.0]]),
}
SCALES = (1e30, 1e38, 1e-30, 1e-38, 1e-42)


@pytest.mark.parametrize("name", HARD)
def test_vectors_are_finite_and_of_length_one_or_zero(name):
    x = HARD[name]
    edges = np.array([[0, 1, 0], [1, 0, 1]])
    for vectors in (Vectors.of(graph_of(x)), Vectors.of(graph_of(x, edges))):
        for view in vectors.views():
            length = np.linalg.norm(view.astype(np.float64), axis=1)
            assert ((abs(length - 1) < 1e-5) | (length == 0)).all()


def test_constant_columns_change_no_angle():
    x = np.random.default_rng(0).normal(size=(80, 3))
    with_constant = np.column_stack([x, np.full(80, 1e6)])
    one, other = (Vectors.of(graph_of(each)).own for each in (x, with_constant))
    np.testing.assert_allclose(one @ one.T, other @ other.T, atol=1e-5)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", ["dense", "counts", "signed sparse"])
def test_the_unit_of_features_does_not_matter(kind, scale):
    rng = np.random.default_rng(0)
    features = {
        "dense": rng.normal(size=(80, 4)).clip(-3, 3),
        "counts": rng.poisson(0.1, (80, 12)).astype(float).clip(0, 3),
        "signed sparse": signed_sparse(1.0),
    }[kind]
    one, other = Vectors.of(graph_of(features)).own, Vectors.of(graph_of(features * scale)).own
    assert one.any()
    coarse = scale < 1e-40  # such numbers have three digits
    np.testing.assert_allclose(other, one, atol=0.05 if coarse else 1e-5)


def test_nodes_of_another_unit_than_the_fitted_ones_are_finite():
    fitted = Vectors.of(graph_of(np.random.default_rng(0).normal(size=(80, 4)) * 1e-30))
    far = Vectors.of(graph_of(np.random.default_rng(1).normal(size=(80, 4)) * 1e30), fitted.reducer)
    np.testing.assert_allclose(np.linalg.norm(far.own, axis=1), 1, atol=1e-5)


# Which nodes, in which order


@pytest.mark.parametrize("name", [False, True])
def test_the_order_of_nodes_changes_no_bit(name):
    ids = [f"n{k}" for k in range(300)] if name else None
    graph = random_graph(ids=ids, features=150)
    order = np.random.default_rng(1).permutation(300)
    expected = all_vectors(Vectors.of(graph))[:, order]
    assert (all_vectors(Vectors.of(random_graph(ids=ids, features=150).permuted(order))) == expected).all()
    assert (all_vectors(Vectors.of(graph.permuted(order))) == expected).all()


def test_new_nodes_of_the_same_table_get_the_vectors_that_they_were_fitted_with():
    for graph in (random_graph(), random_graph(features=150), graph_of(COUNTS.repeat(50, axis=0))):
        fitted = Vectors.of(graph)
        reducer = Reducer.from_arrays(fitted.reducer.arrays())
        some = np.arange(50, 90)
        np.testing.assert_allclose(Vectors.of(graph.subgraph(some), reducer).own, fitted.own[some], atol=1e-6)
        for view, again in zip(fitted.views(), Vectors.of(graph, reducer).views(), strict=True):
            np.testing.assert_allclose(again, view, atol=1e-6)


def test_new_nodes_may_be_mostly_zero_where_the_fitted_ones_were_not_and_the_other_way_round():
    x = np.random.default_rng(0).integers(0, 3, (300, 9)).astype(float)
    few = (x != 0).sum(axis=1) <= 4
    for fitted, new in ((x, few), (np.vstack([x, np.zeros((600, 9))]), np.arange(900) < 300)):
        vectors = Vectors.of(graph_of(fitted))
        rows = np.flatnonzero(new)
        own = fitted[rows]
        for given in (own, sp.csr_array(own)):
            other = NodeGraph(given, NO_EDGES, alternating(len(rows)))
            np.testing.assert_allclose(Vectors.of(other, vectors.reducer).own, vectors.own[rows], atol=1e-6)


def test_new_nodes_without_edges_have_as_many_vectors_as_the_fitted_ones():
    graph = random_graph()
    alone = Vectors.of(graph.without_edges(), Vectors.of(graph).reducer)
    assert len(alone.views()) == 4
    for view in alone.views():
        np.testing.assert_allclose(view, alone.own, atol=1e-6)


# Computed once


@pytest.fixture
def fits(monkeypatch):
    """One entry for each time that vectors were computed."""
    found, fit = [], Reducer.fit.__func__
    monkeypatch.setattr(Reducer, "fit", classmethod(lambda cls, graph: found.append(1) or fit(cls, graph)))
    return found


@pytest.mark.parametrize("ids", [None, [f"n{k}" for k in range(60)]])
def test_vectors_are_computed_once_for_all_domains(fits, ids):
    graph = random_graph(60, ids=ids)
    vectors = Vectors.of(graph)
    other = graph.with_target(~graph.is_target)
    assert Vectors.of(graph) is Vectors.of(other) is vectors
    assert Vectors.of(other.with_target(alternating(60))) is vectors
    assert len(fits) == 1
    Vectors.of(random_graph(60, ids=ids).with_target(alternating(60)))
    assert len(fits) == 2


def test_what_is_computed_with_other_domains_is_kept_for_all(fits):
    graph = random_graph(60)
    vectors = Vectors.of(graph.with_target(~graph.is_target))
    assert Vectors.of(graph) is vectors
    assert len(fits) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.with_features(graph.x * np.arange(1, 7) + graph.x[:, ::-1]),
        lambda graph: graph.without_edges(),
        lambda graph: graph.with_edges(PATH),
        lambda graph: graph.subgraph(np.arange(30)),
    ],
)
def test_other_features_edges_or_nodes_have_other_vectors(fits, change):
    graph = random_graph(60)
    before = Vectors.of(graph)
    after = Vectors.of(change(graph))
    assert len(fits) == 2
    assert before.summary().shape != after.summary().shape or not np.allclose(before.summary(), after.summary())
    assert Vectors.of(graph) is before


@pytest.mark.parametrize("again", [lambda g: pickle.loads(pickle.dumps(g)), copy.copy, copy.deepcopy])
def test_a_copied_graph_has_the_same_vectors(again):
    for graph in (random_graph(60), graph_of(sp.csr_array(COUNTS), PATH)):
        vectors = Vectors.of(graph)
        assert (all_vectors(Vectors.of(again(graph))) == all_vectors(vectors)).all()
        assert len(pickle.dumps(graph)) == len(pickle.dumps(copy.copy(graph)))


def test_no_domain_and_no_category_is_read():
    graph = copy.copy(csbm(nodes=100, seed=0))
    expected = all_vectors(Vectors.of(csbm(nodes=100, seed=0)))
    for name in ("is_target", "categories"):
        object.__delattr__(graph, name)  # reading it raises AttributeError now
    assert (all_vectors(Vectors.of(graph)) == expected).all()
