"""A name -> a graph with a split, its true novel nodes and the paper's settings for it."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from recoslip.datasets.block_model import csbm as csbm
    from recoslip.datasets.catalogue import CATALOGUE as CATALOGUE
    from recoslip.datasets.catalogue import Entry as Entry
    from recoslip.datasets.catalogue import Settings as Settings
    from recoslip.datasets.load import Dataset as Dataset
    from recoslip.datasets.load import load_dataset as load_dataset

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "block_model": ["csbm"],
        "catalogue": ["CATALOGUE", "Entry", "Settings"],
        "load": ["Dataset", "load_dataset"],
    },
)
