"""Losses stay finite, or the error says that they did not; the same seed gives the same bits."""

import warnings

import numpy as np
import pytest
import torch

from recoslip import NodeGraph, detector, load_dataset, load_detector
from recoslip.base.errors import Diverged, RecoslipWarning
from recoslip.learning.methods import DETECTORS
from recoslip.learning.networks.pu_methods import DomainDiscriminator

NARROW = {"hidden_channels": 8, "out_channels": 8, "head_channels": 4, "device": "cpu"}
SHORT = {
    "epochs": 30,
    "rounds": 2,
    "em_steps": 2,
    "prior_epochs": 10,
    "patience": 20,
}


def short(name: str, **more):
    known = detector(name).get_params()
    return detector(name, **{key: value for key, value in (NARROW | SHORT | more).items() if key in known})


IN_BATCHES = [
    name for name, method in DETECTORS.items() if method.kind.supports_batches and not method.kind.requires_truth
]


@pytest.mark.parametrize("batch_size", [0, 64])
@pytest.mark.parametrize("name", IN_BATCHES)
def test_the_same_seed_gives_the_same_bits(name, batch_size, graph, split):
    settings = {"batch_size": batch_size, "epochs": 12, "prior_epochs": 5}
    first, second = (short(name, random_state=3, **settings).fit(graph, split) for _ in range(2))
    assert np.array_equal(first.scores_, second.scores_)
    other = short(name, random_state=4, **settings).fit(graph, split)
    assert not np.array_equal(first.scores_, other.scores_)


@pytest.mark.parametrize("batch_size", [0, 64])
@pytest.mark.parametrize("name", ["reco-slip-plus", "reco-slip"])
def test_the_number_of_threads_changes_no_more_than_rounding(name, batch_size):
    data = load_dataset("csbm", nodes=400, features=40, categories=4, split_seed=0)
    before = torch.get_num_threads()
    scores = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            model = short(name, batch_size=batch_size, epochs=8)
            scores.append(model.fit(data.graph, data.split).scores_)
    finally:
        torch.set_num_threads(before)
    assert np.abs(scores[0] - scores[1]).max() < 1e-4


@pytest.mark.parametrize("source", [3, 20, 297])
@pytest.mark.parametrize("recall_target", [1e-6, 0.5, 0.999999])
def test_multipliers_stay_bounded_where_recall_cannot_be_reached(recall_target, source, graph):
    unlike = graph.with_target(torch.arange(graph.num_nodes) >= source)
    constant = NodeGraph(np.ones((graph.num_nodes, 3)), graph.edge_index, unlike.is_target)
    for each in (unlike, constant):
        fitted = short("reco-slip", recall_targets=(recall_target,), dual_learning_rate=0.1, max_fpr=1.0).fit(each)
        multipliers = fitted.history_["multiplier"].to_numpy()
        assert np.isfinite(fitted.scores_).all()
        assert np.isfinite(multipliers).all()
        assert multipliers.min() >= 0
        assert multipliers.max() <= fitted.multiplier + 1.01 * 0.1 * fitted.epochs  # Adam's steps are bounded


class Fragile(DomainDiscriminator):
    """Diverges from the seeds it is told to."""

    bad = (7,)
    always = False

    def _learn(self, shown, progress, **truth):
        per_seed = super()._learn(shown, progress, **truth)
        for each, attributes in zip(shown, per_seed, strict=True):
            if self.always or each.seed in self.bad:
                attributes["scores_"] = np.full_like(attributes["scores_"], np.nan)
        return per_seed


def test_a_seed_that_diverges_gives_way_to_another_and_that_is_said(graph, split, tmp_path):
    with pytest.warns(RecoslipWarning, match="diverged from seed 7 and was begun again from seed"):
        fitted = Fragile(epochs=5, random_state=7).fit(graph, split)
    assert fitted.random_state == 7
    assert fitted.seed_ != 7
    again = DomainDiscriminator(epochs=5, random_state=fitted.seed_).fit(graph, split)
    assert np.array_equal(fitted.scores_, again.scores_)
    fitted.save(tmp_path / "model")
    assert load_detector(tmp_path / "model").seed_ == fitted.seed_


def test_of_several_seeds_only_the_one_that_diverges_is_begun_again(graph, split):
    with pytest.warns(RecoslipWarning, match="seed 7") as caught:
        several = Fragile(epochs=5).fit_seeds(graph, [1, 7, 2], split)
    assert len(caught) == 1
    assert [copy.seed_ == copy.random_state for copy in several] == [True, False, True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = Fragile(epochs=5, random_state=2).fit(graph, split)
    np.testing.assert_allclose(several[2].scores_, alone.scores_, atol=1e-5)


def test_what_diverges_from_every_seed_is_refused(graph, split, monkeypatch):
    monkeypatch.setattr(Fragile, "always", True)
    with pytest.raises(Diverged, match="look for extreme values"):
        Fragile(epochs=5).fit(graph, split)
    with pytest.raises(Diverged, match="lower learning_rate"):
        short("reco-slip", learning_rate=1e38).fit(graph, split)
