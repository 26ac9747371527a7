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

from importlib.util import find_spec
from typing import Any

import lazy_loader

from recoslip._version import __version__ as __version__

_attribute, _, __all__ = lazy_loader.attach_stub(__name__, __file__)  # the names are those of __init__.pyi
_NEED_TORCH = ("RecoSlip", "RecoSlipPlus")


def __dir__() -> list[str]:
    """Without PyTorch, the names that need it are left out; they say so when they are asked for."""
    try:
        has_torch = find_spec("torch") is not None
    except ImportError:
        has_torch = False
    return [name for name in __all__ if has_torch or name not in _NEED_TORCH]


def __getattr__(name: str) -> Any:
    """Import what a name stands for; without the memory for it, libraries raise errors of many kinds."""
    from recoslip.base.memory import memory_errors

    with memory_errors():
        return _attribute(name)
