"""The methods the paper compares with: their equations by hand, their parts against brute force."""

import functools

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import recoslip
from recoslip import NodeGraph
from recoslip.base.errors import SettingError
from recoslip.data.neighbours import adjacency_of, mean_distance, within_hops
from recoslip.inference.metrics import auroc
from recoslip.learning.graph_rules import LpPul, propagate
from recoslip.learning.networks.anomaly import Dominant, EnergyOOD, squared_error
from recoslip.learning.networks.links import structure_loss
from recoslip.learning.networks.objectives import (
    best_bin,
    domain_risk,
    entropy,
    label_distribution,
    log_likelihood,
    non_negative_risk,
    non_negative_step,
    posterior_known,
    unbiased_risk,
)
from recoslip.learning.networks.pu_methods import (
    NNPU,
    UPU,
    DistPU,
    DomainDiscriminator,
    ElkanNoto,
    Oracle,
    PuGnn,
    SarEM,
)
from recoslip.learning.networks.reco_slip import CoNoC

SMALL = {"hidden_channels": 16, "out_channels": 16, "head_channels": 8, "device": "cpu"}


@pytest.fixture(scope="module")
def even():
    """No shift: selected completely at random, where ordinary positive-unlabelled learning is right."""
    return recoslip.load_dataset("csbm", nodes=800, noise=0.4, homophily=0.9, shift=0.0, split_seed=0)


@pytest.fixture(scope="module")
def fitted_on_even(even):
    """A function from a kind of detector to one that was fitted, once, on that graph."""

    @functools.cache
    def fit(kind, **settings):
        more = {"negatives_per_edge": 2} if kind is PuGnn else {}
        return kind(**SMALL, random_state=1, **more, **settings).fit(even.graph, even.split)

    return fit


# Risks


def test_domain_risk_by_hand():
    margin = torch.tensor([[0.0], [2.0], [-1.0]])
    value = domain_risk(margin, torch.tensor([0, 2]), torch.tensor([1]))
    expected = -(np.log(1 - 0.5) + np.log(1 - 1 / (1 + np.e)) + np.log(1 / (1 + np.exp(-2)))) / 3
    assert value.item() == pytest.approx(expected)


def test_unbiased_risk_by_hand():
    value = unbiased_risk(*(torch.tensor([v]) for v in (0.1, 0.4, 0.7)))
    assert value.item() == pytest.approx(0.7 * 0.1 + 0.6 - 0.7 * 0.9)


def test_unbiased_risk_is_the_true_risk_when_the_prior_is_true():
    rng = np.random.default_rng(0)
    known, novel = rng.uniform(0, 0.6, 70000), rng.uniform(0.3, 1, 30000)
    source, target = rng.uniform(0, 0.6, 100000), np.concatenate([known, novel])
    means = (torch.tensor(v) for v in (source.mean(), target.mean(), 0.7))
    true = 0.7 * known.mean() + 0.3 * (1 - novel).mean()
    assert unbiased_risk(*means).item() == pytest.approx(true, abs=0.003)


def test_nnpu_clips_the_negative_part_and_steps_back_up_on_it():
    source, prior = torch.tensor([0.2]), torch.tensor([0.8])
    target = torch.tensor([0.9], requires_grad=True)  # novel part: 0.1 - 0.8 * 0.8 = -0.54
    assert unbiased_risk(source, target, prior).item() == pytest.approx(0.16 - 0.54)
    assert non_negative_risk(source, target, prior).item() == pytest.approx(0.16)
    step = non_negative_step(source, target, prior)
    assert step.item() == pytest.approx(0.54)
    step.backward()
    assert target.grad.item() == pytest.approx(1)  # descending lowers the target's mean: the opposite of uPU's -1
    fine = torch.tensor([0.1])
    assert non_negative_step(source, fine, prior).item() == pytest.approx(unbiased_risk(source, fine, prior).item())


def test_label_distribution_and_entropy_by_hand():
    means, priors = torch.tensor([[0.1], [0.5]]), torch.tensor([[1.0], [0.7]])
    value = label_distribution(means, priors, torch.tensor([[1.0], [2.0]]))
    assert value.item() == pytest.approx(abs(0.9 - 1) + 2 * abs(0.5 - 0.7))
    margin = torch.tensor([[0.0], [np.log(3.0)]])
    by_hand = (np.log(2) - 0.75 * np.log(0.75) - 0.25 * np.log(0.25)) / 2
    assert entropy(margin, torch.tensor([0, 1])).item() == pytest.approx(by_hand)


def test_structure_loss_by_hand():
    value = structure_loss(torch.zeros(2, 1), torch.tensor([[0.0], [9.0]]), torch.tensor([True, False]))
    assert value.item() == pytest.approx(0.25 + 0.25)


# The class prior


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_best_bin_finds_a_known_prior(share):
    errors = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(4000 * share)
        target = np.concatenate([rng.beta(5, 2, n), rng.beta(1, 6, 4000 - n)])
        errors.append(best_bin(rng.beta(5, 2, 3000), target) - share)
    assert abs(np.mean(errors)) < 0.04


def test_best_bin_is_the_brute_force_minimum():
    rng = np.random.default_rng(1)
    source, target = rng.random(80).round(2), rng.random(120).round(2) * 0.9
    width = np.sqrt(np.log(40) / 240) + np.sqrt(np.log(40) / 160)
    options = []
    for cut in np.unique(source):
        q_s, q_t = (source >= cut).mean(), (target >= cut).mean()
        options.append(((q_t + 1.01 * width) / q_s, q_t / q_s))
    assert best_bin(source, target) == pytest.approx(min(1, min(options)[1]))


# Propensity


def test_posterior_and_likelihood_by_hand():
    s, p, e = (torch.tensor([v]) for v in (0.0, 0.8, 0.25))
    assert posterior_known(s, p, e).item() == pytest.approx(0.8 * 0.75 / 0.8)
    assert posterior_known(torch.tensor([1.0]), p, e).item() == 1
    assert log_likelihood(s, p, e).item() == pytest.approx(np.log(0.8))


def test_sar_em_recovers_what_a_known_propensity_leaves_in_the_data():
    """Known nodes in two halves, one source with probability 0.9, the other 0.3; novel nodes stand apart.

    The data determine P(source) = p e and the order of e; how a low P(source) divides into p and e they do not.
    """
    rng = np.random.default_rng(0)
    n = 1500
    place = rng.uniform(-1, 1, n)
    novel = np.arange(n) < n // 5
    x = np.stack([place, np.where(novel, 3.0, 0.0) + rng.normal(0, 0.3, n)], axis=1)
    propensity = np.where(place > 0, 0.9, 0.3)
    source = (rng.random(n) < propensity) & ~novel
    graph = NodeGraph(x, np.empty((2, 0)), ~source)
    fitted = SarEM(**SMALL, encoder="mlp", em_steps=8, learning_rate=0.01, random_state=1).fit(graph)
    assert spearmanr(fitted.propensity_[~novel], propensity[~novel]).statistic > 0.7
    in_source = (1 - fitted.scores_) * fitted.propensity_
    assert in_source[~novel & (place > 0.1)].mean() == pytest.approx(0.9, abs=0.08)
    assert in_source[~novel & (place < -0.1)].mean() == pytest.approx(0.3, abs=0.08)
    assert in_source[novel].mean() == pytest.approx(0, abs=0.08)
    assert auroc(novel, fitted.scores_, ~source) > 0.95


# Paths and propagation


def brute_distance(graph, sources):
    g = nx.Graph()
    g.add_nodes_from(range(graph.num_nodes))
    g.add_edges_from(graph.edge_index.T.tolist())
    lengths = dict(nx.all_pairs_shortest_path_length(g))
    found = []
    for node in range(graph.num_nodes):
        reached = [lengths[node][s] for s in sources if s in lengths[node]]
        found.append(np.mean(reached) if reached else np.inf)
    return np.array(found), lengths


@pytest.mark.parametrize("seed", range(4))
def test_distances_and_hop_sets_are_those_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    target = rng.random(90) < 0.6
    graph = NodeGraph(np.ones((90, 1)), rng.integers(0, 85, (2, 80)), target)  # several components, isolated nodes
    sources = np.flatnonzero(~target)
    expected, lengths = brute_distance(graph, sources)
    np.testing.assert_allclose(mean_distance(adjacency_of(graph), sources), expected)
    for hops in (1, 2, 3):
        near = [any(lengths[v].get(s, 99) <= hops for s in sources) for v in range(90)]
        assert within_hops(adjacency_of(graph), sources, hops).tolist() == near


def test_distances_do_not_depend_on_the_block(monkeypatch, graph):
    from recoslip.data import neighbours as adjacency

    sources = np.flatnonzero(~graph.is_target)
    whole = mean_distance(adjacency_of(graph), sources)
    monkeypatch.setattr(adjacency, "SEARCHED", 7)
    np.testing.assert_allclose(mean_distance(adjacency_of(graph), sources), whole)


def test_propagation_is_that_of_pyg(graph):
    from torch_geometric.nn import LabelPropagation

    y = np.zeros((graph.num_nodes, 2))
    y[:40, 0] = 1
    y[40:60, 1] = 1
    theirs = LabelPropagation(num_layers=3, alpha=0.9)(torch.from_numpy(y), torch.from_numpy(graph.edge_index))
    np.testing.assert_allclose(propagate(adjacency_of(graph), y, 3, 0.9), theirs.numpy(), atol=1e-6)


@pytest.mark.parametrize(("name", "figure"), [("photo-s", 0.256), ("arxiv", 0.658), ("computers-s", 0.831)])
def test_lp_pul_gives_the_papers_figures(name, figure, paper_data):
    data = recoslip.load_dataset(name, root=paper_data)
    scores = LpPul().fit(data.graph, data.split).scores_
    assert round(auroc(data.novel, scores, data.split.test), 3) == figure


# Detectors


@pytest.mark.parametrize("kind", [DomainDiscriminator, UPU, NNPU, DistPU, ElkanNoto, PuGnn])
def test_without_shift_positive_unlabelled_learning_works(kind, even, fitted_on_even):
    fitted = fitted_on_even(kind)
    assert auroc(even.novel, fitted.scores_, even.split.test) > 0.9


@pytest.mark.parametrize("kind", [UPU, NNPU, DistPU, PuGnn])
def test_the_prior_is_estimated_and_the_second_phase_trains(kind, fitted_on_even):
    fitted = fitted_on_even(kind)
    assert fitted.prior_ == pytest.approx(0.85, abs=0.12)  # 15 % of the target are novel
    warm_up = fitted_on_even(DomainDiscriminator, epochs=150, patience=150)
    assert np.abs(fitted.scores_ - warm_up.scores_).max() > 0.1


def test_elkan_noto_divides_by_the_labelled_fraction(even, fitted_on_even):
    fitted, plain = fitted_on_even(ElkanNoto), fitted_on_even(DomainDiscriminator)
    source = 1 - plain.scores_
    share = source[even.split.validation & ~even.graph.is_target].mean()
    assert fitted.labelled_fraction_ == pytest.approx(share)
    np.testing.assert_allclose(fitted.scores_, 1 - np.minimum(1, source / share), atol=1e-9)


def test_early_stopping_is_each_members_own(even):
    seeds = [1, 2, 3]
    together = DomainDiscriminator(**SMALL, epochs=400, patience=10).fit_seeds(even.graph, seeds, even.split)
    for fitted in together:
        alone = DomainDiscriminator(**SMALL, epochs=400, patience=10, random_state=fitted.random_state)
        np.testing.assert_allclose(alone.fit(even.graph, even.split).scores_, fitted.scores_, atol=0.02)


def test_the_oracle_beats_everyone_and_asks_for_the_truth_by_name():
    data = recoslip.load_dataset("csbm", nodes=800, noise=1.5, homophily=0.6, split_seed=0)
    oracle = Oracle(**SMALL).fit(data.graph, data.split, novel=data.novel)
    plain = DomainDiscriminator(**SMALL).fit(data.graph, data.split)
    assert auroc(data.novel, oracle.scores_, data.split.test) > auroc(data.novel, plain.scores_, data.split.test) + 0.05
    with pytest.raises(SettingError, match=r"fit\(graph, split, novel=mask\)"):
        Oracle(**SMALL).fit(data.graph, data.split)
    with pytest.raises(SettingError, match="boolean array"):
        Oracle(**SMALL).fit(data.graph, data.split, novel=[1, 2])
    with pytest.raises(SettingError, match="only one of the two"):
        Oracle(**SMALL).fit(data.graph, data.split, novel=np.zeros(800, dtype=bool))


def test_conocs_heads_are_held_to_their_own_recalls(even):
    fitted = CoNoC(**SMALL, max_fpr=1.0, recall_targets=(0.05, 0.4), epochs=300, multiplier=1.0).fit(
        even.graph, even.split
    )
    low, high = fitted.candidates_["recall"].to_list()
    assert low < high
    assert fitted.candidates_["chosen"].sum() == 1
    for fitted in CoNoC(epochs=400, device="cpu").fit_seeds(even.graph, [0, 1, 2], even.split):
        assert auroc(even.novel, fitted.scores_, even.split.test) > 0.9


def test_energy_is_high_for_what_the_source_has_no_cluster_for():
    data = recoslip.load_dataset("csbm", nodes=800, noise=0.3, homophily=0.95, split_seed=0)
    fitted = EnergyOOD(**SMALL, categories=4).fit(data.graph, data.split)
    assert auroc(data.novel, fitted.scores_, data.split.test) > 0.6


def test_reconstruction_errors_are_exact_without_the_reconstruction():
    generator = torch.Generator().manual_seed(0)
    x, z, w = (torch.rand(*s, generator=generator, dtype=torch.float64) for s in ((9, 5), (9, 2, 3), (2, 3, 5)))
    found = squared_error(x.square().sum(1)[:, None], z, torch.einsum("nf,mof->nmo", x, w), w @ w.transpose(1, 2))
    expected = (x[:, None] - torch.einsum("nmo,mof->nmf", z, w)).square().sum(-1)
    torch.testing.assert_close(found, expected)


def test_dominant_scores_a_planted_anomaly_high(graph, split):
    x = graph.x.copy()
    x[7] = 5 * x[7][::-1]
    strange = NodeGraph(x, graph.edge_index, graph.is_target)
    fitted = Dominant(device="cpu", hidden_channels=16, out_channels=8).fit(strange, split)
    assert (fitted.scores_ < fitted.scores_[7]).mean() > 0.98
