import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recoslip.fleet.negatives import NonEdges
from recoslip.objectives.links import first_of_each, inner_products, link_loss, undecided
from recoslip.objectives.rates import hard_rate, lagrangian, soft_rate


def test_rates_by_hand():
    scores = torch.tensor([[0.1, 0.9], [0.5, 0.6], [0.7, 0.2]])
    nodes = torch.tensor([0, 1])
    torch.testing.assert_close(soft_rate(scores, nodes), torch.tensor([0.3, 0.75]))
    torch.testing.assert_close(hard_rate(scores, nodes), torch.tensor([0.0, 1.0]))  # exactly 1/2 is not novel


def test_lagrangian_by_hand():
    value = lagrangian(*(torch.tensor(v) for v in (0.05, 0.10, 0.25, 0.4)))
    assert value.item() == pytest.approx(0.05 + 0.4 * 0.15)


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=25), st.sampled_from([0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.9]))
def test_undecided_nodes_are_those_of_the_papers_equation(values, alpha):
    f = [value / 6 for value in values]  # few values, so many ties
    allowed = [z for z in sorted(set(f)) if sum(v <= z for v in f) / len(f) > 1 - alpha + 1e-12]
    z = min(allowed)
    found = undecided(torch.tensor(f, dtype=torch.float64)[:, None], torch.tensor([alpha], dtype=torch.float64))
    assert found.flatten().tolist() == [v < z for v in f]


def test_undecided_keeps_the_bottom_share_of_each_member():
    scores = torch.rand(1391, 3, generator=torch.Generator().manual_seed(0))
    alpha = torch.tensor([0.05, 0.1, 0.25], dtype=torch.float64)
    assert undecided(scores, alpha).sum(dim=0).tolist() == [int(1391 * (1 - a)) for a in (0.05, 0.1, 0.25)]


def test_link_loss_by_hand():
    positive = torch.tensor([[0.0], [2.0], [100.0]])
    negative = torch.tensor([[1.0], [-1.0]])
    loss = link_loss(positive, torch.tensor([[1], [1], [0]]).bool(), negative, torch.tensor([[1], [1]]).bool())

    def sigma(t):
        return 1 / (1 + math.exp(-t))

    expected = -(math.log(sigma(0)) + math.log(sigma(2))) / 2 - (math.log(1 - sigma(1)) + math.log(1 - sigma(-1))) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_a_member_without_pairs_has_no_link_loss():
    nothing = torch.zeros(2, 1, dtype=torch.bool)
    assert link_loss(torch.ones(2, 1), nothing, torch.ones(2, 1), nothing).item() == 0


def test_inner_products_and_their_gradient_over_several_blocks():
    g = torch.rand(7, 2, 3, dtype=torch.float64, requires_grad=True)
    left, right = torch.tensor([0, 1, 1, 6, 2]), torch.tensor([3, 4, 1, 0, 2])
    expected = (g[left] * g[right]).sum(-1)
    torch.testing.assert_close(inner_products(g, left, right), expected)
    assert torch.autograd.gradcheck(lambda t: inner_products(t, left, right), (g,))


def test_blocks_do_not_change_inner_products(monkeypatch):
    from recoslip.objectives import links

    g = torch.rand(50, 4, 8, requires_grad=True)
    left, right = torch.randint(0, 50, (2, 300), generator=torch.Generator().manual_seed(0))
    weight = torch.rand(300, 4)
    whole = torch.autograd.grad((inner_products(g, left, right) * weight).sum(), g)[0]
    monkeypatch.setattr(links, "_blocks", lambda g, pairs: [slice(s, s + 7) for s in range(0, pairs, 7)])
    parts = torch.autograd.grad((inner_products(g, left, right) * weight).sum(), g)[0]
    torch.testing.assert_close(parts, whole)


def test_first_of_each_counts_per_column():
    mask = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1]]).bool()
    assert first_of_each(mask, torch.tensor([2, 1])).int().tolist() == [[1, 0], [1, 1], [0, 0], [0, 0]]


def test_negatives_are_uniform_over_the_true_non_edges():
    nodes = torch.tensor([2, 3, 5, 7, 11])
    edges = {(2, 3), (5, 11), (3, 7)}
    left, right = torch.tensor(sorted(edges)).t()
    pool = NonEdges(nodes, right, left, 60000)
    drawn = pool.draw(4)
    pairs = [tuple(sorted(p)) for p in torch.stack([drawn.left, drawn.right])[:, drawn.valid].t().tolist()]
    free = set(itertools.combinations(nodes.tolist(), 2)) - edges
    counts = {pair: pairs.count(pair) for pair in free}
    assert sum(counts.values()) == len(pairs)  # nothing but non-edges
    expected = len(pairs) / len(free)
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_squared < 22.5  # 6 degrees of freedom: exceeded once in a thousand seeds
    assert not torch.equal(drawn.left, pool.draw(5).left)


def test_a_complete_graph_has_no_negatives():
    nodes = torch.arange(4)
    left, right = torch.triu_indices(4, 4, offset=1)
    assert not NonEdges(nodes, left, right, 1000).draw(0).valid.any()
