"""The command `report`: what an earlier run wrote -> its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from recoslip.cli.options import Quiet
from recoslip.console.messages import make_console


def report(
    folder: Annotated[Path, typer.Argument(help="Folder that detect or demo wrote.")], quiet: Quiet = False
) -> None:
    """Write the page of an earlier run anew."""
    from recoslip.output import rebuild_page
    from recoslip.storage import printable

    console = make_console(quiet)
    page = rebuild_page(folder)
    console.print(f"written: {escape(printable(page))}", soft_wrap=True)
