"""The settings of the paper's network, and how detectors build, train, evaluate and save fleets of it."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recoslip.base.errors import OutOfMemory, SettingError
from recoslip.base.progress import Phases, Progress
from recoslip.base.settings import Choice, Integer, Number, Optional, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask, Split
from recoslip.learning.base import Attributes, Detector, Scores, computes
from recoslip.learning.networks.batches import SampledGraph
from recoslip.learning.networks.device import (
    BATCH_SIZE,
    block_size,
    device_memory,
    memory_needed,
    resolve_device,
    torch_defaults,
)
from recoslip.learning.networks.interfaces import Fleet, GraphInput, Objective, OutputName, Schedule
from recoslip.learning.networks.network import Architecture, ModuleFleet, NetworkFleet, seed_key
from recoslip.learning.networks.objectives import DomainNodes, domain_nodes
from recoslip.learning.networks.sparse_products import to_tensor
from recoslip.learning.networks.whole_graph import Encoder, WholeGraph

T = TypeVar("T")
Networks = TypeVar("Networks", bound=nn.Module)


def check_encoder(name: str, value: Any) -> None:
    """Raise unless `value` names an encoder or is a module."""
    if value is None:
        raise SettingError("it was fitted with an encoder of the user's own; give it again: load(folder, encoder=...)")
    if not isinstance(value, nn.Module):
        Choice(Encoder)(name, value)


def check_encoders(name: str, value: Any) -> None:
    """Raise unless `value` is an encoder or one or more of them."""
    if isinstance(value, str | nn.Module) or value is None:
        check_encoder(name, value)
        return
    if not isinstance(value, Sequence) or not len(value):
        raise SettingError(f"{name} must be an encoder or a sequence of encoders; got {value!r}")
    for encoder in value:
        check_encoder(f"each of {name}", encoder)


# Settings that some of the networks' detectors have.
PATIENCE = param(
    Integer(1),
    "epochs without a better validation value after which training ends; the best weights are kept",
    default=50,
)
BATCHES = param(
    Optional(Integer(0)),
    "nodes of a batch, of which each epoch sees one; 0 for the whole graph, None to choose by the memory there is",
    default=None,
)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """What networks are trained on."""

    graph: NodeGraph
    split: Split
    data: GraphInput  # the graph, whole or in batches
    novel: Mask | None = None  # the truth, of a detector that requires it

    @cached_property
    def nodes(self) -> tuple[DomainNodes, DomainNodes]:
        """Training and validation nodes of each domain, on the device."""
        return domain_nodes(self.graph, self.split, self.data.device)

    @property
    def held_out_source(self) -> Mask:
        """The validation nodes of the source, (nodes,)."""
        return self.split.validation & ~self.graph.is_target


class FleetDetector(Detector):
    """A detector that trains a fleet with Adam; by default one network per seed, which keeps its best weights."""

    hidden_channels: int = param(Integer(1), "width of the encoder's first layer", default=64)
    out_channels: int = param(Integer(1), "width of the encoder's second layer, the representation", default=32)
    dropout: float = param(Number(0, 0.99), "fraction of the units that are dropped in the networks", default=0.5)
    epochs: int = param(Integer(1), "how many at most", default=2000)
    learning_rate: float = param(Number(0, np.inf, open_ends=True), "Adam's", default=0.001)

    fleet_: Fleet = learned("the network or networks that score, on the CPU")

    @abstractmethod
    def _graph_input(self, graph: NodeGraph) -> GraphInput:
        """Return the graph as networks are trained on it."""

    @abstractmethod
    def _build_fleet(self, features: int, seeds: Sequence[int]) -> Fleet:
        """Build untrained networks, one per seed."""

    def _objective(self, given: TrainingSet) -> Objective:
        """Build what the default `_train` minimises."""
        raise NotImplementedError

    def _train(self, fleet: Fleet, given: TrainingSet, schedule: Schedule) -> list[Attributes]:
        """Train a block of networks, one per seed, and return what each learned besides its weights."""
        given.data.train(fleet, self._objective(given), schedule)
        return [{} for _ in range(fleet.members)]

    def _numbers(self, output: Tensor, given: TrainingSet) -> Attributes:
        """Return what turns one trained network's output into scores, besides its weights; by default nothing does."""
        return {}

    @abstractmethod
    def _from_output(self, output: Tensor, graph: NodeGraph, numbers: Mapping[str, Any]) -> Scores:
        """Turn one network's output, (nodes, ...) on the CPU in double precision, into scores."""

    def _widest_layer(self) -> int:
        """Return the width of the widest layer."""
        return max(self.hidden_channels, self.out_channels)

    def _networks_per_seed(self) -> int:
        """Return how many networks of one seed are trained at once, at least."""
        return 1

    def _blocks(self, members: Sequence[T], graph: GraphInput) -> list[Sequence[T]]:
        """Divide members, each of one or more networks, into blocks to train together."""
        size = block_size(graph.nodes_per_step, self._networks_per_seed() * self._widest_layer(), graph.device)
        return [members[start : start + size] for start in range(0, len(members), size)]

    def _members(self, seeds: Sequence[int]) -> Sequence[Any]:
        """Return what tells the members that are trained for some seeds apart."""
        return [seed_key(seed) for seed in seeds]

    def _steps(self) -> int:
        """Return how many steps of progress the training of a block takes."""
        return self.epochs

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Any]:
        given = TrainingSet(graph, split, self._graph_input(graph), **truth)
        blocks = self._blocks(self._members(seeds), given.data)
        phases = Phases(progress, len(blocks) * self._steps())
        learned = []
        for block in blocks:
            report = phases.phase(self._steps())
            learned += self._learn_block(given, block, report)
            report(self._steps())  # training may have ended early
        return learned

    def _learn_block(self, given: TrainingSet, members: Sequence[Any], report: Callable[[int], None]) -> list[Any]:
        """Train members together; return what each learned."""
        fleet = self._build_fleet(given.graph.num_features, members).to(given.data.device)
        learned = self._train(fleet, given, self._schedule(report))
        output = given.data.evaluate(fleet)
        for k, own in enumerate(learned):
            own |= {"fleet_": fleet.gather([(fleet, k)])} | self._numbers(output[:, k], given)
            own["scores_"] = self._from_output(output[:, k], given.graph, own)
        return learned

    def _schedule(self, report: Callable[[int], None]) -> Schedule:
        """Return this detector's epochs, learning rate and patience."""
        return Schedule(self.epochs, self.learning_rate, patience=getattr(self, "patience", None), progress=report)

    def _score(self, graph: NodeGraph) -> Scores:
        output = evaluated(self.fleet_, self._graph_input(graph))
        return self._from_output(output[:, 0], graph, vars(self))

    def _computing(self) -> AbstractContextManager[Any]:
        """Compute in PyTorch's default state, whatever the caller's is."""
        return torch_defaults()

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
        return with_weights(self._build_fleet(self.n_features_in_, [0]), arrays)


def evaluated(fleet: Fleet, data: GraphInput, output: OutputName = "logits") -> Tensor:
    """Evaluate learned networks, (nodes, members, any), and leave them on the CPU."""
    result = data.evaluate(fleet.to(data.device), output)
    fleet.to("cpu")
    return result


def with_weights(module: Networks, arrays: Mapping[str, NDArray[Any]]) -> Networks:
    """Give a fleet, or several, the weights that were saved, and return it."""
    module.load_state_dict({name: to_tensor(array) for name, array in arrays.items()})
    return module


def standardised(values: NDArray[np.float64], mean: float, deviation: float) -> Scores:
    """Return σ of how many standard deviations values lie above a mean."""
    return np.asarray(torch.sigmoid(torch.from_numpy((values - mean) / deviation)).numpy())


class NetworkDetector(FleetDetector):
    """A detector that trains networks of encoder and head, scored by f."""

    head_channels: int = param(Integer(1), "width of the head's hidden layer", default=32)
    encoder: Encoder | nn.Module = param(
        check_encoder, '"gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`', default="gcn"
    )

    supports_batches: ClassVar[bool] = True

    def _widest_layer(self) -> int:
        return max(super()._widest_layer(), self.head_channels)

    def _graph_input(self, graph: NodeGraph, encoder: Encoder | nn.Module | None = None) -> GraphInput:
        """Return the graph as networks are trained on it: whole, or in batches where asked for or needed."""
        device = resolve_device(self.device)
        encoder = self.encoder if encoder is None else encoder
        encoder = None if isinstance(encoder, nn.Module) else encoder
        batch_size: int | None = getattr(self, "batch_size", None)
        needed = memory_needed(graph, self._networks_per_seed() * self._widest_layer())
        if self.supports_batches and encoder is not None:
            # By the memory there is, not by what is free just now: the same seed gives the same scores.
            if batch_size is None:
                batch_size = BATCH_SIZE if needed > device_memory(device).total / 4 else 0
            if batch_size:
                return SampledGraph(graph, encoder, device, batch_size=batch_size)
            remedy = f"set batch_size to {BATCH_SIZE}, say"
        elif batch_size:
            raise SettingError("a module of your own is trained on the whole graph; leave batch_size out")
        else:
            remedy = "take a method and encoder that train in batches, such as the default"
        free = device_memory(device).free
        needed *= len(encoders_of(self))  # those train at once
        if needed > free:
            raise OutOfMemory(
                f"{self.name} on the whole graph needs about {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are "
                f"free; {remedy}, or smaller hidden_channels"
            )
        return WholeGraph.of(graph, encoder, device)

    def _build_fleet(
        self,
        features: int,
        seeds: Sequence[int],
        *,
        encoder: Encoder | nn.Module | None = None,
        input_dropout: float = 0.0,
        input_seeds: Sequence[int] | None = None,
    ) -> Fleet:
        """Build untrained networks, one per seed."""
        encoder = self.encoder if encoder is None else encoder
        if isinstance(encoder, nn.Module):
            return ModuleFleet(encoder, self.head_channels, self.dropout, seeds, self._num_classes())
        architecture = Architecture(
            in_channels=features,
            hidden_channels=self.hidden_channels,
            out_channels=self.out_channels,
            head_channels=self.head_channels,
            encoder=encoder,
            dropout=self.dropout,
            classes=self._num_classes(),
            input_dropout=input_dropout,
        )
        return NetworkFleet(architecture, seeds, input_seeds)

    def _num_classes(self) -> int:
        """Return how many outputs a network has."""
        return 2

    def _from_output(self, output: Tensor, graph: NodeGraph, numbers: Mapping[str, Any]) -> Scores:
        return np.asarray(torch.sigmoid(output[:, 1] - output[:, 0]).numpy())

    def _fleets(self) -> Sequence[Fleet]:
        """Return the learned networks of each encoder."""
        return [self.fleet_]

    @computes
    def representation(self, graph: NodeGraph, nodes: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float64]:
        """Return the representations of each encoder's last networks, of one alone where the graph is large."""
        parts = []
        for encoder, fleet in zip(encoders_of(self), self._fleets(), strict=True):
            data = self._graph_input(graph, encoder)
            count = 1 if data.nodes_per_step < data.num_nodes else min(self._networks_per_seed(), fleet.members)
            last = fleet.gather([(fleet, k) for k in range(fleet.members - count, fleet.members)])
            parts.append(evaluated(last, data, "representation")[nodes].flatten(1).numpy())
        return np.concatenate(parts, axis=1)


def encoders_of(detector: NetworkDetector) -> tuple[Encoder | nn.Module, ...]:
    """Return the encoder of a detector, or each of them where there are several."""
    encoder: Any = detector.encoder
    encoders: Any = (encoder,) if isinstance(encoder, str | nn.Module) else encoder
    return tuple(encoders)
