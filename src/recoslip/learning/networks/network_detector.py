"""The settings of the paper's network, and how detectors build, train, evaluate and save fleets of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recoslip.base.errors import OutOfMemory, SettingError
from recoslip.base.progress import Phases, Progress
from recoslip.base.settings import Choice, Integer, Number, Optional, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Split
from recoslip.learning.base import Attributes, Detector, Presentation, Scores, computes, each_graph
from recoslip.learning.networks.batches import SampledGraph
from recoslip.learning.networks.device import (
    BATCH_SIZE,
    block_size,
    device_memory,
    memory_needed,
    resolve_device,
    torch_defaults,
)
from recoslip.learning.networks.interfaces import Fleet, GraphInput, Objective, Schedule
from recoslip.learning.networks.network import Architecture, NetworkFleet, seed_key
from recoslip.learning.networks.sparse_products import to_tensors
from recoslip.learning.networks.user_encoder import ModuleFleet
from recoslip.learning.networks.whole_graph import Encoder, WholeGraph

T = TypeVar("T")


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
    50, Integer(1), "epochs without a better validation value after which training ends; the best weights are kept"
)
BATCHES = param(
    None,
    Optional(Integer(0)),
    "nodes of a batch, of which each epoch sees one; 0 for the whole graph, None to choose by the memory there is",
)


class NetworkDetector(Detector):
    """A detector that trains networks of encoder and head with Adam; by default one network per seed, scored by f."""

    hidden_channels: int = param(64, Integer(1), "width of the encoder's first layer")
    out_channels: int = param(32, Integer(1), "width of the encoder's second layer, the representation")
    head_channels: int = param(32, Integer(1), "width of the head's hidden layer")
    encoder: Encoder | nn.Module = param(
        "gcn", check_encoder, '"gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`'
    )
    dropout: float = param(0.5, Number(0, 0.99), "fraction of the units that are dropped in encoder and head")
    epochs: int = param(2000, Integer(1), "how many at most")
    learning_rate: float = param(0.001, Number(0, np.inf, open_ends=True), "Adam's")

    fleet_: Fleet = learned("the network or networks that score, on the CPU")

    supports_batches: ClassVar[bool] = True

    def _widest_layer(self) -> int:
        """Return the width of the widest layer."""
        return max(self.hidden_channels, self.out_channels, self.head_channels)

    def _networks_per_seed(self) -> int:
        """Return how many networks of one seed are trained at once, at least."""
        return 1

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
        classes: int = 2,
        *,
        encoder: Encoder | nn.Module | None = None,
        input_dropout: float = 0.0,
        input_seeds: Sequence[int] | None = None,
    ) -> Fleet:
        """Build untrained networks, one per seed."""
        encoder = self.encoder if encoder is None else encoder
        if isinstance(encoder, nn.Module):
            return ModuleFleet(encoder, self.head_channels, self.dropout, seeds, classes)
        architecture = Architecture(
            in_channels=features,
            hidden_channels=self.hidden_channels,
            out_channels=self.out_channels,
            head_channels=self.head_channels,
            encoder=encoder,
            dropout=self.dropout,
            classes=classes,
            input_dropout=input_dropout,
        )
        return NetworkFleet(architecture, seeds, input_seeds)

    def _blocks(self, members: Sequence[T], graph: GraphInput) -> list[Sequence[T]]:
        """Divide members, each of one or more networks, into blocks to train together."""
        size = block_size(graph.nodes_per_step, self._networks_per_seed() * self._widest_layer(), graph.device)
        return [members[start : start + size] for start in range(0, len(members), size)]

    def _num_classes(self) -> int:
        """Return how many outputs a network has."""
        return 2

    def _train(
        self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, schedule: Schedule, **truth: Any
    ) -> list[dict[str, Any]]:
        """Train a block of networks, one per seed, and return what each learned besides its weights."""
        data.train(fleet, self._objective(fleet, data, graph, split, **truth), schedule)
        return [{} for _ in range(fleet.members)]

    def _objective(self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, **truth: Any) -> Objective:
        """Build what the default `_train` minimises."""
        raise NotImplementedError

    def _learn(self, shown: Sequence[Presentation], progress: Progress, **truth: Any) -> list[Attributes]:
        learned = []
        for graph, split, seeds, report in each_graph(shown, progress):
            learned += self._learn_seeds(graph, split, seeds, report, **truth)
        return learned

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Attributes]:
        """Train one network or more for each seed, in blocks of as many as can be trained at once."""
        data = self._graph_input(graph)
        blocks = self._blocks([seed_key(seed) for seed in seeds], data)
        phases = Phases(progress, len(blocks) * self.epochs)
        learned = []
        for block in blocks:
            fleet = self._build_fleet(graph.num_features, block, self._num_classes()).to(data.device)
            report = phases.phase(self.epochs)
            extra = self._train(fleet, data, graph, split, self._schedule(report), **truth)
            report(self.epochs)  # training may have ended early
            logits = data.evaluate(fleet)
            for member, attributes in enumerate(extra):
                attributes["fleet_"] = fleet.gather([(fleet, member)])
                attributes |= self._learn_from_logits(logits[:, member], graph, split)
                attributes["scores_"] = self._from_logits(logits[:, member], graph, attributes)
            learned += extra
        return learned

    def _schedule(self, progress: Callable[[int], None]) -> Schedule:
        """Return this detector's epochs, learning rate and patience."""
        return Schedule(self.epochs, self.learning_rate, patience=getattr(self, "patience", None), progress=progress)

    def _learn_from_logits(self, logits: Tensor, graph: NodeGraph, split: Split) -> dict[str, float]:
        """Learn numbers from a trained network's logits that turning them into scores needs."""
        return {}

    def _from_logits(self, logits: Tensor, graph: NodeGraph, attributes: Mapping[str, Any]) -> Scores:
        """Turn one network's logits, (nodes, classes), into scores."""
        scores: Scores = torch.sigmoid(logits[:, 1] - logits[:, 0]).numpy()
        return scores

    def _score(self, graph: NodeGraph) -> Scores:
        return self._from_logits(self._logits(graph)[:, 0], graph, vars(self))

    def _logits(self, graph: NodeGraph) -> Tensor:
        """Evaluate the learned networks: (nodes, members, classes), on the CPU, in double precision."""
        data = self._graph_input(graph)
        logits = data.evaluate(self.fleet_.to(data.device))
        self.fleet_.to("cpu")
        return logits

    @computes
    def representation(self, graph: NodeGraph, nodes: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float64]:
        """Return the representations of all learned networks side by side, of one alone where the graph is large."""
        data, fleet = self._graph_input(graph), self.fleet_
        if data.nodes_per_step < data.num_nodes:
            fleet = fleet.gather([(fleet, 0)])
        result: NDArray[np.float64] = data.evaluate(fleet.to(data.device), "representation")[nodes].flatten(1).numpy()
        fleet.to("cpu")
        return result

    def _computing(self) -> AbstractContextManager[Any]:
        """Compute in PyTorch's default state, whatever the caller's is."""
        return torch_defaults()

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
        return self._restored_fleet(arrays)

    def _restored_fleet(
        self, arrays: Mapping[str, NDArray[Any]], members: int = 1, encoder: Encoder | nn.Module | None = None
    ) -> Fleet:
        """Rebuild the networks that were saved."""
        fleet = self._build_fleet(self.n_features_in_, [0] * members, self._num_classes(), encoder=encoder)
        fleet.load_state_dict(to_tensors(arrays))
        return fleet


def encoders_of(detector: NetworkDetector) -> tuple[Encoder | nn.Module, ...]:
    """Return the encoder of a detector, or each of them where there are several."""
    encoder: Any = detector.encoder
    encoders: Any = (encoder,) if isinstance(encoder, str | nn.Module) else encoder
    return tuple(encoders)
