"""A name -> a graph with a split, its true novel nodes and the paper's settings for it."""

from recoslip.datasets.catalogue import CATALOGUE, Entry, Settings
from recoslip.datasets.csbm import csbm
from recoslip.datasets.load import Dataset, load_dataset

__all__ = ["CATALOGUE", "Dataset", "Entry", "Settings", "csbm", "load_dataset"]
