"""Where the time of a fit goes, and of what follows it: the default on graphs of four kinds.

    python benchmarks/profile_fit.py --root data
    python benchmarks/profile_fit.py --root data --cases cora-s large --operators 12

First the seconds of a fit, of its parts, of the analysis and of the page; then, of a fit with a tenth of the epochs,
the operators that take most of its time, as fractions of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import recoslip
from recoslip.inference.analysis import analyse
from recoslip.learning.networks import network_detector, reco_slip_plus
from recoslip.learning.networks.device import resolve_device
from recoslip.pipeline.result import Result

CASES = ("cora-s", "computers-s", "wide", "large")
# Functions whose time, calls included, is a part of the fit.
PARTS = (
    (network_detector.WholeGraph, "of", "matrices"),
    (network_detector.WholeGraph, "train", "training"),
    (network_detector.SampledGraph, "train", "training"),
    (network_detector.WholeGraph, "evaluate", "evaluation"),
    (network_detector.SampledGraph, "evaluate", "evaluation"),
    (reco_slip_plus.ScanModel, "scores", "scan"),
)
BATCHED = {"large"}
TENTH = {"epochs": 12}


def load(case: str, root: str | None) -> recoslip.data.datasets.Dataset:
    """Return the graph of a case: of the catalogue, or drawn."""
    if case == "large":
        return recoslip.load_dataset("csbm", nodes=1_000_000, features=64, degree=20.0, categories=8, noise=3.0)
    if case == "wide":
        return wide()
    return recoslip.load_dataset(case, root=root)


def wide(nodes: int = 10_000, words: int = 20_000) -> recoslip.data.datasets.Dataset:
    """Return a csbm whose features are 50 of many words, which tell the categories."""
    data = recoslip.load_dataset("csbm", nodes=nodes, degree=10.0, categories=8)
    assert data.graph.categories is not None
    rng = np.random.default_rng(0)
    topical = rng.integers(0, words // 10, (nodes, 10)) + np.asarray(data.graph.categories)[:, None] * (words // 10)
    word = np.concatenate([topical, rng.integers(0, words, (nodes, 40))], axis=1)
    row = np.repeat(np.arange(nodes), word.shape[1])
    x = sp.csr_array((np.ones(word.size, np.float32), (row, word.ravel())), shape=(nodes, words))
    graph = recoslip.NodeGraph(x, data.graph.edge_index, data.graph.is_target, categories=data.graph.categories)
    return type(data)(**(vars(data) | {"graph": graph}))


class Stopwatch:
    """Seconds spent in each of some functions, calls of others included; a part within a part is counted once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.running = False
        for owner, name, part in PARTS:
            setattr(owner, name, self._timed(getattr(owner, name), part))

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.running:
                return function(*args, **kwargs)
            self.running = True
            try:
                return self.measure(part, lambda: function(*args, **kwargs))
            finally:
                self.running = False

        return timed

    def measure(self, part: str, function: Callable[[], Any]) -> Any:
        """Call a function, and add its seconds to a part's."""
        start = time.perf_counter()
        result = function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start
        return result


def operators(fit: Callable[[], Any], device: torch.device, count: int) -> list[tuple[str, float]]:
    """Return the operators that take most of the time by themselves, and their fractions of the time of all."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        fit()
    key = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    rows = sorted(((event.key, getattr(event, key)) for event in profiler.key_averages()), key=lambda row: -row[1])
    total = sum(value for _, value in rows)
    return [(name, value / total) for name, value in rows[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--rotations", type=int, default=1, help="5 is what detect does")
    parser.add_argument("--operators", type=int, default=8, help="how many to list; 0 for none")
    parser.add_argument("--after", action="store_true", help="analysis and page, too")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--root", default=None)
    arguments = parser.parse_args()
    device = resolve_device(arguments.device)
    stopwatch = Stopwatch()
    for case in arguments.cases:
        data = load(case, arguments.root)
        settings: dict[str, Any] = {"device": str(device)} | ({"batch_size": 2048} if case in BATCHED else {})
        small = recoslip.load_dataset("csbm", nodes=200)
        recoslip.RecoSlipPlus(device=str(device), **TENTH).fit(small.graph)  # what libraries do once
        model = recoslip.RecoSlipPlus(**settings)
        stopwatch.seconds.clear()
        stopwatch.measure(
            "fit", lambda m=model, d=data: recoslip.calibrate(m, d.graph, d.split, rotations=arguments.rotations)
        )
        if arguments.after:
            findings = stopwatch.measure("analysis", lambda m=model, d=data: analyse(m, d.graph))
            stopwatch.measure("page", lambda f=findings: Result.of(f).report())
        parts = sorted(stopwatch.seconds.items(), key=lambda part: -part[1])
        print(f"{case}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts), flush=True)
        if arguments.operators:
            short = recoslip.RecoSlipPlus(**settings | TENTH)
            for name, share in operators(lambda m=short, d=data: m.fit(d.graph, d.split), device, arguments.operators):
                print(f"    {share:6.1%}  {name[:110]}", flush=True)


if __name__ == "__main__":
    main()
