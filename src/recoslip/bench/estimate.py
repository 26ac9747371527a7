"""A cell and earlier records -> the seconds it may take."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from recoslip.bench.plan import Cell
from recoslip.detectors.registry import DETECTORS, detector
from recoslip.graph import NodeGraph


class Estimate(NamedTuple):
    """How long a cell may take."""

    seconds: float
    from_records: bool  # whether it rests on records of such runs on such a device


def estimate(
    cell: Cell, graph: NodeGraph, device: torch.device, threads: int, records: Iterable[dict[str, Any]]
) -> Estimate:
    """Estimate the seconds a cell takes, from records of such runs or else from its size."""
    same = (cell.dataset, cell.method, cell.settings_hash, device_name(device, threads))
    past = [r["seconds"] for r in records if (r["dataset"], r["method"], r["settings_hash"], r["device"]) == same]
    if past:
        return Estimate(statistics.median(past) * len(cell.seeds), True)
    if not DETECTORS[cell.method].trains:
        return Estimate(graph.num_nodes * 5e-4, False)
    settings = detector(cell.method, **cell.settings).get_params()
    members = len(cell.seeds) * len(settings.get("recall_targets", [0]))
    epochs = settings.get("epochs", 1000) * (0.3 if "patience" in settings else 1)  # most stop early
    epochs *= 2 * min(100, settings["em_steps"]) if "em_steps" in settings else 1
    width = settings.get("hidden_channels", 64) + settings.get("out_channels", 32)
    pairs = graph.num_edges * {"none": 0}.get(settings.get("links", "none"), 2)  # of the link loss
    pairs += graph.num_edges * settings.get("negatives_per_edge", 0)
    numbers = (8 * graph.num_nodes + 2 * graph.num_edges + 4 * pairs) * width * members  # touched in an epoch
    shortest_epoch, per_number = (1e-3, 1e-11) if device.type == "cuda" else (5e-3, 2e-9 / threads)
    return Estimate(epochs * max(shortest_epoch, numbers * per_number), False)


def threads_per_process(processes: int) -> int:
    """Return how many threads each of several processes gets."""
    return max(1, torch.get_num_threads() // processes)


def device_name(device: torch.device, threads: int) -> str:
    """Name the hardware that a time was measured on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{threads} CPU threads" if device.type == "cpu" else str(device)
