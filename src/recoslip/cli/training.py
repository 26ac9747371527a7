"""Detector and graph -> fitted detector and the seconds that took, with the progress on the console."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from recoslip.console.progress import show_steps

if TYPE_CHECKING:
    from recoslip.detectors.base import Detector
    from recoslip.graph import NodeGraph
    from recoslip.shift import Split


def fit(
    detector: Detector, graph: NodeGraph, split: Split | None, calibration: float, rotations: int, console: Console
) -> tuple[Detector, float]:
    """Fit a detector in this process."""
    start = time.perf_counter()
    with show_steps(console, "training", "epochs") as progress:
        detector.fit(graph, split, calibration=calibration, rotations=rotations, progress=progress)
    return detector, time.perf_counter() - start


def fit_on_cluster(
    detector: Detector,
    graph: NodeGraph | Path,
    calibration: float,
    rotations: int,
    console: Console,
    *,
    address: str,
    workers: int,
    storage: Path | None,
) -> tuple[Detector, float]:
    """Fit a copy of a detector with the processes of a Ray cluster."""
    from recoslip import cluster
    from recoslip.detectors.params import Whole

    Whole(1)("workers", workers)
    start = time.perf_counter()
    with show_steps(console, "training", "epochs") as progress:
        fitted = cluster.fit(
            detector,
            graph,
            workers=workers,
            address=address,
            storage=storage,
            calibration=calibration,
            rotations=rotations,
            progress=progress,
        )
    return fitted, time.perf_counter() - start
