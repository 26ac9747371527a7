"""What detectors that train the paper's network have in common: its settings, and the fleet they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.base import Detector, Progress, Scores
from recoslip.errors import ModelFileError, OutOfMemory, SettingError
from recoslip.fleet.batches import Batches
from recoslip.fleet.device import BATCH_SIZE, block_size, memory_needed, resolve_device
from recoslip.fleet.modules import ModuleFleet, gather
from recoslip.fleet.network import Architecture, Fleet, seed_key
from recoslip.fleet.training import Objective, evaluate, train
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import NodeGraph
from recoslip.memory import memory
from recoslip.shift import Split

T = TypeVar("T")


class NetworkDetector(Detector):
    """A detector that trains networks of encoder and head with Adam."""

    hidden_channels: int
    out_channels: int
    head_channels: int
    encoder: Encoder | nn.Module
    dropout: float
    input_dropout: float = 0.0
    epochs: int
    learning_rate: float
    batch_size: int | None = None
    divisible: ClassVar[bool] = True  # whether it can be trained in batches

    fleet_: Fleet | ModuleFleet  # the network or networks that score, on the CPU

    def _check_network(self) -> None:
        self._check_common()
        for name in ("hidden_channels", "out_channels", "head_channels", "epochs"):
            checks.whole(name, getattr(self, name), 1)
        if self.encoder is None:
            raise SettingError(
                "it was fitted with an encoder of the user's own; give it again: load(folder, encoder=...)"
            )
        if not isinstance(self.encoder, nn.Module):
            checks.choice("encoder", self.encoder, Encoder)
        checks.number("dropout", self.dropout, 0, 0.99)
        checks.number("learning_rate", self.learning_rate, 0, np.inf, open_ends=True)
        if self.batch_size is not None:
            checks.whole("batch_size", self.batch_size, 0)

    def _widest(self) -> int:
        return max(self.hidden_channels, self.out_channels, self.head_channels)

    def _together(self) -> int:
        """How many networks of one seed are trained at once, at least."""
        return 1

    def _view(self, graph: NodeGraph) -> GraphView | Batches:
        """Return the graph as the networks shall see it: whole, or in batches where that was asked for or must be."""
        device = resolve_device(self.device)
        encoder = None if isinstance(self.encoder, nn.Module) else self.encoder
        needed = memory_needed(graph, self._together() * self._widest())
        if self.divisible and encoder is not None:
            # By what the machine has, not by what is free just now: the same seed shall give the same scores.
            size = self.batch_size
            if size is None:
                size = BATCH_SIZE if needed > memory(device).total / 4 else 0
            if size:
                return Batches(graph, encoder, device, batch_size=size)
            remedy = f"set batch_size to {BATCH_SIZE}, say"
        elif self.batch_size:
            raise SettingError("a module of your own is trained on the whole graph; leave batch_size out")
        else:
            remedy = "take a method and encoder that train in batches, such as the default"
        free = memory(device).free
        if needed > free:
            raise OutOfMemory(
                f"{self.name} on the whole graph needs about {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are "
                f"free; {remedy}, or smaller hidden_channels"
            )
        return GraphView.of(graph, encoder, device)

    def _fleet(
        self, features: int, seeds: Sequence[int], classes: int = 2, input_dropout: float | None = None
    ) -> Fleet | ModuleFleet:
        if isinstance(self.encoder, nn.Module):
            return ModuleFleet(self.encoder, self.head_channels, self.dropout, seeds, classes)
        shape = Architecture(
            in_channels=features,
            hidden_channels=self.hidden_channels,
            out_channels=self.out_channels,
            head_channels=self.head_channels,
            encoder=self.encoder,
            dropout=self.dropout,
            classes=classes,
            input_dropout=self.input_dropout if input_dropout is None else input_dropout,
        )
        return Fleet(shape, seeds)

    def _fleet_tensors(self) -> dict[str, Tensor]:
        """Return the networks as tensors to save, which `_restored` makes them of again."""
        return {f"fleet.{name}": tensor for name, tensor in self.fleet_.state_dict().items()}

    def _restored(self, tensors: Mapping[str, Tensor], members: int = 1, classes: int = 2) -> Fleet | ModuleFleet:
        """Make the networks that were saved."""
        state = below("fleet.", tensors)
        widths = [self.head_channels, classes]
        if not isinstance(self.encoder, nn.Module):
            widths = [self.n_features_in_, self.hidden_channels, self.out_channels, *widths]
        refuse_larger(state, members, widths)
        fleet = self._fleet(self.n_features_in_, [0] * members, classes)
        fleet.load_state_dict(state)
        return fleet

    def _blocks(self, members: Sequence[T], view: GraphView | Batches) -> list[Sequence[T]]:
        """Divide members, each of one or more networks, into groups to train together."""
        at_once = min(view.nodes, view.batch_size * 32) if isinstance(view, Batches) else view.nodes
        size = block_size(at_once, self._together() * self._widest(), view.device)
        return [members[start : start + size] for start in range(0, len(members), size)]

    def _logits(self, graph: NodeGraph) -> Tensor:
        """Evaluate the learned networks: (nodes, members, classes), on the CPU, in double precision."""
        view = self._view(graph)
        logits = evaluate(self.fleet_.to(view.device), view)
        self.fleet_.to("cpu")
        return logits

    def _json_settings(self) -> dict[str, Any]:
        settings = super()._json_settings()
        if isinstance(settings.get("encoder"), nn.Module):
            settings["encoder"] = None  # code is not saved; `load(folder, encoder=...)` brings it back
        return settings


class SingleNetworkDetector(NetworkDetector):
    """A network detector with one network per seed whose score is f, the probability of being novel.

    Args:
        max_fpr: share of the validation source nodes that may score above the threshold.
        hidden_channels: width of the encoder's first layer.
        out_channels: width of the encoder's second layer, the representation.
        head_channels: width of the head's hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        epochs: at most so many.
        patience: epochs without a better validation value after which training ends; the best weights are kept.
        learning_rate: Adam's.
        batch_size: nodes of a batch, of which each epoch sees one; 0 for the whole graph, None to let memory decide.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.
    """

    def __init__(
        self,
        *,
        max_fpr: float = 0.01,
        hidden_channels: int = 64,
        out_channels: int = 32,
        head_channels: int = 32,
        encoder: Encoder | nn.Module = "gcn",
        dropout: float = 0.5,
        epochs: int = 2000,
        patience: int = 50,
        learning_rate: float = 0.001,
        batch_size: int | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.max_fpr = max_fpr
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.head_channels = head_channels
        self.encoder = encoder
        self.dropout = dropout
        self.epochs = epochs
        self.patience = patience
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        self._check_network()
        checks.whole("patience", self.patience, 1)

    def _classes(self) -> int:
        """How many outputs a network has."""
        return 2

    def _train(
        self,
        fleet: Fleet | ModuleFleet,
        view: GraphView | Batches,
        graph: NodeGraph,
        split: Split,
        progress: Callable[[int], None],
        **given: Any,
    ) -> list[dict[str, Any]] | None:
        """Train a block of networks, one per seed, and return what each learned beside its weights, if anything."""
        raise NotImplementedError

    def _minimise(
        self,
        fleet: Fleet | ModuleFleet,
        view: GraphView | Batches,
        objective: Objective,
        progress: Callable[[int], None],
    ) -> None:
        """Train with this detector's epochs, patience and learning rate."""
        train(
            fleet,
            view,
            objective,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            patience=self.patience,
            progress=progress,
        )

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        view = self._view(graph)
        blocks = self._blocks([seed_key(seed) for seed in seeds], view)
        learned = []
        for place, block in enumerate(blocks):
            fleet = self._fleet(graph.num_features, block, self._classes()).to(view.device)
            report = part_of(progress, place, len(blocks), self.epochs)
            extra = self._train(fleet, view, graph, split, report, **given) or [{} for _ in block]
            report(self.epochs)
            learned += [own | {"fleet_": gather([(fleet, member)])} for member, own in enumerate(extra)]
            logits = evaluate(fleet, view)
            for member, own in enumerate(learned[-len(block) :]):
                own |= self._calibrate(logits[:, member], graph, split)
                own["scores_"] = self._from_logits(logits[:, member], graph, own)
        return learned

    def _calibrate(self, logits: Tensor, graph: NodeGraph, split: Split) -> dict[str, float]:
        """Learn numbers from a trained network's logits that turning them into scores needs."""
        return {}

    def _from_logits(self, logits: Tensor, graph: NodeGraph, learned: Mapping[str, Any]) -> Scores:
        """Turn one network's logits, (nodes, classes), into scores."""
        scores: Scores = torch.sigmoid(logits[:, 1] - logits[:, 0]).numpy()
        return scores

    def _score(self, graph: NodeGraph) -> Scores:
        return self._from_logits(self._logits(graph)[:, 0], graph, vars(self))

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        numbers = {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") and isinstance(value, float) and name != "threshold_"
        }
        return numbers, self._fleet_tensors()

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        annotated = {
            name: kind for base in type(self).__mro__ for name, kind in vars(base).get("__annotations__", {}).items()
        }
        needed = {name for name, kind in annotated.items() if kind == "float" and name.endswith("_")} - {"threshold_"}
        numbers = {name: float(values[name]) for name in needed | {*values} if name.endswith("_")}
        return numbers | {"fleet_": self._restored(tensors, classes=self._classes())}


def part_of(progress: Progress, part: int, parts: int, steps: int) -> Callable[[int], None]:
    """Report the steps of one of several equal parts as steps of the whole."""
    return lambda done: progress(part * steps + done, parts * steps)


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the tensors whose names begin with `prefix`, and take it off."""
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not found:
        raise ModelFileError(f"no tensors named {prefix}*")
    return found


def refuse_larger(state: Mapping[str, Tensor], members: int, widths: Sequence[int]) -> None:
    """Raise if networks with layers of these widths do not fit into what was saved, before memory is taken for them."""
    if members * max(a * b for a, b in pairwise(widths)) > sum(tensor.numel() for tensor in state.values()):
        raise ModelFileError("it is damaged: its settings speak of larger networks than it holds; fit it again")
