"""Cells of a reference and of a query, as AnnData holds them -> which of the query are of no type in the reference.

In the manner of scanpy: results are written into `adata.obs` and `adata.uns`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from recoslip.detectors.catalogue import AUTO
from recoslip.errors import GraphError
from recoslip.findings.analysis import Findings, analyse, facts
from recoslip.graph import NodeGraph
from recoslip.inspection.check import Align, Check, check, leak_sentence
from recoslip.memory import memory
from recoslip.shift import default_rotations
from recoslip.tables import read_graph
from recoslip.tables.cells import anndata_tables, import_cells

if TYPE_CHECKING:
    from anndata import AnnData

SOURCE, TARGET, UNGROUPED = "source", "target", "listed"  # in the column of groups, beside their numbers
MOST_MEMORY = 0.25  # of what is free, that the genes may take which groups are described by


def read_cells(
    adata: AnnData,
    *,
    domain: str,
    target_value: object = None,
    use_rep: str | None = None,
    keep: Sequence[str] = (),
    **options: Any,
) -> NodeGraph:
    """Read cells as a graph.

    Args:
        adata: cells of both domains. It is left as it is.
        domain: column of `obs` that says which cells are of the query.
        target_value: its value for the query.
        use_rep: the representation in `obsm` that is taken for features, or "X"; by default "X_pca", and X where it has
            no more than 50 columns. Principal components and neighbours that are missing are computed as scanpy does.
        keep: columns of `obs` to show beside the cells.
        **options: further arguments of `recoslip.read_graph`.
    """
    tables = anndata_tables(adata, use_rep)
    return read_graph(
        tables.nodes,
        tables.edges,
        domain=domain,
        target_value=target_value,
        features=tables.features,
        weight=tables.weight,
        keep=keep,
        **options,
    )


def detect(
    adata: AnnData,
    *,
    domain: str,
    target_value: object = None,
    use_rep: str | None = None,
    method: str = AUTO,
    fdr: float | None = None,
    align: Align = "auto",
    rotations: int | None = None,
    key_added: str = "recoslip",
    markers: bool = True,
    keep: Sequence[str] = (),
    **settings: Any,
) -> Findings:
    """Find the cells of a query that are of no type in the reference, and write the results into `adata`.

    It looks first, as `recoslip.check` does: where reference and query differ in more than proportions, which batches
    often do, the query is aligned if that mends it, and otherwise ranked by the distance to the reference, without
    promises. `findings.headline()` says what was found, `recoslip.report(findings.detector, findings.graph,
    findings=findings)` makes the page.

    It adds to `adata`, with `key_added` before each name:

    - `obs["recoslip_score"]`, novelty from 0 to 1; `obs["recoslip_p_value"]`, of the query's cells;
      `obs["recoslip_novel"]`, whether a cell is listed; `obs["recoslip_group"]`, the number of its group, "source",
      "target" for cells of the query that are not listed, and "listed" for listed ones in no group;
    - `uns["recoslip"]`, verdict, promise, groups and settings;
    - `uns["recoslip_markers"]`, each group's genes against the reference, as `scanpy.tl.rank_genes_groups` writes them.

    Args:
        adata: cells of both domains.
        domain: column of `obs` that says which cells are of the query.
        target_value: its value for the query.
        use_rep: the representation that is taken for features; see `read_cells`.
        method: name of the method, or "auto".
        fdr: list cells by this false-discovery rate, instead of the method's `max_fpr`.
        align: bring the query to the reference's location and scale: "off", "on", or "auto", where that mends it.
        rotations: fits that each hide another part of the reference to compare with; by default 5.
        key_added: what the names of all results begin with.
        markers: whether to rank genes of each group, which reads the matrix.
        keep: columns of `obs` to show beside the cells, on the page.
        **settings: of the method, such as `random_state`, `device` or `max_fpr`.
    """
    from recoslip.detectors.registry import detector

    graph = read_cells(adata, domain=domain, target_value=target_value, use_rep=use_rep, keep=keep)
    look = check(graph, align=align)
    if look.columns.leaks:
        raise GraphError(" ".join(map(leak_sentence, look.columns.leaks)))
    model = detector(look.method if method == AUTO else method, **settings)
    model.fit(look.prepared, rotations=default_rotations(graph) if rotations is None else rotations)
    findings = analyse_cells(adata, model, look, fdr=fdr)
    annotate(adata, findings, key_added=key_added, markers=markers)
    return findings


def analyse_cells(adata: AnnData, detector: Any, look: Check, *, fdr: float | None = None) -> Findings:
    """Turn scores of cells into findings that name genes, where the matrix fits into memory."""
    return analyse(detector, look.prepared, fdr=fdr, look=look, described=_with_genes(adata, look.prepared))


def _with_genes(adata: AnnData, graph: NodeGraph) -> NodeGraph | None:
    """Return the cells with genes as features, from `raw` where there is one, as scanpy's tools take them.

    None where they take too much memory or are no finite numbers.
    """
    genes = adata if adata.raw is None else adata.raw
    matrix = genes.X
    if matrix is None or genes.n_vars < 2:
        return None
    entries = matrix.nnz * 3 if hasattr(matrix, "nnz") else genes.n_obs * genes.n_vars
    if 4 * entries > MOST_MEMORY * memory(torch.device("cpu")).free:
        return None
    values = matrix[:] if adata.isbacked else matrix
    try:
        return graph.with_features(sp.csr_array(values) if sp.issparse(values) else values, list(genes.var_names))
    except GraphError:
        return None


def annotate(adata: AnnData, findings: Findings, *, key_added: str = "recoslip", markers: bool = True) -> None:
    """Write findings into `obs` and `uns`, as `detect` says."""
    import pandas as pd

    label, is_target = findings.partition.label, findings.graph.is_target.numpy()
    numbers = [str(group.number) for group in findings.groups]
    group = np.where(label > 0, label.astype(str), np.where(label == 0, UNGROUPED, np.where(is_target, TARGET, SOURCE)))
    index = adata.obs_names
    adata.obs[f"{key_added}_score"] = findings.detector.scores_
    adata.obs[f"{key_added}_p_value"] = findings.p_value
    adata.obs[f"{key_added}_novel"] = findings.listed
    categories = [name for name in (SOURCE, TARGET, UNGROUPED, *numbers) if (group == name).any()]
    adata.obs[f"{key_added}_group"] = pd.Series(pd.Categorical(group, categories=categories), index=index)
    adata.uns[key_added] = _plain(
        facts(findings) | {"method": findings.detector.name, "settings": findings.detector.json_params()}
    )
    ranked = [name for name in numbers if (group == name).sum() > 1]
    if markers and ranked and adata.X is not None:
        adata.uns[f"{key_added}_markers"] = _markers(adata, f"{key_added}_group", ranked)


def _markers(adata: AnnData, column: str, groups: Sequence[str]) -> Any:
    """Rank the genes of groups against the reference, reading these cells alone."""
    scanpy = import_cells("scanpy")
    compared = adata.obs[column].isin([SOURCE, *groups]).to_numpy()
    cells = adata[compared].to_memory()
    cells.obs[column] = cells.obs[column].cat.remove_unused_categories()
    own = "markers"
    scanpy.tl.rank_genes_groups(cells, column, groups=list(groups), reference=SOURCE, method="wilcoxon", key_added=own)
    return cells.uns[own]


def marker_names(adata: AnnData, key_added: str = "recoslip", count: int = 5) -> dict[str, list[str]]:
    """Return the highest ranked genes of each group."""
    ranked = adata.uns.get(f"{key_added}_markers")
    return {} if ranked is None else {name: list(ranked["names"][name][:count]) for name in ranked["names"].dtype.names}


def _plain(value: Any) -> Any:
    """Return JSON values as what an .h5ad file holds: what is missing is left out, lists of anything else are text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        kinds = {type(each) for each in value}
        return np.array(value) if len(kinds) == 1 and kinds <= {str, int, float, bool} else json.dumps(value)
    return value


def write_annotated(source: str | os.PathLike[str], adata: AnnData, target: Path) -> None:
    """Copy an .h5ad file with the `obs` and `uns` of `adata`; its matrix is copied as it is on the disk."""
    import h5py

    write_elem = import_cells("anndata").io.write_elem
    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        for name in ("obs", "uns"):
            del file[name]
            write_elem(file, name, dict(adata.uns) if name == "uns" else adata.obs)
