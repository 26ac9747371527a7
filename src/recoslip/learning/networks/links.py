"""Pairs of nodes -> the selective link prediction loss (paper, section 4.2); random pairs that no edge joins."""

from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from recoslip.learning.networks.device import can_take
from recoslip.learning.networks.random_bits import derive, words


def cut_score(scores: Tensor, recall_target: Tensor) -> Tensor:
    r"""$z_{\tilde\alpha} = \min\{z : \frac{1}{n}\sum_v 1[f(v) \le z] > 1 - \tilde\alpha\}$; lower nodes are undecided.

    Args:
        scores: (nodes, members) of the target nodes; anything that orders them as f does.
        recall_target: (members,) α̃.

    Returns:
        (members,); the bottom 1 - α̃ of each member's scores are lower.

    >>> cut_score(torch.tensor([[0.1], [0.9], [0.5], [0.3]]), torch.tensor([0.25]))
    tensor([0.9000])
    """
    count = scores.shape[0]
    ordered = scores.t().sort(dim=1).values  # (members, nodes)
    # n(1 - α̃) in double precision and with a nudge: 10 * (1 - 0.9) must count 1 node, not 0.999...
    index = (count * (1 - recall_target.double()) + 1e-6).long().clamp(max=count - 1)
    return ordered.gather(1, index[:, None])[:, 0]


def link_loss(positive: Tensor, is_positive: Tensor, negative: Tensor, is_negative: Tensor) -> Tensor:
    r"""$-\frac{1}{|E_+|}\sum_{E_+} \log σ(g_i \cdot g_j) - \frac{1}{|E_-^*|}\sum_{E_-^*} \log(1 - σ(g_i \cdot g_j))$.

    Args:
        positive: (pairs, members) inner products $g_i \cdot g_j$ of edges.
        is_positive: (pairs, members) which of them are in the member's $E_+$.
        negative: the same for non-edges.
        is_negative: which of them are in the member's $E_-^*$.

    Returns:
        (members,); a member with no pair of a kind has no loss from that kind.
    """
    return _masked_mean(F.softplus(-positive), is_positive) + _masked_mean(F.softplus(negative), is_negative)


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(dim=0) / mask.sum(dim=0).clamp(min=1)


def first_of_each(mask: Tensor, limit: Tensor) -> Tensor:
    """Keep the first `limit[m]` true entries of each column m: (pairs, members), (members,) -> (pairs, members)."""
    count = mask.t().contiguous().cumsum(dim=1, dtype=torch.int32).t()  # along rows: far faster on a GPU
    return mask & (count <= limit)


def inner_products(g: Tensor, left: Tensor, right: Tensor) -> Tensor:
    r"""$g_i \cdot g_j$ of every pair and member: (nodes, members, out), (pairs,), (pairs,) -> (pairs, members)."""
    return cast(Tensor, _InnerProducts.apply(g, left, right))  # type: ignore[no-untyped-call]


class _InnerProducts(torch.autograd.Function):
    """By a kernel, or in blocks of pairs; nothing of size pairs x members x out is kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(g, left, right)
        if can_take(g):
            from recoslip.learning.networks import triton_kernels as kernels

            return kernels.inner_products(g, left, right)
        result = g.new_empty(len(left), g.shape[1])
        for block in _blocks(g, len(left)):
            result[block] = torch.linalg.vecdot(g.index_select(0, left[block]), g.index_select(0, right[block]))
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        g, left, right = ctx.saved_tensors
        if can_take(g):
            from recoslip.learning.networks import triton_kernels as kernels

            return kernels.inner_products_grad(g, left, right, grad), None, None
        total = torch.zeros_like(g)
        for block in _blocks(g, len(left)):
            weight = grad[block, :, None]
            _add_rows(total, left[block], weight * g.index_select(0, right[block]))
            _add_rows(total, right[block], weight * g.index_select(0, left[block]))
        return total, None, None


def _add_rows(total: Tensor, rows: Tensor, values: Tensor) -> None:
    if total.device.type == "cpu":
        total.index_add_(0, rows, values)
    else:  # sorts first and so adds in the same order every time, where index_add_ does not
        total.index_put_((rows,), values, accumulate=True)


def _blocks(g: Tensor, pairs: int) -> list[slice]:
    budget = 2**18 if g.device.type == "cpu" else 2**26  # numbers gathered at once
    step = max(1, budget // (g.shape[1] * g.shape[2]))
    return [slice(start, start + step) for start in range(0, pairs, step)]


def structure_loss(positive: Tensor, negative: Tensor, is_negative: Tensor) -> Tensor:
    r"""PU-GNN's $\frac{1}{|E|}\sum_E (σ(g_i \cdot g_j) - 1)^2 + \frac{1}{|E_-|}\sum_{E_-} σ(g_i \cdot g_j)^2$.

    Args:
        positive: (pairs, members) inner products of edges.
        negative: (pairs, members) of drawn pairs.
        is_negative: (pairs,) which of those are no edges.
    """
    return torch.sigmoid(-positive).square().mean(dim=0) + _masked_mean(
        torch.sigmoid(negative).square(), is_negative[:, None]
    )


class Pairs(NamedTuple):
    """Unordered pairs of nodes, the same for all members."""

    left: Tensor  # (pairs,)
    right: Tensor  # (pairs,)
    valid: Tensor  # (pairs,) false where a draw hit an edge or a node with itself


class NonEdges:
    """Uniform draws from the pairs of some nodes that are joined by no edge.

    A pool is drawn once per epoch for all members. A member that keeps the pairs inside its own subset has a
    uniform sample of the non-edges of that subset, so nothing is lost by sharing, and the pairs are looked up
    in the edge list once instead of once per member.

    Args:
        nodes: (count,) the nodes that pairs are made of.
        left: (edges,) one end of each edge among them, every edge once.
        right: (edges,) the other end.
        size: pairs in a pool.
    """

    def __init__(self, nodes: Tensor, left: Tensor, right: Tensor, size: int) -> None:
        self.nodes = nodes
        self.size = size
        self.total = int(nodes.max()) + 1
        low, high = torch.minimum(left, right), torch.maximum(left, right)
        self.edges = torch.sort(low * self.total + high).values
        self.key = derive(torch.zeros((), dtype=torch.long, device=nodes.device), 7)

    def draw(self, epoch: int | Tensor) -> Pairs:
        """Draw the pool of one epoch."""
        word = words(derive(self.key, epoch), self.size)
        count = len(self.nodes)
        left = self.nodes[((word >> 32) & 0xFFFFFFFF) * count >> 32]
        right = self.nodes[(word & 0xFFFFFFFF) * count >> 32]
        pair = torch.minimum(left, right) * self.total + torch.maximum(left, right)
        valid = left != right
        if len(self.edges):
            nearest = torch.searchsorted(self.edges, pair).clamp_(max=len(self.edges) - 1)
            valid &= self.edges[nearest] != pair
        return Pairs(left, right, valid)
