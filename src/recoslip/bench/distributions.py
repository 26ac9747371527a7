"""Datasets -> tables and bar charts of the proportions of their categories."""

from __future__ import annotations

from collections.abc import Mapping

from recoslip.bench import figures
from recoslip.bench.document import Document, Files
from recoslip.bench.paper import SHIFTS, title
from recoslip.bench.proportions import proportions
from recoslip.bench.tables import Grid
from recoslip.datasets.catalogue import GRAPHS
from recoslip.datasets.load import Dataset


def render_distributions(datasets: Mapping[str, Dataset]) -> Files:
    """Render the proportions of categories in source and target: a table and a figure for each graph."""
    document = Document("Proportions of categories in source and target", "distributions")
    versions_by_graph: dict[str, list[str]] = {}
    for name in datasets:
        graph, _, version = name.rpartition("-")
        versions_by_graph.setdefault(graph if graph in GRAPHS and version in SHIFTS else name, []).append(name)
    for graph, versions in versions_by_graph.items():
        by_version = {title(name): proportions(datasets[name]) for name in versions}
        rows = [
            (f"{version} {domain}", [f"{fraction:.3f}" for fraction in fractions])
            for version, found in by_version.items()
            for domain, fractions in (("source", found.source), ("target", found.target))
        ]
        first = next(iter(by_version.values()))
        columns = [f"{c} (novel)" if n else c for c, n in zip(first.categories, first.novel, strict=True)]
        document.add_table(f"## {title(graph)}", Grid("", columns, rows, set(), set()), f"-{graph}")
        if figures.available():
            document.add_image(f"-{graph}", "proportions", figures.save(figures.distributions(by_version)))
    return document.files()
