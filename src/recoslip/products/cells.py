"""Cells of a reference and of a query, as AnnData holds them -> which of the query are of no type in the reference.

In the manner of scanpy: results are written into `adata.obs` and `adata.uns`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import polars as pl

from recoslip.base.errors import RecoslipError
from recoslip.data.tables.cells import import_cells
from recoslip.pipeline.detect import detect as run
from recoslip.pipeline.result import Result

if TYPE_CHECKING:
    from anndata import AnnData

SOURCE, TARGET, UNGROUPED = "source", "target", "listed"  # in the column of groups, beside their numbers


def detect(
    adata: AnnData,
    *,
    domain: str,
    target: object = None,
    use_rep: str | None = None,
    key_added: str = "recoslip",
    markers: bool = True,
    **options: Any,
) -> Result:
    """Find the cells of a query that are of no type in the reference, and write the results into `adata`.

    It is `recoslip.detect(adata, ...)`, which takes all further options, and then adds to `adata`, with `key_added`
    before each name:

    - `obs["recoslip_score"]`, novelty from 0 to 1; `obs["recoslip_p_value"]`, of the query's cells;
      `obs["recoslip_novel"]`, whether a cell is listed; `obs["recoslip_group"]`, the number of its group, "source",
      "target" for cells of the query that are not listed, and "listed" for listed ones in no group;
    - `uns["recoslip"]`, verdict, guarantee, groups and settings;
    - `uns["recoslip_markers"]`, each group's genes against the reference, as `scanpy.tl.rank_genes_groups` writes them.

    Args:
        adata: cells of both domains.
        domain: column of `obs` that says which cells are of the query.
        target: its value for the query.
        use_rep: the representation in `obsm` that is taken for features, or "X"; by default "X_pca", and X where it has
            no more than 50 columns. Principal components and neighbours that are missing are computed as scanpy does.
        key_added: what the names of all results begin with.
        markers: whether to rank genes of each group, which reads the matrix.
        **options: of `recoslip.detect`.
    """
    result = run(adata, domain=domain, target=target, use_rep=use_rep, **options)
    annotate(adata, result, key_added=key_added, markers=markers)
    return result


def annotate(adata: AnnData, result: Result, *, key_added: str = "recoslip", markers: bool = True) -> None:
    """Write a result into `obs` and `uns`, as `detect` says."""
    import pandas as pd

    ids = pl.DataFrame({"id": adata.obs_names.astype(str).to_numpy(dtype=object)}, {"id": pl.String})
    table = ids.join(
        result.table.with_columns(pl.col("id").cast(pl.String)), on="id", how="left", maintain_order="left"
    )
    if table["score"].has_nulls():
        raise RecoslipError("the result is of other cells than these; give the cells that recoslip.detect read")
    number = pl.when(pl.col("group") > 0).then(pl.col("group").cast(pl.String))
    group = table.select(pl.coalesce(number, pl.when("listed").then(pl.lit(UNGROUPED)), "domain")).to_series()
    numbers = [str(found.number) for found in result.groups]
    present = [name for name in (SOURCE, TARGET, UNGROUPED, *numbers) if name in group]
    columns = {"score": table["score"], "p_value": table["p_value"], "novel": table["listed"]}
    for name, values in columns.items():
        adata.obs[f"{key_added}_{name}"] = values.to_numpy()
    adata.obs[f"{key_added}_group"] = pd.Categorical(group.to_list(), categories=present)
    adata.uns[key_added] = _plain(result.to_dict())
    ranked = [name for name in numbers if (group == name).sum() > 1]
    if not markers or not ranked or adata.X is None:
        return
    cells = adata[group.is_in([SOURCE, *ranked]).to_numpy()].to_memory()  # the matrix of these alone is read
    column, key = f"{key_added}_group", f"{key_added}_markers"
    cells.obs[column] = cells.obs[column].cat.remove_unused_categories()
    rank = import_cells("scanpy").tl.rank_genes_groups
    rank(cells, column, groups=ranked, reference=SOURCE, method="wilcoxon", key_added=key)
    adata.uns[key] = cells.uns[key]


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


def write_annotated(source: str | os.PathLike[str], adata: AnnData, target: BinaryIO) -> None:
    """Copy an .h5ad file into an open file, with the `obs` and `uns` of `adata`; its matrix is copied as it is."""
    import h5py

    write_elem = import_cells("anndata").io.write_elem
    with Path(source).open("rb") as file:
        shutil.copyfileobj(file, target)
    with h5py.File(target, "r+") as file:
        for name in ("obs", "uns"):
            del file[name]
            write_elem(file, name, dict(adata.uns) if name == "uns" else adata.obs)
