"""Milliseconds per model and epoch: trained in a fleet, against an ordinary PyTorch Geometric loop, in one run.

    python benchmarks/fleet_speed.py --datasets cora-s photo-s --members 1 5 50

In both, an epoch is a training step with the selective link loss and a validation pass.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import negative_sampling, subgraph

import recoslip
from recoslip.data.datasets.load import Dataset
from recoslip.learning.networks.device import block_size, resolve_device
from recoslip.learning.networks.interfaces import Schedule
from recoslip.learning.networks.network import Architecture, NetworkFleet
from recoslip.learning.networks.recall_constrained import RecallConstrained
from recoslip.learning.networks.whole_graph import WholeGraph


class PlainNetwork(nn.Module):
    """The paper's network, written with the layers of PyG and PyTorch."""

    def __init__(self, features: int, hidden: int, out: int, head: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = GCNConv(features, hidden, cached=True), nn.BatchNorm1d(hidden)
        self.conv2, self.norm2 = GCNConv(hidden, out, cached=True), nn.BatchNorm1d(out)
        self.head = nn.Sequential(
            nn.Linear(out, head), nn.BatchNorm1d(head), nn.ReLU(), nn.Dropout(0.5), nn.Linear(head, 2)
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        h = F.dropout(F.relu(self.norm1(self.conv1(x, edge_index))), 0.5, self.training)
        g = F.relu(self.norm2(self.conv2(h, edge_index)))
        return g, self.head(g).softmax(dim=1)[:, 1]


def plain_loop(data: Dataset, device: torch.device, recall_target: float = 0.1) -> Callable[[int], None]:
    """Return a function that trains RECO-SLIP for one recall target: one model, in a straightforward loop."""
    graph, split, s = data.graph, data.split, data.settings
    x, edges, target = (torch.as_tensor(each, device=device) for each in (graph.x, graph.edge_index, graph.is_target))
    masks = {
        (subset, domain): torch.tensor(getattr(split, subset), device=device)
        & (target if domain == "target" else ~target)
        for subset in ("train", "validation")
        for domain in ("source", "target")
    }
    net = PlainNetwork(graph.num_features, s.hidden_channels, s.out_channels, s.head_channels).to(device)
    multiplier = torch.tensor(s.multiplier, device=device, requires_grad=True)
    primal = torch.optim.Adam(net.parameters(), lr=0.001)
    dual = torch.optim.Adam([multiplier], lr=0.001, maximize=True)
    targets = torch.nonzero(target).flatten()

    def epochs(count: int) -> None:
        best, state = float("inf"), None
        for _ in range(count):
            net.train()
            g, f = net(x, edges)
            fpr, recall = f[masks["train", "source"]].mean(), f[masks["train", "target"]].mean()
            order = f[targets].argsort()
            chosen = targets[order[: int(len(targets) * (1 - recall_target))]].sort().values
            positive, _ = subgraph(chosen, edges, relabel_nodes=True, num_nodes=len(x))
            negative = negative_sampling(positive, len(chosen), positive.shape[1])
            h = g[chosen]
            links = F.softplus(-(h[positive[0]] * h[positive[1]]).sum(-1)).mean()
            links = links + F.softplus((h[negative[0]] * h[negative[1]]).sum(-1)).mean()
            loss = fpr + 0.001 * links + multiplier.detach() * (recall_target - recall)
            primal.zero_grad()
            loss.backward()
            primal.step()
            multiplier.grad = recall_target - (f[masks["train", "target"]] > 0.5).float().mean()
            dual.step()
            multiplier.data.clamp_(min=0)
            net.eval()
            with torch.no_grad():
                _, f = net(x, edges)
                fpr, recall = f[masks["validation", "source"]].mean(), f[masks["validation", "target"]].mean()
                value = (fpr + multiplier * (recall_target - recall)).item()
            if value < best:
                best, state = value, {k: v.clone() for k, v in net.state_dict().items()}
        assert state is not None

    return epochs


def fleet_loop(data: Dataset, device: torch.device, members: int) -> Callable[[int], None]:
    """Return a function that trains a fleet of the same networks, in blocks of the size that a detector uses."""
    graph, s = data.graph, data.settings
    whole = WholeGraph.of(graph, "gcn", device)
    architecture = Architecture(graph.num_features, s.hidden_channels, s.out_channels, s.head_channels)
    size = block_size(graph.num_nodes, s.hidden_channels, device)

    def epochs(count: int) -> None:
        for start in range(0, members, size):
            block = range(start, min(start + size, members))
            fleet = NetworkFleet(architecture, block).to(device)
            targets = [0.1] * len(block)
            problem = RecallConstrained.of(graph, data.split, targets, device, epochs=count, multiplier=s.multiplier)
            whole.train(fleet, problem, Schedule(count, learning_rate=0.001))

    return epochs


def seconds(run: Callable[[int], None], epochs: int, device: torch.device) -> float:
    """Measure the wall time of some epochs."""
    start = time.perf_counter()
    run(epochs)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora-s", "photo-s"])
    parser.add_argument("--members", nargs="+", type=int, default=[1, 5, 50])
    parser.add_argument(
        "--epochs", type=int, default=10, help="epochs in each round, of the plain loop and of the fleet"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds in which plain loop and fleets take turns; medians are reported"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--root", default=None)
    args = parser.parse_args()
    device = resolve_device(args.device)
    print(f"{'dataset':12} {'':>22} {'ms per model and epoch':>24} {'times the plain loop':>22}")
    for name in args.datasets:
        data = recoslip.load_dataset(name, root=args.root)
        runs = {"plain PyG loop": (1, plain_loop(data, device))}
        runs |= {f"fleet of {m}": (m, fleet_loop(data, device, m)) for m in args.members}
        for _, run in runs.values():
            run(2)
        times: dict[str, list[float]] = {label: [] for label in runs}
        for _ in range(args.rounds):
            for label, (members, run) in runs.items():
                times[label].append(1000 * seconds(run, args.epochs, device) / members / args.epochs)
        base = statistics.median(times["plain PyG loop"])
        for label, values in times.items():
            middle = statistics.median(values)
            print(f"{name:12} {label:>22} {middle:>24.2f} {base / middle:>22.1f}", flush=True)


if __name__ == "__main__":
    main()
