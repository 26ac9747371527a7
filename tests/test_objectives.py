import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recoslip.data.neighbours import mean_distance, or_neighbours
from recoslip.inference.p_values import benjamini_hochberg, p_values, threshold
from recoslip.learning.networks import links
from recoslip.learning.networks.committee import (
    MARGIN_LIMIT,
    assign_folds,
    choose_pseudo_labels,
    label_weights,
    out_of_fold_prediction,
)
from recoslip.learning.networks.links import (
    NonEdges,
    cut_score,
    first_of_each,
    inner_products,
    link_loss,
    structure_loss,
)
from recoslip.learning.networks.objectives import (
    best_bin,
    domain_risk,
    entropy,
    hard_rate,
    label_distribution,
    lagrangian,
    log_likelihood,
    non_negative_risk,
    non_negative_step,
    posterior_known,
    soft_rate,
)


def undecided(scores, recall_target):
    return scores < cut_score(scores, recall_target)


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


def test_a_recall_of_nothing_leaves_all_but_the_highest_undecided():
    found = undecided(torch.tensor([[0.1], [0.9], [0.5]]), torch.tensor([0.0]))
    assert found.flatten().tolist() == [True, False, True]


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


def by_hand(expected):
    return pytest.approx(expected, rel=1e-5)


def log_sigma(t):
    return -math.log1p(math.exp(-t))


def test_losses_of_two_members_are_each_their_own():
    both = torch.tensor([[1, 1], [1, 0], [0, 1]]).bool()
    positive, negative = torch.tensor([[0.0, 2.0], [1.0, 5.0], [7.0, -1.0]]), torch.tensor([[1.0, 0.0]] * 3)
    expected = [
        -(log_sigma(0) + log_sigma(1)) / 2 - log_sigma(-1),
        -(log_sigma(2) + log_sigma(-1)) / 2 - log_sigma(0),
    ]
    assert link_loss(positive, both, negative, both).tolist() == by_hand(expected)
    no_edge = torch.tensor([True, False, True])
    squares = [[math.exp(2 * log_sigma(-value)) for value in column] for column in positive.t().tolist()]
    expected = [
        sum(squares[0]) / 3 + math.exp(2 * log_sigma(1)),
        sum(squares[1]) / 3 + math.exp(2 * log_sigma(0)),
    ]
    assert structure_loss(positive, negative, no_edge).tolist() == by_hand(expected)


def test_risks_of_two_members_are_each_their_own():
    margin = torch.tensor([[0.0, 1.0], [2.0, -1.0], [0.5, 3.0]])
    expected = [
        -(log_sigma(0) + log_sigma(-2) + log_sigma(0.5)) / 3,
        -(log_sigma(-1) + log_sigma(1) + log_sigma(3)) / 3,
    ]
    assert domain_risk(margin, torch.tensor([0, 1]), torch.tensor([2])).tolist() == by_hand(expected)
    swapped = domain_risk(-margin, torch.tensor([2]), torch.tensor([0, 1]))
    assert swapped.tolist() == by_hand(expected)
    means, priors = torch.tensor([[0.1, 0.5], [0.6, 0.2]]), torch.tensor([[1.0, 1.0], [0.5, 0.9]])
    weights = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
    assert label_distribution(means, priors, weights).tolist() == by_hand([0.1 + 0.3, 1.0 + 0.1])
    f = [1 / (1 + math.exp(-t)) for t in (0.0, 2.0, 1.0, -1.0)]
    bits = [-v * math.log(v) - (1 - v) * math.log(1 - v) for v in f]
    expected = [(bits[0] + bits[1]) / 2, (bits[2] + bits[3]) / 2]
    assert entropy(margin, torch.tensor([0, 1])).tolist() == by_hand(expected)


def test_nnpu_above_at_and_below_zero():
    source, target, prior = torch.tensor([0.2, 0.5, 0.25]), torch.tensor([0.4, 0.75, 0.875]), torch.tensor([0.5] * 3)
    # novel parts: 0.6 - 0.4, 0.25 - 0.25 and 0.125 - 0.375
    assert non_negative_risk(source, target, prior).tolist() == by_hand([0.1 + 0.2, 0.25, 0.125])
    assert non_negative_step(source, target, prior).tolist() == by_hand([0.1 + 0.2, 0.25, 0.25])


def test_likelihood_of_source_and_target_nodes_of_two_members_and_at_the_limits():
    s = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    p, e = torch.tensor([[0.5, 0.4], [0.8, 0.5]]), torch.tensor([[0.5, 0.5], [0.25, 0.2]])
    expected = [(math.log(0.25) + math.log(0.8)) / 2, (math.log(0.2) + math.log(0.9)) / 2]
    assert log_likelihood(s, p, e).tolist() == by_hand(expected)
    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    assert log_likelihood(one, zero, one).item() == pytest.approx(math.log(1e-6), rel=1e-3)
    assert log_likelihood(zero, one, one).item() == pytest.approx(math.log(1e-6), rel=0.05)
    assert posterior_known(zero, one, one).item() == 0  # 0 / 0 by the equation


def test_cuts_and_p_values_by_hand():
    calibration = [0.4, 0.1, 0.4, 0.8]
    assert p_values([0.0, 0.1, 0.4, 0.5, 0.8, 0.9], calibration).tolist() == [1, 1, 0.8, 0.4, 0.4, 0.2]
    levels = (0.19, 0.2, 0.39, 0.4, 0.6, 0.8, 0.99)
    assert [threshold(calibration, level) for level in levels] == [1, 0.8, 0.8, 0.4, 0.4, 0.1, 0.1]
    assert -1e-300 < threshold(calibration, 1.0) < 0  # every score is above
    assert benjamini_hochberg([0.02, 0.5, 0.04, 0.06], 0.08).tolist() == [True, False, True, True]
    none = benjamini_hochberg([0.03, 0.5], 0.05)
    assert (none.dtype, none.tolist()) == (np.dtype(bool), [False, False])
    assert benjamini_hochberg([], 0.1).tolist() == []


def test_best_bin_by_hand():
    source, target = np.repeat([0.9, 0.2], 100), np.repeat([0.9, 0.5, 0.1], [40, 120, 240])
    # q_T / q_S is 0.1 / 0.5 at a cut of 0.9 and 0.4 / 1 at 0.2: even where (1 + gamma) * width is 0.2
    strict, lax = (best_bin(source, target, delta=0.4, gamma=gamma) for gamma in (0.5, 0.6))
    assert (strict, lax) == (by_hand(0.2), by_hand(0.4))
    assert best_bin([0.5], [0.6, 0.7]) == 1


def test_distances_from_more_sources_than_a_word_has_bits():
    nodes = 200  # a path
    adjacency = sp.csr_array(sp.diags_array([np.ones(nodes - 1)] * 2, offsets=[-1, 1]))
    for count in (1, 63, 64, 65, 128, 129):
        expected = np.abs(np.arange(nodes)[:, None] - np.arange(count)).mean(axis=1)
        np.testing.assert_allclose(mean_distance(adjacency, np.arange(count)), expected)
    nobody = sp.csr_array((3, 3))
    assert mean_distance(nobody, np.array([1])).tolist() == [math.inf, 0, math.inf]
    assert or_neighbours(nobody, np.ones((3, 1), dtype=np.uint64)).tolist() == [[0], [0], [0]]


@pytest.mark.parametrize(("members", "out", "pairs"), [(2, 3, 200_000), (7, 11, 20_000), (1, 2**19, 5)])
def test_blocks_cover_all_pairs_within_the_budget(members, out, pairs):
    blocks = links._blocks(torch.empty(0, members, out), pairs)
    step = max(1, 2**18 // (members * out))
    assert [(block.start, block.stop) for block in blocks] == [(s, s + step) for s in range(0, pairs, step)]


def test_predictions_are_limited_on_both_sides():
    everyone = np.array([0, 0])
    prediction = out_of_fold_prediction(np.array([[-100.0, -100.0], [100.0, 0.0]]), everyone, everyone)
    assert prediction.margin.tolist() == [-MARGIN_LIMIT, MARGIN_LIMIT / 2]
    assert prediction.disagreement.tolist() == by_hand([0, (1 / (1 + math.exp(-MARGIN_LIMIT)) - 0.5) / 2])


def test_folds_stay_what_they_were():
    names = np.array([f"node {number}" for number in range(24)])
    assert "".join(map(str, assign_folds(names, 5, seed=3))) == "102404301022414142024210"


def test_examples_by_hand():
    margin = np.array([3.0, 0.0, 2.0, -1.0, 1.0, 3.0])
    is_target, nodes = np.array([True, True, True, True, False, True]), np.array([True] * 5 + [False])
    half = choose_pseudo_labels(margin, is_target, nodes, core=0.5, known_below=0.5, source_weight=0.25)
    assert half.novel.tolist() == [1, 0, 1, 0, 0, 0]
    assert half.known.tolist() == [0, 0, 0, 1, 0.25, 0]  # f of exactly one half is not below it
    first = choose_pseudo_labels(np.zeros(6), is_target, nodes, core=0.25, known_below=None, source_weight=1)
    assert first.novel.tolist() == [1, 0, 0, 0, 0, 0]
    assert first.known.tolist() == [0, 0, 1, 1, 1, 0]


def test_weights_of_a_network_left_without_examples_are_those_of_all():
    weights = label_weights(np.array([1.0, 3.0, 0.0]), np.array([0, 0, 1]), np.array([0, 1, 2]))
    assert weights.dtype == torch.float32
    assert weights.t().tolist() == [[0.25, 0.75, 0]] * 3


def test_ties_are_kept_in_the_order_of_nodes():
    everyone = np.ones(100, dtype=bool)
    margin = np.where(np.arange(100) % 7 < 3, 1.0, 0.0)
    examples = choose_pseudo_labels(margin, everyone, everyone, core=0.3, known_below=None, source_weight=1)
    assert np.flatnonzero(examples.novel).tolist() == np.flatnonzero(margin)[:30].tolist()
