"""The public names, and where they are from; `__init__.py` imports them at their first use."""

from .data.datasets.load import load_dataset as load_dataset
from .data.graph import NodeGraph as NodeGraph
from .data.options import ReadOptions as ReadOptions
from .data.packed.reader import open_packed as open_packed
from .data.packed.writer import pack as pack
from .data.split import Split as Split
from .data.tables.read import read_graph as read_graph
from .inference.calibrated import Calibrated as Calibrated
from .inference.calibrated import calibrate as calibrate
from .learning.base import Detector as Detector
from .learning.loading import load_detector as load_detector
from .learning.methods import detector as detector
from .learning.networks.reco_slip import RecoSlip as RecoSlip
from .learning.networks.reco_slip_plus import RecoSlipPlus as RecoSlipPlus
from .learning.scan import Scan as Scan
from .pipeline.detect import analyse as analyse
from .pipeline.detect import check as check
from .pipeline.detect import detect as detect
from .pipeline.result import Result as Result
from .pipeline.result import load as load
from .pipeline.result import score as score
from .products import cells as cells
from .products.compare import compare as compare
from .products.watch.watch import Watch as Watch

__version__: str
