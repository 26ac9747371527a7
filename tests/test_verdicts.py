"""Learning from verdicts: the Gaussian process by hand, what a few verdicts bring, and whom the queue asks about."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import recoslip
from recoslip import Calibrated, detector
from recoslip.base.errors import SettingError
from recoslip.data.datasets.block_model import csbm
from recoslip.inference.feedback import AMPLITUDE, NOISE, VERDICT, Feedback, VerdictModel


def margin(f):
    return np.log(f / (1 - f))


def on_circle(angles):
    return np.column_stack([np.cos(angles), np.sin(angles)])


@pytest.fixture(scope="module")
def drawn():
    return csbm(nodes=500, categories=5, noise=0.7, homophily=0.7, features=8, seed=4)


@pytest.fixture(scope="module")
def fitted(drawn):
    return recoslip.calibrate(detector("domain-discriminator", epochs=60, hidden_channels=16), drawn, rotations=3)


@pytest.fixture(scope="module")
def novel(drawn):
    return drawn.categories == drawn.categories.max()


def reviewed(fitted, drawn, novel, count):
    """Take the queue as a reviewer does; return the ids of confirmed and rejected nodes."""
    confirmed, rejected = [], []
    while len(confirmed) + len(rejected) < count:
        for node in Feedback(fitted, confirmed, rejected).queue(5).tolist():
            (confirmed if novel[node] else rejected).append(drawn.ids[node])
    return confirmed, rejected


def test_one_verdict_moves_a_node_and_its_neighbour_by_hand():
    angles = np.array([0.0, 0.3, 2.0])
    model = VerdictModel(on_circle(angles), np.array([0.5, 0.6, 0.7]))
    model.observe([0], [])  # its margin is 0
    distance = ((on_circle(angles) - on_circle(angles)[0]) ** 2).sum(axis=1)
    kernel = AMPLITUDE**2 * np.exp(-distance / (2 * model.length**2))
    expected = margin(np.array([0.5, 0.6, 0.7])) + kernel * VERDICT / (AMPLITUDE**2 + NOISE**2)
    assert margin(model.scores()) == pytest.approx(expected, rel=1e-5)


def test_many_verdicts_are_the_formula_of_the_docstring():
    rng = np.random.default_rng(0)
    x, f = on_circle(rng.uniform(0, 6, 40)), rng.uniform(0.05, 0.95, 40)
    model = VerdictModel(x, f)
    model.observe([1, 2, 3], [10, 20])
    given = [1, 2, 3, 10, 20]
    kernel = AMPLITUDE**2 * np.exp(-((x[:, None] - x) ** 2).sum(axis=2) / (2 * model.length**2))
    weights = np.linalg.solve(
        kernel[np.ix_(given, given)] + NOISE**2 * np.eye(5), [VERDICT] * 3 + [-VERDICT] * 2 - margin(f)[given]
    )
    assert margin(model.scores()) == pytest.approx(margin(f) + kernel[:, given] @ weights, abs=1e-4)


def test_a_verdict_that_says_what_the_detector_said_changes_nothing():
    x = on_circle(np.linspace(0, 6, 50))
    f = np.full(50, 1 / (1 + np.exp(-VERDICT)))
    model = VerdictModel(x, f)
    model.observe([7, 30], [])
    assert model.scores() == pytest.approx(f)


def test_confirming_a_node_never_lowers_another_and_rejecting_one_never_raises_another():
    rng = np.random.default_rng(2)
    x, f = on_circle(rng.uniform(0, 6, 60)), np.concatenate([[0.9999, 0.0001], rng.uniform(0.001, 0.999, 58)])
    for node in range(60):
        model = VerdictModel(x, f)
        model.observe([node], [])
        assert (model.scores() >= f - 1e-9).all()
        model.observe([], [node])
        assert (model.scores() <= f + 1e-9).all()


def test_scores_near_0_and_1_stay_apart():
    f = np.array([0.5, 0.99991, 0.9999, 0.00001, 0.00002])
    model = VerdictModel(on_circle(np.array([0.0, 3.0, 3.0, 3.0, 3.0])), f)
    model.observe([0], [])
    assert np.argsort(model.scores()).tolist() == np.argsort(f).tolist()


def test_without_verdicts_scores_are_the_detectors():
    f = np.linspace(0.01, 0.99, 30)
    model = VerdictModel(on_circle(np.linspace(0, 6, 30)), f)
    model.observe([], [])
    assert model.scores() == pytest.approx(f)


def test_equal_nodes_share_a_verdict():
    model = VerdictModel(np.tile([[1.0, 0.0]], (20, 1)), np.full(20, 0.5))
    model.observe([3], [])
    assert np.ptp(model.scores()) < 1e-9
    assert (model.scores() > 0.6).all()


def test_the_queue_asks_once_in_each_of_several_clusters_before_it_asks_again():
    rng = np.random.default_rng(1)
    centre = np.repeat([0.0, 2.0, 4.0], 100)
    model = VerdictModel(on_circle(centre + rng.normal(0, 0.02, 300)), np.full(300, 0.5))
    model.observe([], [])
    first = model.queue(3, np.ones(300, dtype=bool))
    assert sorted(centre[first]) == [0.0, 2.0, 4.0]
    model.observe(first[:2], [])
    assert centre[model.queue(1, np.ones(300, dtype=bool))[0]] == centre[first[2]]


def test_the_queue_asks_about_allowed_nodes_alone_and_no_more_than_there_are():
    model = VerdictModel(on_circle(np.linspace(0, 6, 30)), np.full(30, 0.5))
    model.observe([], [])
    allowed = np.arange(30) % 10 == 0
    assert sorted(model.queue(5, allowed)) == [0, 10, 20]


def test_twenty_verdicts_improve_the_ranking_of_the_others(fitted, drawn, novel):
    confirmed, rejected = reviewed(fitted, drawn, novel, 20)
    learned = Feedback(fitted, confirmed, rejected).scores()
    rest = drawn.is_target & ~np.isin(drawn.ids, [*confirmed, *rejected])
    before, after = (roc_auc_score(novel[rest], scores[rest]) for scores in (fitted.scores, learned))
    assert after > before + (1 - before) / 3


def test_decisions_move_target_nodes_alone_and_not_the_fit(fitted, drawn, novel):
    before, p = fitted.scores.copy(), fitted.p_values()
    learned = Feedback(fitted, *reviewed(fitted, drawn, novel, 10)).scores()
    assert np.array_equal(fitted.scores, before)
    assert np.array_equal(fitted.p_values(), p, equal_nan=True)
    source = ~drawn.is_target
    assert np.array_equal(learned[source], before[source])


def test_a_verdict_is_the_score_of_its_node(fitted, drawn):
    target = drawn.ids[drawn.is_target]
    learned = Feedback(fitted, target[:2], target[2:5]).scores()
    assert learned[np.isin(drawn.ids, target[:2])].tolist() == [1.0, 1.0]
    assert learned[np.isin(drawn.ids, target[2:5])].tolist() == [0.0, 0.0, 0.0]


def test_a_saved_detector_learns_the_same(fitted, drawn, novel, tmp_path):
    fitted.save(tmp_path / "model")
    again = Calibrated.load(tmp_path / "model")
    verdicts = reviewed(fitted, drawn, novel, 10)
    own, saved = (Feedback(model, *verdicts) for model in (fitted, again))
    assert np.array_equal(saved.scores(), own.scores())
    assert saved.queue().tolist() == own.queue().tolist()


def test_wrong_verdicts_are_refused(fitted, drawn):
    target, source = drawn.ids[drawn.is_target], drawn.ids[~drawn.is_target]
    with pytest.raises(SettingError, match="1 of 2 ids are no target nodes"):
        Feedback(fitted, [target[0], source[0]], [])
    with pytest.raises(SettingError, match="no target nodes \\(first: 'nobody'\\)"):
        Feedback(fitted, ["nobody"], [])
    with pytest.raises(SettingError, match="confirmed and rejected at once"):
        Feedback(fitted, target[:2], target[1:3])


def test_a_single_fit_says_how_to_learn(drawn):
    once = Calibrated.uncalibrated(detector("lp-pul").fit(drawn))
    with pytest.raises(SettingError, match=r"recoslip\.calibrate"):
        Feedback(once, drawn.ids[drawn.is_target][:1], [])
