"""The command line: read the options, call the library, print."""

import os
import sys
from typing import TYPE_CHECKING

import lazy_loader

from recoslip._version import __version__
from recoslip.products.cli.signals import ForgivingStream, exit_code, ignore_signals, raise_on_signals

if TYPE_CHECKING:
    from recoslip.products.cli.commands import app

__getattr__, __dir__, _ = lazy_loader.attach(__name__, submod_attrs={"commands": ["app"]})

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line: UTF-8 everywhere, signals as exceptions, and printing that may fail without harm."""
    if sys.getfilesystemencoding() != "utf-8":  # begin again: ours is UTF-8, whatever the locale says
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    sys.stdout, sys.stderr = ForgivingStream(sys.stdout), ForgivingStream(sys.stderr)
    try:
        raise_on_signals()
        _check_working_folder()
        if sys.argv[1:] == ["--version"]:  # nothing else is imported for it
            print(f"recoslip {__version__}")
            return
        from recoslip.products.cli.commands import app

        app()
    except KeyboardInterrupt as problem:  # before a command has begun
        print("interrupted; nothing was written", file=sys.stderr)
        sys.exit(exit_code(problem))
    finally:
        ignore_signals()  # what is left is the end of the interpreter


def _check_working_folder() -> None:
    """End unless the working folder exists: libraries end the process without a reason when they look for it."""
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        print("error: the working folder does not exist any more; change to another one", file=sys.stderr)
        sys.exit(2)
