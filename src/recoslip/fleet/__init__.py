"""Many networks on one graph, trained together: a single model is a fleet of one."""

from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Architecture, Fleet, Output
from recoslip.fleet.training import Objective, train
from recoslip.fleet.view import GraphView

__all__ = ["Architecture", "Fleet", "GraphView", "ModuleFleet", "Objective", "Output", "train"]
