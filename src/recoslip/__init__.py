"""recoslip: find the nodes of a graph that belong to a category nobody has seen before.

The names below are imported at their first use, so that `import recoslip` is quick.
"""

from typing import TYPE_CHECKING

import lazy_loader

from recoslip._version import __version__ as __version__

if TYPE_CHECKING:
    from recoslip import cells as cells
    from recoslip.comparison import compare as compare
    from recoslip.datasets.load import load_dataset as load_dataset
    from recoslip.detectors.base import Detector as Detector
    from recoslip.detectors.loading import load as load
    from recoslip.detectors.reco_slip import RecoSlip as RecoSlip
    from recoslip.detectors.reco_slip_plus import RecoSlipPlus as RecoSlipPlus
    from recoslip.detectors.registry import detector as detector
    from recoslip.findings.analysis import analyse as analyse
    from recoslip.graph.node_graph import NodeGraph as NodeGraph
    from recoslip.inspection.check import check as check
    from recoslip.packed import open_packed as open_packed
    from recoslip.packed import pack as pack
    from recoslip.page.report import report as report
    from recoslip.shift import Split as Split
    from recoslip.tables import read_graph as read_graph
    from recoslip.watch.watch import Watch as Watch

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["cells"],
    submod_attrs={
        "comparison": ["compare"],
        "datasets.load": ["load_dataset"],
        "detectors.base": ["Detector"],
        "detectors.loading": ["load"],
        "detectors.reco_slip": ["RecoSlip"],
        "detectors.reco_slip_plus": ["RecoSlipPlus"],
        "detectors.registry": ["detector"],
        "findings.analysis": ["analyse"],
        "graph.node_graph": ["NodeGraph"],
        "inspection.check": ["check"],
        "packed": ["open_packed", "pack"],
        "page.report": ["report"],
        "shift": ["Split"],
        "tables": ["read_graph"],
        "watch.watch": ["Watch"],
    },
)
