"""Networks judge what they did not learn from, and learning from the highest ranked finds the rest."""

import numpy as np

from recoslip import detector, load_dataset
from recoslip.detectors.panel import (
    NO_FOLD,
    Opinion,
    choose_examples,
    example_weights,
    folds_of,
    judge,
    quantiles_of,
)
from recoslip.insight.metrics import auroc

QUICK = {"hidden_channels": 32, "out_channels": 32, "head_channels": 16, "epochs": 150, "round_epochs": 60}


def test_a_node_is_judged_by_the_networks_without_its_fold():
    margins = np.array([[0.0, 9.0, 1.0], [5.0, 1.0, 1.0], [2.0, 2.0, 1.0]])
    quantiles = np.tile(np.linspace(0, 10, 11), (3, 1))  # so that a rank is a tenth of the margin
    opinion = judge(margins, quantiles, np.array([0, 1, 0]), np.array([0, 1, 0]))
    np.testing.assert_allclose(opinion.rank, [0.05, 0.1, 0.15])  # networks 0 and 2, network 1, networks 0 and 2
    np.testing.assert_allclose(opinion.spread, [0.05, 0, 0.05])
    np.testing.assert_allclose(opinion.f[1], 1 / (1 + np.exp(-1)))
    everyone = judge(margins, quantiles, np.array([0, 1, 0]), np.full(3, NO_FOLD))
    np.testing.assert_allclose(everyone.rank, margins.mean(axis=1) / 10)


def test_ranks_are_shares_of_the_target():
    margins = np.random.default_rng(0).normal(size=(1000, 1))
    is_target = np.arange(1000) >= 400
    rank = judge(margins, quantiles_of(margins, is_target), np.zeros(1000, int), np.array([0])).rank
    exact = np.searchsorted(np.sort(margins[is_target, 0]), margins[:, 0]) / 600
    assert np.abs(rank - exact).max() < 0.01
    assert np.array_equal(np.argsort(rank[is_target]), np.argsort(margins[is_target, 0]))


def test_a_fold_follows_the_id_and_not_the_place():
    ids = np.array([f"node {k}" for k in range(900)], dtype=object)
    folds = folds_of(ids, 3, seed=1)
    order = np.random.default_rng(0).permutation(900)
    assert np.array_equal(folds_of(ids[order], 3, seed=1), folds[order])
    assert (np.bincount(folds) > 250).all()
    assert not np.array_equal(folds_of(ids, 3, seed=2), folds)
    assert np.array_equal(folds_of(np.arange(50), 4, 0), folds_of(np.arange(50).astype(object), 4, 0))


def test_examples_of_proposals_and_of_rounds():
    rank = np.array([0.1, 0.2, 0.9, 0.8, 0.6, 0.4, 0.3, 0.95])
    f = np.array([0.9, 0.1, 0.6, 0.4, 0.7, 0.4, 0.2, 0.9])
    is_target = np.array([False, False, True, True, True, True, True, True])
    nodes = np.array([True] * 7 + [False])  # the last is not to be learned from, high as it ranks
    opinion = Opinion(rank, rank, f)
    novel, known = choose_examples(opinion, is_target, nodes, 0.2, is_proposal=True)
    assert np.flatnonzero(novel).tolist() == [2]
    assert np.flatnonzero(known).tolist() == [0, 1, 5, 6]  # the source, and the lower half of the target
    novel, known = choose_examples(opinion, is_target, nodes, 0.2, is_proposal=False)
    assert np.flatnonzero(novel).tolist() == [2]
    assert np.flatnonzero(known).tolist() == [0, 1, 3, 5, 6]  # the source, and who is called known


def test_examples_of_its_own_fold_weigh_nothing():
    examples = np.array([True, True, True, False])
    weights = example_weights(examples, np.array([0, 1, 1, 0]), np.array([0, 1, NO_FOLD])).numpy()
    np.testing.assert_allclose(weights, [[0, 1, 1 / 3], [0.5, 0, 1 / 3], [0.5, 0, 1 / 3], [0, 0, 0]])
    alone = example_weights(np.array([True, False]), np.array([0, 1]), np.array([0])).numpy()
    np.testing.assert_allclose(alone, [[1], [0]])  # better than learning from nobody


def test_rounds_find_more_than_the_proposals():
    gains = []
    for seed in range(3):
        data = load_dataset("csbm", nodes=1200, features=24, noise=1.6, homophily=0.7, split_seed=seed)
        proposals, final = (
            detector("reco-slip-plus", rounds=rounds, **QUICK).fit(data.graph, data.split) for rounds in (0, 2)
        )
        gains.append([auroc(data.novel, fitted.scores_, data.split.test) for fitted in (proposals, final)])
    before, after = np.mean(gains, axis=0)
    assert after > before


def test_what_it_reports(small):
    fitted = detector("reco-slip-plus", rounds=2, core=0.1, **QUICK).fit(small.graph, small.split)
    learning = (small.split.train | small.split.validation) & small.graph.is_target.numpy()
    assert fitted.rounds_["novel"].to_list() == [round(0.1 * learning.sum())] * 2
    assert fitted.rounds_["known"][0] == learning.sum() // 2
    assert fitted.rounds_["looks_novel"].is_between(0, 1).all()
    assert fitted.uncertainty_.shape == (small.graph.num_nodes,)
    assert (fitted.uncertainty_ >= 0).all()
    assert fitted.uncertainty_.max() > 0
    np.testing.assert_allclose(fitted.uncertainty(small.graph), fitted.uncertainty_, atol=1e-6)
