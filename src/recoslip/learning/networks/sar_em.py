"""SAR-EM: novelty and the propensity of being source, learned in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from recoslip.base.settings import Integer, learned, param
from recoslip.learning.base import Attributes, Scores
from recoslip.learning.networks.interfaces import Fleet, Schedule
from recoslip.learning.networks.network_detector import BATCHES, NetworkDetector, TrainingSet
from recoslip.learning.networks.objectives import WeightedCrossEntropy, log_likelihood, positions, posterior_known
from recoslip.learning.networks.random_bits import derive
from recoslip.learning.networks.training import BestWeights

NOVELTY, PROPENSITY = 0, 1  # the two networks; their seeds are derived from these numbers


class SarEM(NetworkDetector):
    r"""Expectation-maximisation for labels that are selected at random given the node, not completely at random.

    Two networks: $p(v) = P(\text{known} \mid v)$ and the propensity $e(v) = P(\text{source} \mid \text{known}, v)$, so
    that $P(\text{source} \mid v) = p\,e$. With s = 1 for source nodes:

    - E: $q = s + (1 - s) \frac{p (1 - e)}{1 - p e}$, the posterior of being known.
    - M: both are fitted anew. e to s with weights q; p to every node twice, as known with weight q and as novel with
      weight 1 - q.

    p starts as a discriminator with both domains weighing the same, e with weights s + (1 - s) p. The step with the
    highest validation log-likelihood $\sum s \log p e + (1 - s) \log(1 - p e)$ is kept. Without further assumptions p
    and e cannot be told apart, and the method is as unstable as the paper reports.
    """

    name: ClassVar[str] = "sar-em"

    em_steps: int = param(500, Integer(1), "EM steps at most")
    em_patience: int = param(50, Integer(1), "steps without a higher validation log-likelihood after which EM ends")
    epochs: int = param(200, Integer(1), "epochs of fitting a network in a step, at most")
    patience: int = param(20, Integer(1), "epochs without a lower validation loss after which that fitting ends")
    batch_size: int | None = BATCHES

    propensity_: Scores = learned("e of each node in the kept step", per_node=True)
    em_step_: int = learned("the step that was kept")

    def _networks_per_seed(self) -> int:
        """Return 2: novelty and propensity."""
        return 2

    def _steps(self) -> int:
        return self.em_steps

    def _learn_block(
        self, given: TrainingSet, members: Sequence[int], report: Callable[[int], None]
    ) -> list[Attributes]:
        return ExpectationMaximisation(self, given, members).run(report)


class ExpectationMaximisation:
    """EM for a block of seeds, whose networks are trained together; theirs are derived from `keys`, one per seed."""

    def __init__(self, detector: SarEM, given: TrainingSet, keys: Sequence[int]) -> None:
        graph, split, data = given.graph, given.split, given.data
        self.detector, self.features, self.data, self.keys = detector, graph.num_features, data, keys
        self.schedule = Schedule(detector.epochs, detector.learning_rate, patience=detector.patience)  # in a step
        is_source = torch.from_numpy(~graph.is_target).to(data.device, data.dtype)
        self.s = is_source[:, None].expand(-1, len(keys))  # (nodes, members)
        self.train, self.held_out = positions(split.train, data.device), positions(split.validation, data.device)

    def run(self, progress: Callable[[int], None]) -> list[dict[str, Any]]:
        """Run all steps; return the learned attributes of each seed."""
        s, members = self.s, len(self.keys)
        f, e = self._initial()
        kept_f, kept_e = f, e
        best: BestWeights | None = None
        for step in range(1, self.detector.em_steps + 1):
            known = posterior_known(s, 1 - f, e)
            # Both follow from the posterior alone, so they are one fleet: novelty first, then propensity.
            fleet, both = self._fit(step, (NOVELTY, 1 - known, known), (PROPENSITY, known * s, known * (1 - s)))
            f, e = both[:, :members], both[:, members:]
            held_out = self.held_out
            likelihood = log_likelihood(s[held_out], 1 - f[held_out], e[held_out])
            best = best or BestWeights(fleet, self.detector.em_patience)
            best.update(fleet, -likelihood.repeat(2), step)
            is_best = best.epoch[:members] == step
            kept_f, kept_e = torch.where(is_best, f, kept_f), torch.where(is_best, e, kept_e)
            progress(step)
            if best.all_ended(step):
                break
        assert best is not None
        steps = best.restore(fleet).tolist()
        scores, propensity = kept_f.double().cpu().numpy(), kept_e.double().cpu().numpy()
        return [
            {
                "scores_": scores[:, m].copy(),
                "propensity_": propensity[:, m].copy(),
                "em_step_": steps[m],
                "fleet_": fleet.gather([(fleet, m)]),
            }
            for m in range(members)
        ]

    def _initial(self) -> tuple[Tensor, Tensor]:
        """Fit novelty as a balanced discriminator, then propensity with its output as weights: f and e."""
        s, train_s = self.s, self.s[self.train]
        _, f = self._fit(0, (NOVELTY, (1 - s) / (1 - train_s).sum(dim=0), s / train_s.sum(dim=0)))
        known = s + (1 - s) * (1 - f)
        _, e = self._fit(0, (PROPENSITY, known * s, known * (1 - s)))
        return f, e

    def _fit(self, step: int, *labels: tuple[int, Tensor, Tensor]) -> tuple[Fleet, Tensor]:
        """Fit fresh networks to weighted labels, all at once; return them and σ(margin) of every node."""
        seeds = [int(derive(torch.tensor(key), which, step)) for which, _, _ in labels for key in self.keys]
        fleet = self.detector._build_fleet(self.features, seeds).to(self.data.device)
        up = torch.cat([weight for _, weight, _ in labels], dim=1)
        down = torch.cat([weight for _, _, weight in labels], dim=1)
        self.data.train(fleet, WeightedCrossEntropy(up, down, self.train, self.held_out), self.schedule)
        f = torch.sigmoid(self.data.evaluate(fleet).diff(dim=-1)[..., 0])
        return fleet, f.to(self.data.device, self.data.dtype)
