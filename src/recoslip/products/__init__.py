"""Layer 5: what people do with results: the command line, review, watch, cells, comparison, bench, Ray."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["cells"])  # recoslip.cells is looked up here
