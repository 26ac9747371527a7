"""SAR-EM: novelty and the propensity of being source, learned in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.base import Progress, Scores
from recoslip.detectors.networked import NetworkDetector
from recoslip.detectors.risk import WeightedCrossEntropy, positions
from recoslip.fleet.batches import Batches
from recoslip.fleet.bits import derive
from recoslip.fleet.modules import ModuleFleet, gather
from recoslip.fleet.network import Fleet, seed_key
from recoslip.fleet.training import Best, evaluate, train
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import NodeGraph
from recoslip.objectives.propensity import log_likelihood, posterior_known
from recoslip.shift import Split

NOVELTY, PROPENSITY = 0, 1  # the two networks, as a part of their seeds


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

    Args:
        em_steps: at most so many.
        em_patience: steps without a higher validation log-likelihood after which it ends.
        epochs: of fitting a network in a step, at most.
        patience: epochs without a lower validation loss after which that ends.
        max_fpr: share of the validation source nodes that may score above the threshold.
        hidden_channels: width of the encoder's first layer.
        out_channels: width of the encoder's second layer, the representation.
        head_channels: width of the head's hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        learning_rate: Adam's.
        batch_size: nodes of a batch, of which each epoch sees one; 0 for the whole graph, None to let memory decide.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.

    Attributes:
        propensity_: e of each node in the kept step.
        em_step_: which step was kept.
    """

    name: ClassVar[str] = "sar-em"
    paper: ClassVar[str] = "Bekker et al. 2019"

    propensity_: Scores
    em_step_: int

    def __init__(
        self,
        *,
        em_steps: int = 500,
        em_patience: int = 50,
        epochs: int = 200,
        patience: int = 20,
        max_fpr: float = 0.01,
        hidden_channels: int = 64,
        out_channels: int = 32,
        head_channels: int = 32,
        encoder: Encoder | nn.Module = "gcn",
        dropout: float = 0.5,
        learning_rate: float = 0.001,
        batch_size: int | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.em_steps = em_steps
        self.em_patience = em_patience
        self.epochs = epochs
        self.patience = patience
        self.max_fpr = max_fpr
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.head_channels = head_channels
        self.encoder = encoder
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        self._check_network()
        for name in ("em_steps", "em_patience", "patience"):
            checks.whole(name, getattr(self, name), 1)

    def _together(self) -> int:
        return 2  # novelty and propensity

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        view = self._view(graph)
        learned = []
        blocks = self._blocks([seed_key(seed) for seed in seeds], view)
        for place, keys in enumerate(blocks):
            before, total = place * self.em_steps, len(blocks) * self.em_steps
            learned += self._maximise(graph, view, split, keys, lambda step: progress(before + step, total))  # noqa: B023
            progress(before + self.em_steps, total)
        return learned

    def _maximise(
        self, graph: NodeGraph, view: GraphView | Batches, split: Split, keys: Sequence[int], progress: Any
    ) -> list[dict[str, Any]]:
        """Run EM for a block of seeds."""
        s = (~graph.is_target).to(view.device, view.dtype)[:, None].expand(-1, len(keys))  # (nodes, members)
        held_out = positions(split.validation, view.device)
        nodes = positions(split.train, view.device), held_out

        def fit(step: int, *examples: tuple[int, Tensor, Tensor]) -> tuple[Fleet | ModuleFleet, Tensor]:
            """Fit fresh networks to weighted examples, all at once; return them and σ(margin) of every node."""
            fresh = [int(derive(torch.tensor(key), which, step)) for which, _, _ in examples for key in keys]
            fleet = self._fleet(graph.num_features, fresh).to(view.device)
            up = torch.cat([weight for _, weight, _ in examples], dim=1)
            down = torch.cat([weight for _, _, weight in examples], dim=1)
            objective = WeightedCrossEntropy(up, down, *nodes)
            train(fleet, view, objective, epochs=self.epochs, learning_rate=self.learning_rate, patience=self.patience)
            f = torch.sigmoid(evaluate(fleet, view).diff(dim=-1)[..., 0])
            return fleet, f.to(view.device, view.dtype)

        train_s = s[nodes[0]]
        _, f = fit(0, (NOVELTY, (1 - s) / (1 - train_s).sum(dim=0), s / train_s.sum(dim=0)))
        known = s + (1 - s) * (1 - f)
        _, e = fit(0, (PROPENSITY, known * s, known * (1 - s)))
        kept_f, kept_e = f, e
        best: Best | None = None
        for step in range(1, self.em_steps + 1):
            known = posterior_known(s, 1 - f, e)
            # Both follow from the posterior alone, so they are one fleet: novelty first, then propensity.
            fleet, both = fit(step, (NOVELTY, 1 - known, known), (PROPENSITY, known * s, known * (1 - s)))
            f, e = both[:, : len(keys)], both[:, len(keys) :]
            likelihood = log_likelihood(s[held_out], 1 - f[held_out], e[held_out])
            best = best or Best(fleet, self.em_patience)
            best.offer(fleet, -likelihood.repeat(2), step)
            is_best = best.epoch[: len(keys)] == step
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
                "fleet_": gather([(fleet, m)]),
            }
            for m in range(len(keys))
        ]

    def _score(self, graph: NodeGraph) -> Scores:
        logits = self._logits(graph)[:, 0]
        scores: Scores = torch.sigmoid(logits[:, 1] - logits[:, 0]).numpy()
        return scores

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors = self._fleet_tensors() | {"propensity": torch.from_numpy(self.propensity_)}
        return {"em_step": self.em_step_}, tensors

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        learned = {"em_step_": int(values["em_step"]), "propensity_": tensors["propensity"].numpy()}
        return learned | {"fleet_": self._restored(tensors)}
