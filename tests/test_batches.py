"""Batches: what they draw, what they estimate, and that a graph in parts gives what the whole graph gives."""

import tempfile

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
import torch
from arrays import dense_x
from torch_geometric.nn import GCN

from recoslip import NodeGraph, detector, load_dataset
from recoslip.base.errors import OutOfMemory, SettingError
from recoslip.base.memory import Memory, memory
from recoslip.inference.metrics import auroc
from recoslip.learning.networks.batches import NeighbourSampler, SampledGraph, prefetch, proportional_sizes
from recoslip.learning.networks.device import memory_needed
from recoslip.learning.networks.interfaces import Schedule
from recoslip.learning.networks.links import cut_score
from recoslip.learning.networks.network import Architecture, NetworkFleet
from recoslip.learning.networks.objectives import WeightedCrossEntropy
from recoslip.learning.networks.recall_constrained import RecallConstrained, RunningCut, RunningMean
from recoslip.learning.networks.training import BestWeights
from recoslip.learning.networks.whole_graph import WholeGraph

CPU = torch.device("cpu")
ENCODERS = ("gcn", "sage", "mlp")


def some_graph(kind: str = "dense", weighted: bool = False, nodes: int = 60) -> NodeGraph:
    rng = np.random.default_rng(0)
    x = rng.random((nodes, 12)) * (rng.random((nodes, 12)) < (0.5 if kind == "dense" else 0.05))
    edges = rng.integers(0, nodes - 2, (2, 6 * nodes))  # two nodes stay isolated
    weight = rng.random(6 * nodes) + 0.1 if weighted else None
    return NodeGraph(sp.csr_array(x) if kind == "sparse" else x, edges, np.arange(nodes) >= 20, edge_weight=weight)


def trained(graph: NodeGraph, encoder: str, members: int = 2) -> NetworkFleet:
    """A fleet whose normalisation has seen the graph."""
    fleet = NetworkFleet(Architecture(graph.num_features, 6, 5, 3, encoder), range(members))
    for epoch in range(3):
        fleet(WholeGraph.of(graph, encoder, CPU), epoch=epoch)
    return fleet


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse", "mostly zero"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_evaluation_in_chunks_equals_the_whole(encoder, kind, weighted):
    graph = some_graph(kind, weighted)
    fleet = trained(graph, encoder)
    whole = WholeGraph.of(graph, encoder, CPU).evaluate(fleet)
    parts = SampledGraph(graph, encoder, CPU, batch_size=8)
    for chunk in (7, 1000):
        torch.testing.assert_close(parts.evaluate(fleet, "logits", chunk).double(), whole, atol=1e-5, rtol=1e-5)
    represented = WholeGraph.of(graph, encoder, CPU).evaluate(fleet, "representation")
    torch.testing.assert_close(parts.evaluate(fleet, "representation"), represented, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("weight", [None, 2e-44, 1e38])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_extreme_weights_and_no_edges_are_evaluated_in_chunks_too(encoder, weight):
    graph = some_graph()
    edges = graph.edge_index if weight else graph.edge_index[:, :0]
    weights = np.full(edges.shape[1], weight) if weight else None
    graph = NodeGraph(graph.x, edges, graph.is_target, edge_weight=weights)
    fleet = trained(graph, encoder)
    whole = WholeGraph.of(graph, encoder, CPU).evaluate(fleet)
    assert torch.isfinite(whole).all()
    parts = SampledGraph(graph, encoder, CPU, batch_size=8).evaluate(fleet, "logits", 7)
    torch.testing.assert_close(parts.double(), whole, atol=1e-5, rtol=1e-5)


def test_what_would_fill_the_memory_is_held_on_disk(monkeypatch, tmp_path):
    graph = some_graph()
    fleet = trained(graph, "sage")
    parts = SampledGraph(graph, "sage", CPU, batch_size=8)
    expected = parts.evaluate(fleet)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("recoslip.learning.networks.batches.device_memory", lambda *_: Memory(100, 100))
    made = []
    monkeypatch.setattr("tempfile.TemporaryFile", lambda make=tempfile.TemporaryFile: made.append(1) or make())
    assert torch.equal(parts.evaluate(fleet), expected)
    assert len(made) > 4
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_batch_with_all_neighbours_equals_the_whole(encoder, kind):
    graph = some_graph(kind, weighted=True)
    fleet = trained(graph, encoder)
    with torch.no_grad():
        whole = fleet(WholeGraph.of(graph, encoder, CPU)).logits
        drawn = SampledGraph(graph, encoder, CPU, batch_size=16, fan_out=(-1, -1)).draw([torch.arange(60)], 3)
        for (chosen,), view in drawn:
            torch.testing.assert_close(fleet(view).logits, whole[chosen], atol=1e-5, rtol=1e-5)


def test_a_sum_over_drawn_neighbours_is_unbiased():
    graph = some_graph(weighted=True)
    fleet = NetworkFleet(Architecture(12, 6, 5, 3), [0])
    whole = WholeGraph.of(graph, "gcn", CPU)
    weight = fleet.conv1.weights[0][0]
    exact = whole.first_layer[0](weight)
    total, times = torch.zeros_like(exact), torch.zeros(60, 1)
    batches = SampledGraph(graph, "gcn", CPU, batch_size=60, fan_out=(3, 3))
    with torch.no_grad():
        for (chosen,), view in batches.draw([torch.arange(60)], 1000):
            total[chosen] += view.first_layer[0](weight)[: len(chosen)]
            times[chosen] += 1
    assert (times == 1000).all()
    error = (total / times - exact).abs().max() / exact.abs().max()
    assert error < 0.03


def test_the_sampler_draws_as_asked():
    graph = some_graph(nodes=200)
    edge_index = torch.from_numpy(graph.edge_index)
    start = torch.nn.functional.pad(torch.bincount(edge_index[0], minlength=200).cumsum(0), (1, 0))
    sampler = NeighbourSampler(start, edge_index[1], (4, 2))
    seeds = torch.tensor([5, 100, 199])
    first, second = (sampler.sample(seeds) for _ in range(2))
    assert not torch.equal(first.entry, second.entry)  # another draw every time
    assert torch.equal(NeighbourSampler(start, edge_index[1], (4, 2)).sample(seeds).entry, first.entry)
    assert torch.equal(first.node[:3], seeds)
    assert len(first.node.unique()) == len(first.node) == sum(first.nodes_per_hop)
    # Every drawn edge is one of the graph, between the nodes it says.
    assert torch.equal(edge_index[0, first.entry], first.node[first.owner])
    assert torch.equal(edge_index[1, first.entry], first.node[first.neighbour])
    degree = start.diff()
    expected = degree[seeds].clamp(max=4)
    assert torch.equal(torch.bincount(first.owner[: first.edges_per_hop[0]], minlength=3), expected)
    inner = first.node[3 : sum(first.nodes_per_hop[:2])]
    assert first.edges_per_hop[1] == degree[inner].clamp(max=2).sum()


def test_every_part_is_gone_through_before_it_begins_again():
    graph = some_graph()
    parts = [torch.arange(20), torch.arange(20, 60)]
    seen: list[list[int]] = [[], []]
    for chosen, _ in SampledGraph(graph, "mlp", CPU, batch_size=12).draw(parts, 5):
        assert [len(own) for own in chosen] == [4, 8]
        for k, own in enumerate(chosen):
            seen[k] += own.tolist()
    assert sorted(seen[0]) == list(range(20))
    assert sorted(seen[1]) == list(range(20, 60))
    assert proportional_sizes([3, 5], 100) == [3, 5]


def test_the_estimate_of_weighted_cross_entropy_is_unbiased():
    generator = torch.Generator().manual_seed(0)
    up, down = torch.rand(60, 2, generator=generator), torch.rand(60, 2, generator=generator)
    up[10:] = 0
    margin = torch.randn(60, 2, generator=generator)
    nodes = torch.arange(50)
    objective = WeightedCrossEntropy(up, down, nodes, nodes)

    class Out:
        def __init__(self, margin):
            self.margin = margin

    exact = objective.loss(Out(margin), torch.tensor(0)).loss
    batches = SampledGraph(some_graph(), "mlp", CPU, batch_size=10)
    values = [
        objective.on_batch(chosen, held_out=False).loss(Out(margin[torch.cat(chosen)]), torch.tensor(0)).loss
        for chosen, _ in batches.draw(objective.node_sets(held_out=False), 1500)
    ]
    torch.testing.assert_close(torch.stack(values).mean(dim=0), exact, rtol=0.02, atol=0)


def test_the_recall_that_the_multiplier_sees_is_that_of_the_last_nodes():
    def means(values, decay):
        running = RunningMean(torch.zeros(1), torch.zeros(1))
        for value in values:
            before = running.mean.clone()
            updated = running.updated(torch.tensor([value]), decay)
            assert torch.equal(running.mean, before)  # computing it changes nothing
            running.assign(updated)
            yield running.mean.item()

    assert [*means([0.7, 0.2], 1.0)] == pytest.approx([0.7, 0.2])  # all nodes: the past does not count
    values = [*means([0.4, 0.4, 0.0], 0.25)]
    assert values[:2] == pytest.approx([0.4, 0.4])  # from the first batch on it is a mean, not one that starts at 0
    weights = np.array([0.75**2, 0.75, 1])
    assert values[2] == pytest.approx(0.4 * weights[:2].sum() / weights.sum())


def test_the_cut_is_that_of_all_target_nodes():
    target = torch.arange(10, 110)
    margin = torch.randn(100, 2, generator=torch.Generator().manual_seed(1))
    recall_target = torch.tensor([0.1, 0.3], dtype=torch.float64)
    cut = RunningCut(target, recall_target)
    cut.EVERY = 1
    for batch in torch.arange(100).split(20):
        z = cut.with_batch(target[batch], margin[batch])
        assert torch.equal(z, cut.with_batch(target[batch], margin[batch]))  # computing it changes nothing
        cut.update(target[batch], margin[batch], z)
    assert torch.equal(z, cut_score(margin, recall_target))


def test_links_inside_a_batch_are_the_graphs():
    graph = some_graph(nodes=100)
    nobody = np.zeros(100, dtype=bool)
    from recoslip.data.split import Split

    target = graph.is_target
    problem = RecallConstrained.of(graph, Split(~nobody, nobody, nobody), [0.1], CPU, epochs=3, multiplier=0.1)
    chosen = [torch.tensor([3, 1]), torch.tensor([70, 20, 55, 99, 41, 30, 31, 32, 33, 34, 35])]
    pairs = problem.on_batch(chosen, held_out=False).link_pairs
    seeds = torch.cat(chosen).numpy()
    found = {frozenset(p) for p in zip(seeds[pairs.left], seeds[pairs.right], strict=True)}
    edges = {frozenset(e) for e in graph.edge_index.T.tolist()}
    wanted = {e for e in edges if e <= set(seeds.tolist()) and all(target[list(e)])}
    assert found == wanted
    assert len(pairs.left) == len(wanted) > 0


@pytest.mark.parametrize("method", ["reco-slip-plus", "reco-slip", "nnpu"])
def test_batches_rank_as_the_whole_graph_does(method):
    data = load_dataset("csbm", nodes=700, noise=1.5, split_seed=0)
    short = {
        "reco-slip-plus": {"epochs": 40},
        "nnpu": {"epochs": 150, "prior_epochs": 60},
    }
    settings = {"epochs": 200} | short.get(method, {})
    whole, parts = (
        np.mean([auroc(data.novel, fitted.scores_, data.split.test) for fitted in several])
        for size in (0, 175)
        for several in [detector(method, batch_size=size, **settings).fit_seeds(data.graph, [1, 2, 3], data.split)]
    )
    assert parts > whole - 0.02


def test_the_same_seed_gives_the_same_scores_and_a_saved_model_scores_in_batches(tmp_path):
    data = load_dataset("csbm", nodes=400, split_seed=0)
    settings = {"epochs": 10, "batch_size": 100}
    one, two = (detector("reco-slip-plus", **settings).fit(data.graph, data.split) for _ in range(2))
    assert np.array_equal(one.scores_, two.scores_)
    one.save(tmp_path / "model")
    import recoslip

    loaded = recoslip.load_detector(tmp_path / "model")
    assert loaded.batch_size == 100
    np.testing.assert_allclose(loaded.decision_function(data.graph), one.scores_, atol=1e-6)


@pytest.mark.parametrize("method", ["reco-slip", "reco-slip-plus"])
def test_a_member_sees_the_same_batches_alone_and_in_company(method):
    data = load_dataset("csbm", nodes=300, split_seed=0)
    settings = {"epochs": 20, "batch_size": 64, **({"max_fpr": 1.0} if method == "reco-slip" else {})}
    alone = detector(method, random_state=3, **settings).fit(data.graph, data.split)
    together = detector(method, **settings).fit_seeds(data.graph, [1, 3], data.split)
    np.testing.assert_allclose(together[1].scores_, alone.scores_, atol=1e-3)


@pytest.mark.parametrize("method", ["reco-slip-plus", "reco-slip", "domain-discriminator", "sar-em", "upu"])
def test_strange_graphs_in_batches(method):
    rng = np.random.default_rng(0)
    short = {"reco-slip-plus": {"rounds": 2}, "sar-em": {"em_steps": 2}, "upu": {"prior_epochs": 3}}
    for edges in (np.empty((2, 0), dtype=int), rng.integers(0, 12, (2, 60))):
        graph = NodeGraph(rng.random((12, 3)), edges, np.arange(12) >= 3)
        fitted = detector(method, epochs=11, batch_size=1, **short.get(method, {})).fit(graph)
        assert np.isfinite(fitted.scores_).all()


def test_a_graph_that_does_not_fit_is_trained_in_batches(monkeypatch):
    data = load_dataset("csbm", nodes=300, split_seed=0)
    assert isinstance(detector("reco-slip-plus")._graph_input(data.graph), WholeGraph)
    one, three = detector("reco-slip", hidden_channels=64, out_channels=64), detector("reco-slip-plus")
    needed = memory_needed(data.graph, 64)
    monkeypatch.setattr(
        "recoslip.learning.networks.network_detector.device_memory", lambda *_: Memory(5 * needed, 5 * needed)
    )
    assert isinstance(one._graph_input(data.graph), WholeGraph)
    assert isinstance(three._graph_input(data.graph), SampledGraph)  # three networks at once
    monkeypatch.setattr("recoslip.learning.networks.network_detector.device_memory", lambda *_: Memory(2**20, 2**19))
    model = detector("reco-slip-none", epochs=12)
    assert isinstance(model._graph_input(data.graph), SampledGraph)
    assert model.fit(data.graph, data.split).scores_.shape == (300,)
    with pytest.raises(OutOfMemory, match="set batch_size to 2048"):
        detector("reco-slip", batch_size=0).fit(data.graph)
    with pytest.raises(OutOfMemory, match=r"conoc on the whole graph needs about .* train in batches"):
        detector("conoc").fit(data.graph)


def test_what_is_free_is_never_more_than_the_process_may_take():
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    unlimited = memory().free
    used = psutil.Process().memory_info().vms
    try:
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
        assert memory().free <= 2**30 <= unlimited
        assert memory().total <= used + 2**30
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_another_stage_draws_other_batches():
    batches = SampledGraph(some_graph(), "gcn", CPU, batch_size=12)
    one, again, other = (next(batches.draw([torch.arange(60)], 1, stage))[0][0] for stage in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_bad_batch_sizes_are_refused():
    graph = load_dataset("csbm", nodes=100).graph
    for wrong in (-1, 2.5, "many"):
        with pytest.raises(SettingError, match="batch_size"):
            detector("reco-slip", batch_size=wrong).fit(graph)
    with pytest.raises(SettingError, match="a module of your own is trained on the whole graph"):
        detector("reco-slip", encoder=GCN(32, 8, 2), batch_size=10).fit(graph)


@pytest.mark.parametrize("patience", [None, 1, 50])
def test_validation_in_batches_keeps_the_best_weights(monkeypatch, patience):
    validated = []
    update = BestWeights.update

    def record(best, fleet, value, epoch):
        validated.append((int(epoch), value.tolist(), fleet.linear2.bias.detach().clone()))
        update(best, fleet, value, epoch)

    monkeypatch.setattr(BestWeights, "update", record)
    fleet = NetworkFleet(Architecture(12, 6, 5, 3), [0, 1])
    up = torch.zeros(60, 2)
    up[:30] = 1
    objective = WeightedCrossEntropy(up, 1 - up, torch.arange(0, 60, 2), torch.arange(1, 60, 2))
    batches = SampledGraph(some_graph(), "gcn", CPU, batch_size=20)
    kept = batches.train(fleet, objective, Schedule(45, 0.05, patience=patience))
    if patience is None:
        assert [epoch for epoch, _, _ in validated] == [10, 20, 30, 40, 45]
    for member in range(2):
        epoch, _, bias = min(validated, key=lambda one: one[1][member])
        assert kept[member] == epoch
        assert torch.equal(fleet.linear2.bias[member], bias[member])


@pytest.mark.parametrize("keep", [0.5, 0.8])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_features_of_a_batch_are_dropped_one_by_one_as_often_as_asked(kind, keep):
    graph = some_graph(kind, nodes=3000)
    batches = SampledGraph(graph, "mlp", CPU, batch_size=graph.num_nodes)
    ((chosen, view),) = batches.draw([torch.arange(graph.num_nodes)], 1)
    whole = torch.from_numpy(dense_x(graph))[chosen[0]]
    (product,) = view.first_layer_dropped(torch.tensor(7), keep)
    dropped = product(torch.eye(graph.num_features))
    kept = dropped != 0
    torch.testing.assert_close(dropped, torch.where(kept, whole / keep, 0.0))
    present = whole != 0
    error = 4 * (keep * (1 - keep) / present.sum()) ** 0.5
    assert abs(kept[present].float().mean() - keep) < error
    several = present.sum(dim=1) > 1
    assert (kept.any(dim=1) & (kept != present).any(dim=1))[several].float().mean() > 0.2  # not whole nodes


def test_what_a_thread_makes_ahead_comes_in_order_and_so_do_its_errors():
    assert list(prefetch(iter(range(1, 20)))) == list(range(1, 20))

    def failing():
        yield 1
        raise ValueError("no more")

    coming = prefetch(failing())
    assert next(coming) == 1
    with pytest.raises(ValueError, match="no more"):
        next(coming)
