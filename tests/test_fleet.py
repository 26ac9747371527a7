"""A fleet of k is k networks of PyTorch Geometric's and PyTorch's own layers, and its members are strangers."""

import os
import signal
import threading

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from arrays import dense_x
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv

from recoslip import NodeGraph, detector
from recoslip.learning.methods import DETECTORS
from recoslip.learning.networks.interfaces import Schedule
from recoslip.learning.networks.network import (
    Architecture,
    ModuleFleet,
    NetworkFleet,
    _MemberMatmul,
    _sum_in_blocks,
    seed_key,
)
from recoslip.learning.networks.random_bits import derive, drop, keep_mask
from recoslip.learning.networks.recall_constrained import RecallConstrained
from recoslip.learning.networks.sparse_products import Segments, SparseProduct, to_csr
from recoslip.learning.networks.training import RecordedStep, Training, train_together
from recoslip.learning.networks.whole_graph import WholeGraph

CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
ENCODERS = ("gcn", "sage", "mlp")


class Single(nn.Module):
    """One member, built from library layers; dropout takes the masks it is given."""

    def __init__(self, fleet: NetworkFleet, member: int) -> None:
        super().__init__()
        a = fleet.architecture
        make = {"gcn": GCNConv, "sage": SAGEConv, "mlp": nn.Linear}[a.encoder]
        self.kind = a.encoder
        self.conv1, self.norm1 = make(a.in_channels, a.hidden_channels), nn.BatchNorm1d(a.hidden_channels)
        self.conv2, self.norm2 = make(a.hidden_channels, a.out_channels), nn.BatchNorm1d(a.out_channels)
        self.linear1, self.norm3 = nn.Linear(a.out_channels, a.head_channels), nn.BatchNorm1d(a.head_channels)
        self.linear2 = nn.Linear(a.head_channels, 2)
        for name, layer in self.named_children():
            own = getattr(fleet, name)
            if name.startswith("norm"):
                layer.weight.data, layer.bias.data = own.weight[member].data, own.bias[member].data
            else:
                weights = [weight[member].data.t() for weight in own.weights]
                for matrix, weight in zip(self.matrices(layer), weights, strict=True):
                    matrix.data = weight.clone()
                self.bias_of(layer).data = own.bias[member].data.clone()

    @staticmethod
    def matrices(layer):
        if isinstance(layer, GCNConv):
            return [layer.lin.weight]
        return [layer.lin_l.weight, layer.lin_r.weight] if isinstance(layer, SAGEConv) else [layer.weight]

    @staticmethod
    def bias_of(layer):
        return layer.lin_l.bias if isinstance(layer, SAGEConv) else layer.bias

    def forward(self, x, edge_index, edge_weight, masks):
        def conv(layer, h):
            if self.kind == "gcn":
                return layer(h, edge_index, edge_weight)
            return layer(h, edge_index) if self.kind == "sage" else layer(h)

        h = F.relu(self.norm1(conv(self.conv1, x))) * masks[0]
        g = F.relu(self.norm2(conv(self.conv2, h)))
        h = F.relu(self.norm3(self.linear1(g))) * masks[1]
        return g, self.linear2(h).softmax(dim=1)[:, 1]


def some_graph(kind: str, weighted: bool = False) -> NodeGraph:
    rng = np.random.default_rng(0)
    x = rng.random((40, 12)) * (rng.random((40, 12)) < (0.5 if kind == "dense" else 0.05))
    edges = rng.integers(0, 38, (2, 90))  # two nodes stay isolated
    weight = rng.random(90) + 0.1 if weighted else None
    return NodeGraph(sp.csr_array(x) if kind == "sparse" else x, edges, np.arange(40) >= 20, edge_weight=weight)


@pytest.mark.parametrize("features", ["dense", "sparse", "mostly zero"])
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("training", [True, False])
def test_a_fleet_equals_single_networks_in_value_and_gradient(encoder, features, training):
    graph = some_graph(features, weighted=encoder == "gcn")
    fleet = NetworkFleet(Architecture(12, 6, 5, 3, encoder), [1, 2, 3]).double()
    view = WholeGraph.of(graph, encoder, CPU, torch.float64)
    for epoch in range(2):  # twice, so that the running statistics are compared too
        output = fleet(view, epoch=epoch if training else None)
    f = torch.sigmoid(output.margin)
    weight = torch.linspace(-1, 1, 40, dtype=torch.float64)
    fleet.zero_grad()
    (f * weight[:, None]).sum().backward()
    x = torch.from_numpy(dense_x(graph)).double()
    edge_weight = None if graph.edge_weight is None else torch.from_numpy(graph.edge_weight).double()
    for member in range(3):
        single = Single(fleet, member).double().train(training)
        for epoch in range(2):
            masks = [
                keep_mask(derive(fleet.keys, layer, epoch), 40, width, 0.5)[:, member].double() if training else 1.0
                for layer, width in enumerate((6, 3))
            ]
            g, score = single(x, torch.from_numpy(graph.edge_index), edge_weight, masks)
        (score * weight).sum().backward()
        torch.testing.assert_close(output.representation[:, member], g, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(f[:, member], score, atol=1e-6, rtol=1e-6)
        for name, layer in single.named_children():
            own = getattr(fleet, name)
            if name.startswith("norm"):
                torch.testing.assert_close(own.running_mean[member], layer.running_mean, atol=1e-6, rtol=1e-6)
                torch.testing.assert_close(own.running_var[member], layer.running_var, atol=1e-6, rtol=1e-6)
                pairs = [(own.weight, layer.weight), (own.bias, layer.bias)]
            else:
                pairs = list(zip(own.weights, single.matrices(layer), strict=True))
                pairs.append((own.bias, single.bias_of(layer)))
            for ours, theirs in pairs:
                if not ours.requires_grad:  # a bias before batch normalisation: no gradient but rounding
                    assert not training or theirs.grad.abs().max() < 1e-12
                    continue
                mine = ours.grad[member]
                torch.testing.assert_close(mine.t() if mine.ndim == 2 else mine, theirs.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("features", ["dense", "sparse"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_input_dropout_is_the_network_on_features_with_holes(encoder, features):
    graph = some_graph(features)
    fleet = NetworkFleet(Architecture(12, 6, 5, 3, encoder, dropout=0, input_dropout=0.4), [1, 2], [9, 9]).double()
    view = WholeGraph.of(graph, encoder, CPU, torch.float64)
    x = torch.from_numpy(dense_x(graph)).double()
    key = derive(torch.tensor(seed_key(9)), 2, 7)
    if features == "sparse":  # one draw per entry that is there
        holes = torch.zeros_like(x)
        holes[x != 0] = keep_mask(key.view(1), 1, int((x != 0).sum()), 0.6, torch.float64).view(-1)
    else:
        holes = keep_mask(key.view(1), 40, 12, 0.6, torch.float64)[:, 0]
    assert 0.2 < (holes[x != 0] == 0).double().mean() < 0.6
    punched = NodeGraph(x * holes, graph.edge_index, graph.is_target)
    expected = NetworkFleet(Architecture(12, 6, 5, 3, encoder, dropout=0), [1, 2]).double()
    there = WholeGraph.of(punched, encoder, CPU, torch.float64)
    mine, theirs = fleet(view, epoch=7).margin, expected(there, epoch=7).margin
    torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
    mine.sin().sum().backward()
    theirs.sin().sum().backward()
    torch.testing.assert_close(fleet.conv1.weights[0].grad, expected.conv1.weights[0].grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fleet(view).margin, fleet.eval()(view).margin)  # evaluation drops nothing


@pytest.mark.parametrize("encoder", ENCODERS)
def test_input_dropout_follows_the_seed_and_members_of_one_fleet_do_not_matter(encoder):
    view = WholeGraph.of(some_graph("sparse"), encoder, CPU, torch.float64)
    architecture = Architecture(12, 6, 5, 3, encoder, input_dropout=0.4)

    def margin(seeds, input_seeds=None):
        return NetworkFleet(architecture, seeds, input_seeds).double()(view, epoch=7).margin

    together = margin([1, 2, 3, 3], [7, 7, 8, 9])
    for member, (seed, input_seed) in enumerate([(1, 7), (2, 7), (3, 8), (3, 9)]):
        torch.testing.assert_close(together[:, member], margin([seed], [input_seed])[:, 0])
    assert not torch.allclose(together[:, 2], together[:, 3])
    torch.testing.assert_close(margin([5, 6]), margin([5, 6], [5, 6]))


def test_entries_drop_from_a_matrix_and_its_transpose_alike():
    matrix = sp.random_array((30, 20), density=0.2, rng=np.random.default_rng(0), format="csr")
    product = SparseProduct.of(matrix, CPU, torch.float64, droppable=True).dropped(torch.tensor(5), 0.5)
    forward = product.matrix(torch.eye(20, dtype=torch.float64))
    backward = product.transpose(torch.eye(30, dtype=torch.float64))
    torch.testing.assert_close(forward, backward.T)
    kept = forward != 0
    assert 0.3 < kept.sum() / matrix.nnz < 0.7
    torch.testing.assert_close(forward[kept], 2 * torch.from_numpy(matrix.toarray())[kept])


def trained(
    graph, split, seeds, recall_targets, *, device=CPU, dtype=torch.float32, links="selective", dropout=0.5, epochs=30
):
    fleet = NetworkFleet(Architecture(graph.num_features, 8, 8, 4, "gcn", dropout), seeds).to(device, dtype)
    view = WholeGraph.of(graph, "gcn", device, dtype)
    problem = RecallConstrained.of(graph, split, recall_targets, device, epochs=epochs, multiplier=0.1, links=links)
    kept = view.train(fleet, problem, Schedule(epochs, 0.01, validate_after=epochs // 2))
    return fleet, problem, kept


@pytest.mark.parametrize("dropout", [0.5, 0.0])
@pytest.mark.parametrize("links", ["selective", "target", "all", "none"])
def test_members_do_not_influence_each_other(graph, split, links, dropout):
    seeds, targets = [5, 6, 7], [0.05, 0.2, 0.3]
    how = {"links": links, "dropout": dropout, "dtype": torch.float64}
    together, problem, kept = trained(graph, split, seeds, targets, **how)
    for k in range(3):
        alone, own, own_kept = trained(graph, split, seeds[k : k + 1], targets[k : k + 1], **how)
        assert kept[k] == own_kept[0]
        torch.testing.assert_close(problem.ascent.history[:, :, k], own.ascent.history[:, :, 0], atol=1e-6, rtol=1e-5)
        for name, tensor in alone.state_dict().items():
            torch.testing.assert_close(together.state_dict()[name][k], tensor[0], atol=1e-9, rtol=1e-7)


def test_members_of_other_seeds_are_other_networks(graph, split):
    fleet, _, _ = trained(graph, split, [1, 2], [0.1, 0.1])
    assert not torch.allclose(fleet.conv1.weights[0][0], fleet.conv1.weights[0][1])


def test_the_kept_weights_are_the_best_validated_ones(graph, split):
    seen = []

    class Recording(RecallConstrained):
        def validation(self, output):
            seen.append(super().validation(output))
            return seen[-1]

    problem = Recording.of(graph, split, [0.1, 0.2], CPU, epochs=20, multiplier=0.1)
    fleet = NetworkFleet(Architecture(graph.num_features, 8, 8, 4), [1, 2])
    view = WholeGraph.of(graph, "gcn", CPU)
    kept = view.train(fleet, problem, Schedule(20, 0.01, validate_after=10))
    values = torch.stack(seen)  # validated after epochs 11..20
    assert values.shape == (10, 2)
    assert torch.equal(kept, values.argmin(dim=0) + 11)


@pytest.mark.parametrize(("encoder", "layer"), [("gcn", GCNConv), ("sage", SAGEConv), ("mlp", nn.Linear)])
def test_members_start_as_the_libraries_layers_do(encoder, layer):
    fleet = NetworkFleet(Architecture(300, 200, 100, 50, encoder), range(4))
    reference = layer(300, 200)
    for ours, theirs in zip(fleet.conv1.weights, Single.matrices(reference), strict=True):
        assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.01)
        assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.02)
    bias = Single.bias_of(reference)
    assert fleet.conv1.bias.abs().max().item() == pytest.approx(bias.abs().max().item(), rel=0.05)


def test_a_users_module_trains_one_member_after_another(graph, split):
    encoder = GCNConv(graph.num_features, 6)
    fleet = ModuleFleet(encoder, 4, 0.5, [1, 2, 3])
    view = WholeGraph.of(graph, None, CPU)
    problem = RecallConstrained.of(graph, split, [0.1, 0.2, 0.3], CPU, epochs=6, multiplier=0.1)
    kept = view.train(fleet, problem, Schedule(6, 0.01))
    assert fleet(view).margin.shape == (graph.num_nodes, 3)
    assert (kept > 0).all()
    weights = [member.lin.weight for member in fleet.encoders]
    assert not torch.allclose(weights[0], weights[1])
    picked = fleet.gather([(fleet, 2), (fleet, 0)])
    torch.testing.assert_close(picked(view).margin, fleet(view).margin[:, [2, 0]])


def test_rows_in_segments_are_the_same_matrix():
    matrix = sp.random_array((90, 70), density=0.6, rng=np.random.default_rng(0), format="csr")
    matrix = sp.csr_array(sp.vstack([matrix, sp.csr_array((2, 70))]))  # and empty rows
    dense = torch.randn(70, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    segments = Segments.of(to_csr(matrix), CPU, torch.float64)
    assert segments.row is not None
    assert segments.segment.diff().max() <= Segments.LENGTH
    torch.testing.assert_close(segments(dense), torch.from_numpy(matrix.astype("f4").astype("f8") @ dense.numpy()))
    short = Segments.of(to_csr(sp.eye_array(70)), CPU, torch.float64)
    assert short.row is None
    assert torch.equal(short(dense), dense)


@pytest.mark.parametrize("nodes", [100, 256, 700])
def test_gradient_of_the_product_of_members(nodes):
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(nodes, 3, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(3, 5, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(_MemberMatmul.apply, (h, weight), fast_mode=True)
    product = _MemberMatmul.apply(h, weight)
    torch.testing.assert_close(product, torch.einsum("nmi,mio->nmo", h, weight))
    assert product.is_contiguous()
    grad = torch.randn(nodes, 3, 4, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(_sum_in_blocks(h, grad), torch.einsum("nmi,nmo->mio", h, grad))  # on GPUs


@pytest.mark.parametrize("device", [CPU, pytest.param(torch.device("cuda"), marks=needs_cuda)])
def test_fleets_that_train_together_learn_what_they_learn_alone(graph, split, device):
    def training(encoder):
        fleet = NetworkFleet(Architecture(graph.num_features, 6, 5, 3, encoder), [1, 2]).to(device)
        problem = RecallConstrained.of(graph, split, [0.1, 0.2], device, epochs=12, multiplier=0.1)
        return Training(fleet, WholeGraph.of(graph, encoder, device), problem, Schedule(12, 0.01, validate_after=4))

    alone = [training(encoder) for encoder in ENCODERS]
    kept_alone = [train_together([each])[0] for each in alone]
    together = [training(encoder) for encoder in ENCODERS]
    for mine, kept, other, kept_other in zip(together, train_together(together), alone, kept_alone, strict=True):
        assert torch.equal(kept, kept_other)
        for name, tensor in mine.fleet.state_dict().items():
            assert torch.equal(tensor, other.fleet.state_dict()[name]), name


@needs_cuda
@pytest.mark.parametrize("links", ["selective", "none"])
def test_cpu_and_cuda_agree(graph, split, links):
    device = torch.device("cuda")
    ours, here, _ = trained(graph, split, [1, 2], [0.1, 0.2], links=links)
    theirs, there, _ = trained(graph, split, [1, 2], [0.1, 0.2], links=links, device=device)
    torch.testing.assert_close(here.ascent.history[:5], there.ascent.history[:5].cpu(), atol=1e-4, rtol=1e-3)
    assert torch.equal(derive(ours.keys, 1, 3), derive(theirs.keys, 1, 3).cpu())
    ones, keys = torch.ones(50, 2, 9), torch.tensor([7, 8])
    assert torch.equal(drop(ones.cuda(), keys.cuda(), 0.7).cpu(), drop(ones, keys, 0.7))


@needs_cuda
def test_cuda_gives_the_same_bits_every_time(graph, split):
    device = torch.device("cuda")
    first, second = (trained(graph, split, [1, 2], [0.1, 0.2], device=device)[0] for _ in range(2))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


@needs_cuda
@pytest.mark.parametrize("name", [name for name, method in DETECTORS.items() if method.needs_networks])
def test_recorded_epochs_give_the_same_bits(graph, split, name, monkeypatch):
    settings = {"epochs": 24, "device": "cuda"} | ({"em_steps": 3} if name == "sar-em" else {})
    if "prior_epochs" in detector(name).get_params():
        settings["prior_epochs"] = 9
    truth = {"novel": graph.categories == graph.categories.max()} if name == "oracle" else {}
    recorded = detector(name, **settings).fit(graph, split, **truth).scores_
    monkeypatch.setattr(RecordedStep, "WARM_UP", 1000)  # so nothing is ever recorded
    assert np.array_equal(recorded, detector(name, **settings).fit(graph, split, **truth).scores_)


def test_trainings_side_by_side_all_run_and_an_error_ends_the_others():
    from recoslip.learning.networks.device import side_by_side

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        threads, ended = {}, []

        def training(name, check):
            threads[name] = torch.get_num_threads()
            ended.append(name)

        side_by_side([lambda check, k=k: training(k, check) for k in range(5)], 2)
        assert sorted(ended) == [0, 1, 2, 3, 4]
        assert set(threads.values()) == {1}  # each has one core
        assert torch.get_num_threads() == 2
        side_by_side([lambda check: training("alone", check)], 2)
        assert threads["alone"] == 2  # and one alone has all

        begun = threading.Event()

        def endless(check):
            begun.set()
            while True:  # only the exception ends it
                check()

        def failing(check):
            begun.wait()
            raise ValueError("diverged")

        with pytest.raises(ValueError, match="diverged"):
            side_by_side([endless, failing], 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_relu_and_dropout_in_one_have_the_gradient_of_both():
    from recoslip.learning.networks.network import _ReluDropout

    h = torch.randn(50, 3, 8, dtype=torch.float64, requires_grad=True)
    key = torch.tensor([1, 2, 3])
    mask = keep_mask(key, 50, 8, 0.7, torch.float64)
    grad = torch.randn(50, 3, 8, dtype=torch.float64)
    for own, plain in zip(
        (result := _ReluDropout.apply(h.flatten(1) * 1, key, 0.7).view(h.shape), *torch.autograd.grad(result, h, grad)),
        (result := torch.relu(h) * mask, *torch.autograd.grad(result, h, grad)),
        strict=True,
    ):
        assert torch.equal(own, plain)


def test_trainings_side_by_side_end_when_the_process_is_told_to():
    from recoslip.learning.networks.device import side_by_side

    begun = threading.Barrier(3)

    def endless(check):
        begun.wait()
        while True:
            check()
            torch.ones(100, 100) @ torch.ones(100, 100)

    def interrupt():
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    before = torch.get_num_threads()
    # Where tests run in the background, a shell has the signal ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(2)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            side_by_side([endless, endless], 2)
    finally:
        interrupter.join()
        signal.signal(signal.SIGINT, handler)
        torch.set_num_threads(before)
