"""What detectors that train the paper's network have in common: its settings, and the fleet they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from torch import nn

from recoslip.detectors import checks
from recoslip.detectors.base import Detector
from recoslip.fleet.device import block_size, resolve_device
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Architecture, Fleet
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import NodeGraph

T = TypeVar("T")


class NetworkDetector(Detector):
    """A detector that trains networks of encoder and head with Adam."""

    hidden_channels: int
    out_channels: int
    head_channels: int
    encoder: Encoder | nn.Module
    dropout: float
    epochs: int
    learning_rate: float

    def _check_network(self) -> None:
        for name in ("hidden_channels", "out_channels", "head_channels", "epochs"):
            checks.whole(name, getattr(self, name), 1)
        if not isinstance(self.encoder, nn.Module):
            checks.choice("encoder", self.encoder, Encoder)
        checks.number("dropout", self.dropout, 0, 0.99)
        checks.number("learning_rate", self.learning_rate, 0, np.inf, open_ends=True)
        checks.whole("random_state", self.random_state, 0)
        resolve_device(self.device)

    def _view(self, graph: NodeGraph) -> GraphView:
        encoder = None if isinstance(self.encoder, nn.Module) else self.encoder
        return GraphView.of(graph, encoder, resolve_device(self.device))

    def _fleet(self, features: int, seeds: Sequence[int]) -> Fleet | ModuleFleet:
        if isinstance(self.encoder, nn.Module):
            return ModuleFleet(self.encoder, self.head_channels, self.dropout, seeds)
        shape = Architecture(
            features, self.hidden_channels, self.out_channels, self.head_channels, self.encoder, self.dropout
        )
        return Fleet(shape, seeds)

    def _blocks(self, members: Sequence[T], view: GraphView) -> list[Sequence[T]]:
        """Divide members into groups to train together."""
        size = block_size(view.nodes, self.hidden_channels, view.device)
        return [members[start : start + size] for start in range(0, len(members), size)]

    def _json_settings(self) -> dict[str, Any]:
        settings = super()._json_settings()
        if isinstance(self.encoder, nn.Module):
            settings["encoder"] = None  # code is not saved; `load(folder, encoder=...)` brings it back
        return settings
