"""One member's weights -> the same network in PyTorch Geometric's own layers, for explanation methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MemberModule(nn.Module):
    """A network of two convolutions and a head, as `module(x, edge_index, edge_weight)` -> logits.

    Args:
        encoder: "gcn", "sage" or "mlp".
        widths: of features, first layer, representation and head.
        state: the member's tensors, named as in `NetworkFleet`.
        classes: the logits to return.
    """

    def __init__(self, encoder: str, widths: Sequence[int], state: Mapping[str, Tensor], classes: slice) -> None:
        from torch_geometric.nn import GCNConv, SAGEConv

        super().__init__()
        self.encoder = encoder
        self.takes_edge_weight = encoder != "sage"  # PyG's SAGEConv has no edge weights
        convolution = {"gcn": GCNConv, "sage": SAGEConv, "mlp": nn.Linear}[encoder]
        features, hidden, out, head = widths
        self.convolutions = nn.ModuleList([convolution(features, hidden), convolution(hidden, out)])
        self.linears = nn.ModuleList([nn.Linear(out, head), nn.Linear(head, classes.stop - classes.start)])
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in (hidden, out, head))
        everything = slice(None)
        layers = [*self.convolutions, *self.linears]
        with torch.no_grad():
            for layer, name in zip(layers, ("conv1", "conv2", "linear1", "linear2"), strict=True):
                _fill(layer, state, name, classes if name == "linear2" else everything)
            for norm, name in zip(self.norms, ("norm1", "norm2", "norm3"), strict=True):
                for tensor in ("weight", "bias", "running_mean", "running_var"):
                    getattr(norm, tensor).copy_(state[f"{name}.{tensor}"])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the logits of every node."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=False):
            if self.encoder == "gcn":
                x = convolution(x, edge_index, edge_weight)
            else:
                x = convolution(x, edge_index) if self.encoder == "sage" else convolution(x)
            x = F.relu(norm(x))
        logits: Tensor = self.linears[1](F.relu(self.norms[2](self.linears[0](x))))
        return logits


def _fill(layer: nn.Module, state: Mapping[str, Tensor], name: str, columns: slice) -> None:
    """Copy a layer's weights, stored as (in, out), into a library layer."""
    matrices = [p for key, p in layer.named_parameters() if key.endswith("weight")]
    (bias,) = (p for key, p in layer.named_parameters() if key.endswith("bias"))
    for k, matrix in enumerate(matrices):
        matrix.copy_(state[f"{name}.weights.{k}"][:, columns].t())
    bias.copy_(state[f"{name}.bias"][columns])


class EncoderWithHead(nn.Module):
    """A user's encoder with its head, as `module(x, edge_index, edge_weight)` -> logits."""

    def __init__(self, encoder: nn.Module, head: nn.Module, takes_edge_weight: bool) -> None:
        super().__init__()
        self.encoder, self.head, self.passes_weight = encoder, head, takes_edge_weight

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the logits of every node."""
        more = {"edge_weight": edge_weight} if self.passes_weight else {}
        logits: Tensor = self.head(self.encoder(x, edge_index, **more))
        return logits
