"""The novel share: its lower end rests on counts in bins, its estimate on p-values, and chance on both."""

import numpy as np
import pytest
from planted import with_domains
from scipy.stats import binom

from recoslip.data.datasets.block_model import csbm
from recoslip.inference.evidence import ALLOWED_GROWTH, BinCounts
from recoslip.inference.novel_share import novel_share
from recoslip.inference.p_values import most_by_chance, p_values


@pytest.fixture(scope="module")
def base():
    return csbm(nodes=400, categories=5, shift=0.0, novel_share=0.3, noise=0.6, seed=0)


def share_of(graph, target=None, calibration=199, **options):
    """The novel share where the target nodes have these p-values; by default, novel ones are small."""
    if target is None:
        rng = np.random.default_rng(0)
        novel = (graph.categories == 4)[graph.is_target]
        target = np.where(novel, 1 / (calibration + 1), rng.random(len(novel)))
    return novel_share(target, calibration, BinCounts.of(graph), **options)


def test_the_lower_end_is_the_bound_of_all_target_nodes(base):
    bins = BinCounts.of(base)
    for growth in (1.0, 2.0, 5.0, 50.0):
        share, bound = share_of(base, max_growth=growth), bins.bound(base.is_target, growth)
        assert share.low == bound.new / base.is_target.sum()
        assert share.holds_up_to == bound.holds_up_to
        assert (share.max_growth, share.confidence) == (growth, 0.95)
    assert share_of(base).max_growth == ALLOWED_GROWTH


def test_the_lower_end_falls_with_the_growth_allowed_and_is_worth_something_without(base):
    shares = [share_of(base, max_growth=growth) for growth in (1, 2, 4, 8, 64)]
    ends = [share.low for share in shares]
    assert ends == sorted(ends, reverse=True)
    truth = (base.categories == 4)[base.is_target].mean()
    assert truth - 0.1 < ends[0] <= truth
    assert ends[-1] == 0
    for share in shares:
        assert share.low <= share.estimate <= share.high


@pytest.mark.parametrize("source_share", [[0.5] * 5, [0.5, 0.5, 0.5, 0.5, 0], [0.8, 0.6, 0.4, 0.4, 0]])
def test_the_lower_end_is_below_the_truth_in_19_of_20_draws(base, source_share):
    too_high, known = 0, np.array([each for each in source_share if each])
    for seed in range(100):
        graph = with_domains(base, source_share, seed)
        sources, targets = (~graph.is_target).sum(), graph.is_target.sum()
        growth = ((1 - known) / known).max() * sources / targets
        truth = (np.asarray(source_share)[graph.categories] == 0)[graph.is_target].mean()
        too_high += share_of(graph, max_growth=growth).low > truth
    assert too_high <= 5


def test_the_lower_end_holds_as_it_is_reported_where_known_categories_grew_less_than_threefold():
    low, truth = [], []
    for seed in range(30):
        graph = csbm(nodes=400, shift=0.4, homophily=0.9, novel_share=(0.0, 0.1, 0.3)[seed % 3], noise=0.6, seed=seed)
        low.append(share_of(graph).low)
        truth.append((graph.categories == 4)[graph.is_target].mean() if seed % 3 else 0.0)
    assert np.mean(np.array(low) <= truth) >= 0.95
    assert np.mean(low[2::3]) > 0.05  # where 30 % are novel


def test_the_estimate_and_the_upper_end_are_read_off_p_values(base):
    targets = int(base.is_target.sum())
    p = np.linspace(0.01, 1, targets)
    free = share_of(base, p, max_growth=1000)  # so much growth that counts say nothing
    assert free.low == 0
    assert free.estimate == pytest.approx(max(0, ((p <= 0.05).mean() - 0.05) / 0.95))
    assert free.high == pytest.approx((p <= 0.3).mean())
    half = np.where(np.arange(targets) < targets // 2, 0.01, p)
    assert share_of(base, half, max_growth=1000).estimate == pytest.approx(0.5, abs=0.03)


def test_the_estimate_is_within_the_ends_whatever_the_p_values(base):
    targets = int(base.is_target.sum())
    for p in (np.ones(targets), np.full(targets, 0.01)):
        for growth in (1, 10, 1000):
            share = share_of(base, p, max_growth=growth)
            assert 0 <= share.low <= share.estimate <= share.high <= 1


def test_with_too_few_calibration_nodes_everything_may_be_novel(base):
    targets = int(base.is_target.sum())
    assert share_of(base, np.full(targets, 0.5), calibration=2, max_growth=1000).high == 1
    assert share_of(base, np.full(targets, 0.5), calibration=3, max_growth=1000).high == 0


# How many are listed by chance


def test_as_many_as_by_chance_is_exceeded_as_rarely_as_it_says():
    rng = np.random.default_rng(0)
    for level, targets, calibration in ((0.02, 300, 400), (0.05, 200, 99), (0.01, 1000, 99)):
        most = most_by_chance(level, targets, calibration)
        more = np.array(
            [
                (p_values(rng.random(targets), rng.random(calibration)) <= level * (1 + 1e-9)).sum() > most
                for _ in range(2000)
            ]
        )
        assert more.mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
        assert more.mean() > 0.01


def test_the_distribution_by_chance_is_exact():
    """With n calibration nodes, a rank is the number of successes before the failures of a Polya urn."""
    rng = np.random.default_rng(1)
    most = most_by_chance(0.1, 20, 19)
    counts = np.array([(p_values(rng.random(20), rng.random(19)) <= 0.1 + 1e-9).sum() for _ in range(20_000)])
    assert (counts > most).mean() <= 0.05 + 0.005
    assert (counts > most - 1).mean() > 0.05 - 0.005  # the next smaller number would be exceeded too often


def test_many_calibration_nodes_make_chance_binomial_and_few_make_it_longer():
    assert most_by_chance(0.01, 1000, 10**7) == binom.ppf(0.95, 1000, 0.01)
    numbers = [most_by_chance(0.01, 1000, calibration) for calibration in (99, 199, 999, 10**6)]
    assert numbers == sorted(numbers, reverse=True)
    assert most_by_chance(0.01, 1000, 98) == 0  # no p-value can be so small
    assert most_by_chance(1.0, 1000, 98) == 1000
