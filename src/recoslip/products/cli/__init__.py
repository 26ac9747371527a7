"""The command line: read the options, call the library, print."""

from typing import TYPE_CHECKING

import lazy_loader

from recoslip.products.cli.process import main

if TYPE_CHECKING:
    from recoslip.products.cli.commands import app

__getattr__, __dir__, _ = lazy_loader.attach(__name__, submod_attrs={"commands": ["app"]})

__all__ = ["app", "main"]
