"""Propagation -> representations and logits of every member: the paper's network with a leading member axis.

Below it, a user's own module of PyTorch Geometric as encoder: copies that are evaluated one after another.
"""

import copy
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recoslip.base.errors import SettingError
from recoslip.learning.networks.interfaces import Fleet, Output, Product, Propagation
from recoslip.learning.networks.random_bits import derive, kept_factor, relu_and_drop_
from recoslip.learning.networks.whole_graph import Encoder, WholeGraph

SUMMED_AT_ONCE = 256  # nodes, in the gradient of members' matrices on a GPU


@dataclass(frozen=True)
class Architecture:
    """Sizes of one member: the encoder goes in -> hidden -> out, the head out -> head -> classes."""

    in_channels: int
    hidden_channels: int
    out_channels: int
    head_channels: int
    encoder: Encoder = "gcn"
    dropout: float = 0.5
    classes: int = 2
    input_dropout: float = 0.0  # of the features, the same entries for all members of one input seed


class NetworkFleet(Fleet):
    """Members of one architecture on one graph, evaluated together.

    GCNConv, BatchNorm, ReLU, Dropout, GCNConv, BatchNorm, ReLU; Linear, BatchNorm, ReLU, Dropout, Linear to 2.
    Every parameter has a leading member axis; a member's initial weights and dropout depend on its own seed
    alone.

    Args:
        architecture: sizes and encoder, the same for all members.
        seeds: one per member.
        input_seeds: one per member, of its input dropout; by default those of the members. Members one after the other
            with the same one drop the same features, which takes as long as for one of them.
    """

    keys: Tensor  # (members,) what each member's draws are derived from
    input_keys: Tensor  # (groups,) what the input dropout of members with one input seed is derived from

    def __init__(
        self, architecture: Architecture, seeds: Sequence[int], input_seeds: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        a = self.architecture = architecture
        self.members = len(seeds)
        self.register_buffer("keys", torch.tensor([seed_key(seed) for seed in seeds]))
        groups = [(seed, len(list(same))) for seed, same in itertools.groupby(input_seeds or seeds)]
        self.group_sizes = [size for _, size in groups]
        self.register_buffer("input_keys", torch.tensor([seed_key(seed) for seed, _ in groups]), persistent=False)
        generators = [torch.Generator().manual_seed(key) for key in self.keys.tolist()]
        convolution = {"gcn": GCN_INIT, "sage": SAGE_INIT, "mlp": LINEAR_INIT}[a.encoder]
        self.conv1 = _layer(a.in_channels, a.hidden_channels, convolution, generators, members_side_by_side=True)
        self.norm1 = MemberBatchNorm(self.members, a.hidden_channels)
        self.conv2 = _layer(a.hidden_channels, a.out_channels, convolution, generators)
        self.norm2 = MemberBatchNorm(self.members, a.out_channels)
        self.linear1 = _layer(a.out_channels, a.head_channels, LINEAR_INIT, generators)
        self.norm3 = MemberBatchNorm(self.members, a.head_channels)
        self.linear2 = _layer(a.head_channels, a.classes, LINEAR_INIT, generators, before_norm=False)

    def gather(self, chosen: Sequence[tuple[Self, int]]) -> Self:
        """Build a fleet, on the CPU, of members picked from fleets of this architecture."""
        fleet = type(self)(self.architecture, [0] * len(chosen))
        fleet.load_state_dict(gathered_state(chosen))
        return fleet

    def first_layer(self, graph: Propagation) -> Tensor | None:
        """Compute the first convolution, which training and evaluation share; None with input dropout."""
        return None if self.architecture.input_dropout else self._first_convolution(graph, None)

    def _first_convolution(self, graph: Propagation, epoch: int | Tensor | None) -> Tensor:
        """Compute (nodes, members, hidden); with `epoch`, with that epoch's input dropout."""
        weights = list(self.conv1.weights)  # (members, features, hidden) each
        if epoch is None or not self.architecture.input_dropout:
            return self.conv1.add_bias(self._sum(graph.first_layer, weights))
        keep = 1 - self.architecture.input_dropout
        groups = zip(derive(self.input_keys, 2, epoch), *(w.split(self.group_sizes) for w in weights), strict=True)
        parts = [self._sum(graph.first_layer_dropped(key, keep), own) for key, *own in groups]
        return self.conv1.add_bias(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))

    def _sum(self, products: Sequence[Product], weights: Sequence[Tensor]) -> Tensor:
        """Multiply members' weights, (members, columns, width), by the graph's matrices: (rows, members, width)."""
        members = len(weights[0])
        flat = [w.transpose(0, 1).reshape(w.shape[1], -1) for w in weights]  # (columns, members * width)
        total = _add_up(products, flat)
        return total.view(len(total), members, -1)

    def forward(
        self, graph: Propagation, *, epoch: int | Tensor | None = None, first_layer: Tensor | None = None
    ) -> Output:
        """Evaluate all members; with `epoch`, in training mode with that epoch's dropout.

        Args:
            graph: the graph's propagation, or that of a batch.
            epoch: number of the training step; None evaluates.
            first_layer: what `first_layer(graph)` returned, where the caller has it already.
        """
        h = self._first_convolution(graph, epoch) if first_layer is None else first_layer
        h = self._relu_dropout(self.norm1(h, epoch is not None), epoch, 0).view(h.shape)
        hidden = [member_matmul(h, weight).flatten(1) for weight in self.conv2.weights]
        total = _add_up(graph.second_layer, hidden)
        return self.head(self.conv2.add_bias(total.view(len(total), self.members, -1)), epoch)

    def head(self, h: Tensor, epoch: int | Tensor | None = None) -> Output:
        """Turn the output of the second convolution, (nodes, members, out), into representations and logits."""
        representation = F.relu_(self.norm2(h, epoch is not None)).view(h.shape)
        h = self.linear1.add_bias(member_matmul(representation, self.linear1.weights[0]))
        h = self._relu_dropout(self.norm3(h, epoch is not None), epoch, 1).view(h.shape)
        return Output(representation, self.linear2.add_bias(member_matmul(h, self.linear2.weights[0])))

    def _relu_dropout(self, h: Tensor, epoch: int | Tensor | None, layer: int) -> Tensor:
        """Compute in place, (nodes, members * width): batch normalisation does not look at its result again."""
        if epoch is None or self.architecture.dropout == 0:
            return F.relu_(h)
        key = derive(self.keys, layer, epoch)
        return cast(Tensor, _ReluDropout.apply(h, key, 1 - self.architecture.dropout))  # type: ignore[no-untyped-call]


def _add_up(products: Sequence[Product], inputs: Sequence[Tensor]) -> Tensor:
    """Add up products of the graph's matrices with one input each: (columns, any) -> (rows, any)."""
    return functools.reduce(operator.add, (product(values) for product, values in zip(products, inputs, strict=True)))


def gathered_state(chosen: Sequence[tuple[nn.Module, int]]) -> dict[str, Tensor]:
    """Stack the state of members picked from modules whose tensors all have a leading member axis, on the CPU."""
    modules = list(dict.fromkeys(module for module, _ in chosen))  # each state goes to the CPU once
    states = {module: {name: t.cpu() for name, t in module.state_dict().items()} for module in modules}
    return {
        name: torch.stack([states[module][name][member] for module, member in chosen]) for name in states[modules[0]]
    }


class MemberLayer(nn.Module):
    """Weights (members, in, out), one for each product of the layer, and a bias (members, out).

    A bias that batch normalisation follows has no effect and a gradient of zero. It keeps its initial value:
    Adam would blow the gradient's rounding errors up to full steps, different ones in another fleet. Where that value
    is zero, as in a GCN, it is not added either.
    """

    def __init__(self, weights: Sequence[Tensor], bias: Tensor, *, before_norm: bool, zero_bias: bool) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weights)
        self.bias = nn.Parameter(bias, requires_grad=not before_norm)
        self.stays_zero = before_norm and zero_bias

    def add_bias(self, h: Tensor) -> Tensor:
        """Add the bias to (nodes, members, out)."""
        return h if self.stays_zero else h + self.bias


class _ReluDropout(torch.autograd.Function):
    """ReLU and dropout in one, in place: the result tells what the gradient is multiplied by, so no mask is kept."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, key: Tensor, keep: float) -> Tensor:
        relu_and_drop_(h.view(len(h), len(key), -1), key, keep)
        ctx.mark_dirty(h)
        ctx.save_for_backward(h)
        ctx.keep = keep
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, result, 0).mul_(kept_factor(ctx.keep)), None, None


class MemberBatchNorm(nn.Module):
    """Batch normalisation over nodes, for each member and channel (torch.nn.BatchNorm1d's defaults)."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, width))
        self.bias = nn.Parameter(torch.zeros(members, width))
        self.register_buffer("running_mean", torch.zeros(members, width))
        self.register_buffer("running_var", torch.ones(members, width))

    def forward(self, h: Tensor, training: bool) -> Tensor:
        """Normalise (nodes, members, width): (nodes, members * width)."""
        return F.batch_norm(
            h.reshape(h.shape[0], -1),
            self.running_mean.view(-1),
            self.running_var.view(-1),
            self.weight.view(-1),
            self.bias.view(-1),
            training,
        )


def member_matmul(h: Tensor, weight: Tensor) -> Tensor:
    """Each member's own matrix: (nodes, members, in), (members, in, out) -> (nodes, members, out)."""
    return cast(Tensor, _MemberMatmul.apply(h, weight))  # type: ignore[no-untyped-call]


class _MemberMatmul(torch.autograd.Function):
    """The product and its gradient, which are written where they belong and not copied there."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(h, weight)
        return _times(h, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        h, weight = ctx.saved_tensors
        of_weight = _sum_in_blocks(h, grad) if h.is_cuda else torch.einsum("nmi,nmo->mio", h, grad)
        return _times(grad, weight.transpose(1, 2)), of_weight


def _times(h: Tensor, weight: Tensor) -> Tensor:
    """Multiply (nodes, members, in) by (members, in, out): (nodes, members, out), contiguous."""
    result = h.new_empty(len(h), len(weight), weight.shape[2])
    torch.bmm(h.transpose(0, 1), weight, out=result.transpose(0, 1))
    return result


def _sum_in_blocks(h: Tensor, grad: Tensor) -> Tensor:
    """Compute the gradient of members' matrices, a sum over many nodes, which cuBLAS would leave to a few threads."""
    whole = len(h) // SUMMED_AT_ONCE * SUMMED_AT_ONCE
    total = torch.einsum("nmi,nmo->mio", h[whole:], grad[whole:])
    if not whole:
        return total
    blocks = [t[:whole].view(-1, SUMMED_AT_ONCE, *t.shape[1:]) for t in (h, grad)]
    return total + torch.einsum("bnmi,bnmo->bmio", *blocks).sum(dim=0)


def seed_key(seed: int) -> int:
    """Spread a seed over 64 bits; a member's weights and dropout are derived from the result."""
    return int(derive(torch.tensor(seed), 0))


class Init(NamedTuple):
    """How PyTorch and PyTorch Geometric fill a layer: uniform in ±bound."""

    weights: int  # how many weight matrices
    glorot: bool  # bound √(6 / (in + out)) and zero bias, else 1/√in for both


GCN_INIT = Init(weights=1, glorot=True)
SAGE_INIT = Init(weights=2, glorot=False)
LINEAR_INIT = Init(weights=1, glorot=False)


def _layer(
    fan_in: int,
    fan_out: int,
    init: Init,
    generators: Sequence[torch.Generator],
    *,
    before_norm: bool = True,
    members_side_by_side: bool = False,
) -> MemberLayer:
    """Build a layer; its weights may lie in memory as one product for all members wants them, (in, members, out)."""
    bound = (6 / (fan_in + fan_out)) ** 0.5 if init.glorot else fan_in**-0.5

    def uniform(*shape: int) -> Tensor:
        return torch.stack([torch.empty(shape).uniform_(-bound, bound, generator=g) for g in generators])

    weights = [uniform(fan_in, fan_out) for _ in range(init.weights)]
    if members_side_by_side:
        weights = [weight.transpose(0, 1).contiguous().transpose(0, 1) for weight in weights]
    bias = torch.zeros(len(generators), fan_out) if init.glorot else uniform(fan_out)
    return MemberLayer(weights, bias, before_norm=before_norm, zero_bias=init.glorot)


class ModuleFleet(Fleet):
    """Copies of `encoder`, freshly initialised, each with the paper's head on top.

    Args:
        encoder: a module called as `encoder(x, edge_index)`, or with `edge_weight` too if its forward has
            such an argument, that returns (nodes, out); it must have `reset_parameters`.
        head: width of the head's hidden layer.
        dropout: of the head.
        seeds: one per member.
        classes: outputs of the head.
    """

    recordable = False  # a module of the user's may do anything

    def __init__(self, encoder: nn.Module, head: int, dropout: float, seeds: Sequence[int], classes: int = 2) -> None:
        super().__init__()
        self.members, self.classes = len(seeds), classes
        self.keys = [seed_key(seed) for seed in seeds]
        self.takes_weight = "edge_weight" in inspect.signature(encoder.forward).parameters
        self.encoders = nn.ModuleList()
        self.heads = nn.ModuleList()
        for key in self.keys:
            with torch.random.fork_rng():
                torch.manual_seed(key)
                member = copy.deepcopy(encoder)
                _reset(member)
                self.encoders.append(member)
                self.heads.append(
                    nn.Sequential(
                        nn.LazyLinear(head),
                        nn.BatchNorm1d(head),
                        nn.ReLU(),
                        nn.Dropout(dropout),
                        nn.Linear(head, classes),
                    )
                )

    def prepare(self, graph: WholeGraph) -> None:
        """Find out the representation's width by one evaluation, and initialise the head's first layer."""
        for key, encoder, head in zip(self.keys, self.encoders, self.heads, strict=True):
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(key + 1)
                encoder.eval()
                head.eval()
                head(self._represent(encoder, graph))

    def per_member(self, name: str, tensor: Tensor, values: Tensor) -> Tensor:
        """Return the value of the member that a state tensor belongs to: "encoders.3.lin.weight" is member 3's."""
        return values[int(name.split(".")[1])]

    def gather(self, chosen: Sequence[tuple[Self, int]]) -> Self:
        """Build a fleet, on the CPU, of members picked from fleets of this encoder."""
        fleet = copy.copy(self)
        fleet._modules = {
            name: nn.ModuleList(copy.deepcopy(getattr(other, name)[member]).cpu() for other, member in chosen)
            for name in ("encoders", "heads")
        }
        fleet.members, fleet.keys = len(chosen), [0] * len(chosen)
        return fleet

    def forward(
        self, graph: WholeGraph, *, epoch: int | Tensor | None = None, first_layer: Tensor | None = None
    ) -> Output:
        """Evaluate all members; with `epoch`, in training mode with that epoch's own random state."""
        representations, logits = [], []
        for key, encoder, head in zip(self.keys, self.encoders, self.heads, strict=True):
            encoder.train(epoch is not None)
            head.train(epoch is not None)
            with torch.random.fork_rng(enabled=epoch is not None):
                if epoch is not None:
                    torch.manual_seed(key ^ (int(epoch) + 1))
                g = self._represent(encoder, graph)
                logits.append(head(g))
            representations.append(g)
        return Output(torch.stack(representations, dim=1), torch.stack(logits, dim=1))

    def _represent(self, encoder: Callable[..., Tensor], graph: WholeGraph) -> Tensor:
        more = {"edge_weight": graph.edge_weight} if self.takes_weight else {}
        g = encoder(graph.x, graph.edge_index, **more)
        if g.ndim != 2 or g.shape[0] != graph.num_nodes:
            raise SettingError(
                f"the encoder must return one row per node, ({graph.num_nodes}, width); it returned {tuple(g.shape)}"
            )
        return g


def _reset(module: nn.Module) -> None:
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
        return
    children = list(module.children())
    if not children and any(True for _ in module.parameters(recurse=False)):
        raise SettingError(
            f"the encoder's {type(module).__name__} has no reset_parameters(), so members would start from "
            "the same weights; add that method"
        )
    for child in children:
        _reset(child)
