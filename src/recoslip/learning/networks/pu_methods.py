"""Discriminators of two sets of nodes, and learning from positive (source) and unlabelled (target) nodes."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recoslip.base.errors import SettingError
from recoslip.base.progress import Progress
from recoslip.base.settings import Integer, Number, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import adjacency_of, within_hops
from recoslip.data.split import Mask, Split
from recoslip.learning.base import Attributes, Scores
from recoslip.learning.networks.interfaces import Fleet, Objective, Output, Schedule
from recoslip.learning.networks.links import NonEdges, inner_products, structure_loss
from recoslip.learning.networks.network_detector import BATCHES, PATIENCE, NetworkDetector, TrainingSet
from recoslip.learning.networks.objectives import (
    DomainNodes,
    RiskObjective,
    WeightedCrossEntropy,
    best_bin,
    discriminate,
    entropy,
    label_distribution,
    log_likelihood,
    non_negative_risk,
    non_negative_step,
    positions,
    posterior_known,
    soft_rate,
    soft_rates,
    unbiased_risk,
)
from recoslip.learning.networks.random_bits import derive
from recoslip.learning.networks.training import BestWeights


class DomainDiscriminator(NetworkDetector):
    r"""Minimise the cross-entropy of source against target, $-\frac1n(\sum_S \log(1 - f) + \sum_T \log f)$.

    The basis of most positive-unlabelled learning. It ranks well if the known proportions do not shift; where they do,
    a known category that is rare in the source looks as novel as a novel one.
    """

    name: ClassVar[str] = "domain-discriminator"

    patience: int = PATIENCE
    batch_size: int | None = BATCHES

    def _objective(self, given: TrainingSet) -> Objective:
        return RiskObjective(discriminate, *given.nodes)


class ElkanNoto(DomainDiscriminator):
    r"""$P(\text{known} \mid v) = P(\text{source} \mid v) / c$ with $c = P(\text{source} \mid \text{known})$.

    c is the mean of $P(\text{source} \mid v)$ over validation source nodes. This holds if each known node is as likely
    as any other to be source (selected completely at random), which a shift of proportions breaks.
    The score is $1 - \min(1, (1 - f) / c)$.
    """

    name: ClassVar[str] = "elkan-noto"

    labelled_fraction_: float = learned("c")

    def _numbers(self, output: Tensor, given: TrainingSet) -> Attributes:
        held_out = torch.from_numpy(given.held_out_source)
        source = torch.sigmoid(output[held_out, 0] - output[held_out, 1])
        return {"labelled_fraction_": float(source.mean())}

    def _from_output(self, output: Tensor, graph: NodeGraph, numbers: Mapping[str, Any]) -> Scores:
        known = torch.sigmoid(output[:, 0] - output[:, 1]) / numbers["labelled_fraction_"]
        return np.asarray((1 - known.clamp(max=1)).numpy())


class Oracle(NetworkDetector):
    r"""Minimise the cross-entropy of novel against known nodes. No method without the truth should do better.

    The truth is an argument of `fit`, never read from the graph: `Oracle().fit(graph, split, novel=mask)`.
    """

    name: ClassVar[str] = "oracle"
    requires_truth: ClassVar[bool] = True

    patience: int = PATIENCE
    batch_size: int | None = BATCHES

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Attributes]:
        if truth.get("novel") is None:
            raise SettingError("the oracle needs the truth: fit(graph, split, novel=mask); it is for comparison only")
        novel = np.asarray(truth["novel"])
        if novel.shape != (graph.num_nodes,) or novel.dtype != bool:
            raise SettingError(
                f"novel must be a boolean array over {graph.num_nodes} nodes; got {novel.dtype} {novel.shape}"
            )
        for subset, mask in (("train", split.train), ("validation", split.validation)):
            if not novel[mask].any() or novel[mask].all():
                raise SettingError(
                    f"the oracle needs novel and known nodes in {subset}; there is only one of the two, take more nodes"
                )
        return super()._learn_seeds(graph, split, seeds, progress, novel=novel)

    def _objective(self, given: TrainingSet) -> Objective:
        assert given.novel is not None
        true = replace(given, graph=given.graph.with_target(given.novel))
        return RiskObjective(discriminate, *true.nodes)


class PriorDetector(NetworkDetector):
    r"""Warm up as a domain discriminator, estimate π with it by best-bin estimation, then train with a PU risk."""

    prior_epochs: int = param(Integer(1), "epochs of the warm-up as domain discriminator", default=150)
    epochs: int = param(Integer(1), "how many at most, those of the warm-up included", default=1000)
    patience: int = PATIENCE

    prior_: float = learned("π̂, the estimated fraction of known nodes in the target")

    def _check_params_jointly(self) -> None:
        if self.prior_epochs >= self.epochs:
            raise SettingError(f"prior_epochs must be fewer than epochs; got {self.prior_epochs} of {self.epochs}")

    @abstractmethod
    def _pu_objective(self, given: TrainingSet, prior: Tensor, source_probability: Tensor) -> Objective:
        """Build the risk to train with.

        Args:
            given: what is trained on.
            prior: π̂ of the whole target, (members,), on the device.
            source_probability: by the warm-up, (nodes, members), on the CPU: what priors are estimated with.
        """

    def _train(self, fleet: Fleet, given: TrainingSet, schedule: Schedule) -> list[Attributes]:
        data, report = given.data, schedule.progress
        data.train(
            fleet,
            RiskObjective(discriminate, *given.nodes),
            replace(schedule, epochs=self.prior_epochs, patience=None),
        )
        z = torch.sigmoid(-data.evaluate(fleet).diff(dim=-1)[..., 0])
        prior = estimated_priors(given, z, given.graph.is_target)
        later = replace(
            schedule,
            epochs=self.epochs - self.prior_epochs,
            first_epoch=self.prior_epochs,
            stage=1,
            progress=None if report is None else lambda done: report(self.prior_epochs + done),
        )
        data.train(fleet, self._pu_objective(given, prior.to(data.device, data.dtype), z), later)
        return [{"prior_": float(p)} for p in prior]


def estimated_priors(given: TrainingSet, source_probability: Tensor, among: Mask) -> Tensor:
    """Best-bin estimate of π among some target nodes, from the validation nodes, (members,)."""
    z, source = source_probability.numpy(), given.held_out_source
    chosen = given.split.validation & given.graph.is_target & among
    return torch.tensor([best_bin(z[source, m], z[chosen, m]) for m in range(z.shape[1])])


class UPU(PriorDetector):
    r"""Minimise $\pi E_S[f] + E_T[1 - f] - \pi E_S[1 - f]$, an unbiased estimate of the target's risk under SCAR.

    Target nodes count as novel, and what known ones among them add to that is taken off again, estimated on the
    source. A flexible network can push the difference below zero, where it means nothing.
    """

    name: ClassVar[str] = "upu"

    batch_size: int | None = BATCHES

    def _pu_objective(self, given: TrainingSet, prior: Tensor, source_probability: Tensor) -> Objective:
        return RiskObjective(lambda output, nodes: unbiased_risk(*soft_rates(output, nodes), prior), *given.nodes)


class NNPU(PriorDetector):
    r"""Minimise $\pi E_S[f] + \max(0, E_T[1 - f] - \pi E_S[1 - f])$.

    Where the second part is below zero the step goes back up on it instead (their Algorithm 1 with β = 0, γ = 1).
    """

    name: ClassVar[str] = "nnpu"

    batch_size: int | None = BATCHES

    def _pu_objective(self, given: TrainingSet, prior: Tensor, source_probability: Tensor) -> Objective:
        return RiskObjective(
            lambda output, nodes: non_negative_risk(*soft_rates(output, nodes), prior),
            *given.nodes,
            descent=lambda output, nodes, epoch: non_negative_step(*soft_rates(output, nodes), prior),
        )


class DistPU(PriorDetector):
    r"""Minimise $2\pi |E_S[1 - f] - 1| + |E_T[1 - f] - \pi| + \mu H_T(f)$.

    The means alone are met by scores that are all the same, so the entropy $H_T$ of the target's scores pushes each to
    a side. The paper's mixup is left out: mixing two nodes' features is not mixing their neighbourhoods.
    """

    name: ClassVar[str] = "dist-pu"

    batch_size: int | None = BATCHES

    ENTROPY: ClassVar[float] = 0.1  # μ

    def _pu_objective(self, given: TrainingSet, prior: Tensor, source_probability: Tensor) -> Objective:
        one = torch.ones_like(prior)
        wanted, weights = torch.stack([one, prior]), torch.stack([2 * prior, one])

        def risk(output: Output, nodes: DomainNodes) -> Tensor:
            matched = label_distribution(torch.stack(soft_rates(output, nodes)), wanted, weights)
            return matched + self.ENTROPY * entropy(output.margin, nodes.target)

        return RiskObjective(risk, *given.nodes)


class PuGnn(PriorDetector):
    r"""Minimise $|E_S[1 - f] - 1| + w (|E_N[1 - f] - \pi_N| + |E_F[1 - f] - \pi_F|) + \rho \mathcal{L}_{str}(g)$.

    N are the target nodes within `hops` edges of any source node, F the others, each with its own prior by best-bin
    estimation, and $w = 1 / (2 (\pi_N + \pi_F))$. $\mathcal{L}_{str}$ is the squared error of $σ(g_i \cdot g_j)$
    against 1 on edges and against 0 on `negatives_per_edge` non-edges for each.
    """

    name: ClassVar[str] = "pu-gnn"
    supports_batches: ClassVar[bool] = False

    hops: int = param(Integer(1), "δ, edges within which a target node is near the source", default=3)
    structure_weight: float = param(Number(0, np.inf), "ρ", default=0.1)
    negatives_per_edge: int = param(Integer(1), "K", default=50)

    def _pu_objective(self, given: TrainingSet, prior: Tensor, source_probability: Tensor) -> Objective:
        graph, split, data = given.graph, given.split, given.data
        target = graph.is_target
        near = within_hops(adjacency_of(graph), np.flatnonzero(~target), self.hops)
        # A set that training or validation has no node of has no mean to align and is left out; if both are, all target
        # nodes are one set.
        sets: list[Mask] = [
            s for s in (near, ~near) if all((s & target & subset).any() for subset in (split.train, split.validation))
        ] or [target]
        estimated = torch.stack([estimated_priors(given, source_probability, s) for s in sets])
        estimated = estimated.to(data.device, data.dtype)  # (sets, members)
        wanted = torch.cat([torch.ones_like(estimated[:1]), estimated])
        weight = 1 / (2 * estimated.sum(dim=0, keepdim=True).clamp(min=0.01))
        weights = torch.cat([torch.ones_like(weight), weight.expand_as(estimated)])
        members_of = {
            id(nodes): [positions(s & target & subset, data.device) for s in sets]
            for nodes, subset in zip(given.nodes, (split.train, split.validation), strict=True)
        }

        def risk(output: Output, nodes: DomainNodes) -> Tensor:
            f = torch.sigmoid(output.margin)
            means = torch.stack([soft_rate(f, nodes.source), *(soft_rate(f, s) for s in members_of[id(nodes)])])
            return label_distribution(means, wanted, weights)

        edges = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
        left, right = torch.from_numpy(edges).to(data.device)
        if len(left) == 0 or self.structure_weight == 0:
            return RiskObjective(risk, *given.nodes)
        everyone = torch.arange(graph.num_nodes, device=data.device)
        non_edges = NonEdges(everyone, left, right, self.negatives_per_edge * len(left))

        def descent(output: Output, nodes: DomainNodes, epoch: Tensor) -> Tensor:
            drawn, g = non_edges.draw(epoch), output.representation
            positive, negative = inner_products(g, left, right), inner_products(g, drawn.left, drawn.right)
            structure = structure_loss(positive, negative, drawn.valid)
            return risk(output, nodes) + self.structure_weight * structure

        return RiskObjective(risk, *given.nodes, descent=descent)


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

    em_steps: int = param(Integer(1), "EM steps at most", default=500)
    em_patience: int = param(
        Integer(1), "steps without a higher validation log-likelihood after which EM ends", default=50
    )
    epochs: int = param(Integer(1), "epochs of fitting a network in a step, at most", default=200)
    patience: int = param(
        Integer(1), "epochs without a lower validation loss after which that fitting ends", default=20
    )
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
