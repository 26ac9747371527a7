"""The command line: read the options, call the library, print."""

from recoslip.cli.app import app, main

__all__ = ["app", "main"]
