"""recoslip: find the nodes of a graph that belong to a category nobody has seen before.

    result = recoslip.detect("nodes.csv", "edges.csv", domain="region", target="north")
    print(result.verdict.sentence)
    result.save("out")

The names below are imported at their first use, so that `import recoslip` is quick. Lowest first, the package holds:

- `graph`, `tables`, `packed`, `datasets`: NodeGraph, and what it is read from
- `fleet`, `objectives`, `kernels`, `detectors`: methods that score nodes
- `inspection`, `findings`: the check before training; what follows from scores
- `pipeline`: `detect`, which calls all of these in their order, and `Result`
- `review`, `watch`, `cells`, `comparison`, `cluster`, `bench`, `cli`: what people do with it
"""

from typing import TYPE_CHECKING, Any

import lazy_loader

from recoslip._version import __version__ as __version__

if TYPE_CHECKING:
    from recoslip import cells as cells
    from recoslip.comparison import compare as compare
    from recoslip.datasets.load import load_dataset as load_dataset
    from recoslip.detectors.base import Detector as Detector
    from recoslip.detectors.loading import load_detector as load_detector
    from recoslip.detectors.reco_slip import RecoSlip as RecoSlip
    from recoslip.detectors.reco_slip_plus import RecoSlipPlus as RecoSlipPlus
    from recoslip.detectors.registry import detector as detector
    from recoslip.detectors.scan import Scan as Scan
    from recoslip.graph.node_graph import NodeGraph as NodeGraph
    from recoslip.graph.split import Split as Split
    from recoslip.packed import open_packed as open_packed
    from recoslip.packed import pack as pack
    from recoslip.pipeline.detect import analyse as analyse
    from recoslip.pipeline.detect import check as check
    from recoslip.pipeline.detect import detect as detect
    from recoslip.pipeline.result import Result as Result
    from recoslip.pipeline.result import load as load
    from recoslip.pipeline.result import score as score
    from recoslip.read_options import ReadOptions as ReadOptions
    from recoslip.tables.read import read_graph as read_graph
    from recoslip.watch.watch import Watch as Watch

_attribute, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["cells"],
    submod_attrs={
        "comparison": ["compare"],
        "datasets.load": ["load_dataset"],
        "detectors.base": ["Detector"],
        "detectors.loading": ["load_detector"],
        "detectors.reco_slip": ["RecoSlip"],
        "detectors.reco_slip_plus": ["RecoSlipPlus"],
        "detectors.registry": ["detector"],
        "detectors.scan": ["Scan"],
        "graph.node_graph": ["NodeGraph"],
        "packed": ["open_packed", "pack"],
        "pipeline.detect": ["analyse", "check", "detect"],
        "pipeline.result": ["Result", "load", "score"],
        "read_options": ["ReadOptions"],
        "graph.split": ["Split"],
        "tables.read": ["read_graph"],
        "watch.watch": ["Watch"],
    },
)


def __getattr__(name: str) -> Any:
    """Import what a name stands for; without the memory for it, libraries raise errors of many kinds."""
    from recoslip.memory import memory_errors

    with memory_errors():
        return _attribute(name)
