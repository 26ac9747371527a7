"""recoslip: find the nodes of a graph that belong to a category nobody has seen before.

    result = recoslip.detect("nodes.csv", "edges.csv", domain="region", target="north")
    print(result.verdict.sentence)
    result.save("out")

The names below are imported at their first use, so that `import recoslip` is quick. The package has six layers, and
each imports from itself and those above it in this list alone:

- `base`: errors, files, random numbers, settings
- `data`: NodeGraph, vectors and partitions of its nodes, and the tables, packed files and datasets it is read from
- `learning`: detectors, which score nodes; those that train networks are in `learning.networks`
- `inference`: what can be said before training, and what follows from scores
- `pipeline`: `detect`, which calls all of these in their order, `Result` and its report
- `products`: what people do with a result: review, watch, cells, compare, bench, the command line
"""

from typing import TYPE_CHECKING, Any

import lazy_loader

from recoslip._version import __version__ as __version__

if TYPE_CHECKING:
    from recoslip.data.datasets.load import load_dataset as load_dataset
    from recoslip.data.graph import NodeGraph as NodeGraph
    from recoslip.data.options import ReadOptions as ReadOptions
    from recoslip.data.packed.reader import open_packed as open_packed
    from recoslip.data.packed.writer import pack as pack
    from recoslip.data.split import Split as Split
    from recoslip.data.tables.read import read_graph as read_graph
    from recoslip.inference.calibrated import Calibrated as Calibrated
    from recoslip.inference.calibrated import calibrate as calibrate
    from recoslip.learning.base import Detector as Detector
    from recoslip.learning.loading import load_detector as load_detector
    from recoslip.learning.methods import detector as detector
    from recoslip.learning.networks.reco_slip import RecoSlip as RecoSlip
    from recoslip.learning.networks.reco_slip_plus import RecoSlipPlus as RecoSlipPlus
    from recoslip.learning.scan import Scan as Scan
    from recoslip.pipeline.detect import analyse as analyse
    from recoslip.pipeline.detect import check as check
    from recoslip.pipeline.detect import detect as detect
    from recoslip.pipeline.result import Result as Result
    from recoslip.pipeline.result import load as load
    from recoslip.pipeline.result import score as score
    from recoslip.products import cells as cells
    from recoslip.products.compare import compare as compare
    from recoslip.products.watch.watch import Watch as Watch

_attribute, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "data.datasets.load": ["load_dataset"],
        "data.graph": ["NodeGraph"],
        "data.options": ["ReadOptions"],
        "data.packed.reader": ["open_packed"],
        "data.packed.writer": ["pack"],
        "data.split": ["Split"],
        "data.tables.read": ["read_graph"],
        "inference.calibrated": ["Calibrated", "calibrate"],
        "learning.base": ["Detector"],
        "learning.loading": ["load_detector"],
        "learning.methods": ["detector"],
        "learning.networks.reco_slip": ["RecoSlip"],
        "learning.networks.reco_slip_plus": ["RecoSlipPlus"],
        "learning.scan": ["Scan"],
        "pipeline.detect": ["analyse", "check", "detect"],
        "pipeline.result": ["Result", "load", "score"],
        "products": ["cells"],
        "products.compare": ["compare"],
        "products.watch.watch": ["Watch"],
    },
)


def __getattr__(name: str) -> Any:
    """Import what a name stands for; without the memory for it, libraries raise errors of many kinds."""
    from recoslip.base.memory import memory_errors

    with memory_errors():
        return _attribute(name)
