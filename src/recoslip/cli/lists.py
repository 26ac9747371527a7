"""The commands `methods` and `datasets`: the catalogues as tables or JSON."""

from __future__ import annotations

import json

from rich.table import Table

from recoslip.cli.options import Json
from recoslip.console.messages import stdout
from recoslip.datasets.catalogue import CATALOGUE
from recoslip.detectors.registry import DETECTORS


def methods(as_json: Json = False) -> None:
    """List the methods that `detect --method` knows."""
    rows = [
        {"name": name, "paper": method.paper, "inputs": method.inputs, "trains a network": method.trains}
        for name, method in DETECTORS.items()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("name", "paper", "inputs", "trains a network", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(("yes" if v else "no") if isinstance(v, bool) else str(v) for v in row.values()))
    stdout.print(table)


def datasets(as_json: Json = False) -> None:
    """List the datasets that can be loaded by name."""
    if as_json:
        print(json.dumps({name: {"about": entry.about, "ratios": entry.ratios} for name, entry in CATALOGUE.items()}))
        return
    table = Table("name", "what", "source ratio per category (0: novel)", box=None, pad_edge=False)
    for name, entry in CATALOGUE.items():
        table.add_row(name, entry.about, " ".join(f"{ratio:g}" for ratio in entry.ratios) or "-")
    stdout.print(table)
