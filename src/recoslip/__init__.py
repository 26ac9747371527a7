"""recoslip: find the nodes of a graph that belong to a category nobody has seen before."""

from recoslip.datasets import load_dataset
from recoslip.detectors import Detector, RecoSlip, RecoSlipPlus, detector, load
from recoslip.graph import NodeGraph
from recoslip.insight.findings import analyse
from recoslip.packed import open_packed, pack
from recoslip.report import report
from recoslip.shift import Split
from recoslip.tables import read_graph

__version__ = "0.1.0"

__all__ = [
    "Detector",
    "NodeGraph",
    "RecoSlip",
    "RecoSlipPlus",
    "Split",
    "analyse",
    "detector",
    "load",
    "load_dataset",
    "open_packed",
    "pack",
    "read_graph",
    "report",
]
