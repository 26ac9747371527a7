"""Cells of a query that are of no type in the reference are found, described by genes, and written back."""

import warnings

import numpy as np
import polars as pl
import pytest
from arrays import same_x
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import recoslip
from recoslip.base.errors import RecoslipError, TableError
from recoslip.products.cli.commands import app

pytest.importorskip("anndata")
scanpy = pytest.importorskip("scanpy")

NOVEL = "CD19+ B"


@pytest.fixture(scope="module")
def pbmc():
    """Half of the cells are the reference, without B cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = scanpy.datasets.pbmc68k_reduced()
    types = cells.obs["bulk_labels"].astype(str).to_numpy()
    is_query = (np.random.default_rng(0).random(cells.n_obs) < 0.5) | (types == NOVEL)
    cells.obs["batch"] = np.where(is_query, "query", "reference")
    return cells


GIVEN = {"domain": "batch", "target": "query"}


@pytest.mark.filterwarnings("ignore::RuntimeWarning:scanpy.*")
def test_results_are_written_in_the_manner_of_scanpy(pbmc, tmp_path):
    cells = pbmc.copy()
    result = recoslip.cells.detect(cells, **GIVEN, fdr=0.1, method="nearest-source", keep=["bulk_labels"])
    is_query = (cells.obs["batch"] == "query").to_numpy()
    novel = (cells.obs["bulk_labels"] == NOVEL).to_numpy()
    assert roc_auc_score(novel[is_query], cells.obs["recoslip_score"][is_query]) > 0.95
    assert cells.obs["recoslip_p_value"].isna().to_numpy().tolist() == (~is_query).tolist()
    listed = cells.obs["recoslip_novel"].to_numpy()
    assert listed[novel].mean() > 0.2
    assert (listed & ~novel).sum() <= 0.2 * listed.sum()
    groups = cells.obs["recoslip_group"]
    assert set(groups[~is_query]) == {"source"}
    assert set(groups[listed]) <= {"listed", *(str(group.number) for group in result.groups)}
    markers = recoslip.cells.marker_names(cells)
    assert {"CD79A", "CD79B"} & set(markers["1"])
    assert {"CD79A", "MS4A1", "MZB1", "IGJ"} & set(result.groups[0].name.split(", "))  # genes, not components
    assert cells.uns["recoslip"]["headline"] == result.verdict.sentence
    assert "bulk_labels" in result.table.columns
    assert "recoslip_score" not in pbmc.obs
    again = pbmc.copy()
    recoslip.cells.annotate(again, recoslip.load(result.save(tmp_path / "out")), markers=False)
    assert again.obs["recoslip_group"].equals(cells.obs["recoslip_group"])
    assert again.obs["recoslip_score"].equals(cells.obs["recoslip_score"])
    with pytest.raises(RecoslipError, match="of other cells than these"):
        recoslip.cells.annotate(scanpy.AnnData(pbmc.X[:9]), result)


def test_cells_have_the_scores_of_their_table_to_the_last_bit(pbmc):
    graph = recoslip.read_graph(pbmc, **GIVEN)
    assert graph.num_features == 50
    frame = pl.DataFrame({"id": list(pbmc.obs_names), "batch": pbmc.obs["batch"].to_numpy()}).with_columns(
        pl.Series("X_pca", pbmc.obsm["X_pca"], dtype=pl.Array(pl.Float32, 50))
    )
    entries = pbmc.obsp["connectivities"].tocoo()
    names = frame["id"]
    edges = pl.DataFrame({"a": names[entries.row], "b": names[entries.col], "w": entries.data.astype(float)})
    same = recoslip.read_graph(frame, edges, **GIVEN, features=["X_pca"], weight="w")
    assert same_x(graph, same)
    assert np.array_equal(graph.edge_index, same.edge_index)
    assert np.array_equal(graph.edge_weight, same.edge_weight)


def test_what_is_missing_is_computed_as_scanpy_does_and_cells_stay_as_they_are(pbmc):
    bare = scanpy.AnnData(pbmc.X.copy(), obs=pbmc.obs[["batch"]].copy(), var=pbmc.var[[]].copy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = recoslip.read_graph(bare, **GIVEN)
        scanpy.pp.pca(bare)
        scanpy.pp.neighbors(bare)
        with_own = recoslip.read_graph(bare, **GIVEN)
    assert graph.num_features == 50
    assert np.allclose(np.abs(graph.x), np.abs(with_own.x), atol=1e-3)
    assert graph.num_edges == with_own.num_edges
    narrow = scanpy.AnnData(pbmc.X[:, :20].copy(), obs=pbmc.obs[["batch"]].copy(), obsp=dict(pbmc.obsp))
    assert recoslip.read_graph(narrow, **GIVEN).num_features == 20
    assert recoslip.read_graph(pbmc, **GIVEN, use_rep="X_umap").num_features == 2


def test_two_protocols_are_aligned_and_a_leak_is_refused(pbmc):
    cells = pbmc.copy()
    is_query = (cells.obs["batch"] == "query").to_numpy()
    vectors = cells.obsm["X_pca"].copy()
    vectors[is_query] += 40 * np.random.default_rng(0).normal(size=50)  # every query cell is shifted alike
    cells.obsm["X_pca"] = vectors
    del cells.obsp["connectivities"], cells.uns["neighbors"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = recoslip.read_graph(cells, **GIVEN)
    look = recoslip.check(graph)
    assert look.is_separable
    novel = (cells.obs["bulk_labels"] == NOVEL).to_numpy()[is_query]
    scores = recoslip.detector(look.method).fit(look.prepared).scores_[is_query]
    assert roc_auc_score(novel, scores) > 0.8


@pytest.mark.filterwarnings("ignore::RuntimeWarning:scanpy.*")
def test_the_command_reads_and_writes_h5ad_and_leaves_the_matrix_on_disk(pbmc, tmp_path, monkeypatch):
    import anndata

    monkeypatch.chdir(tmp_path)
    pbmc.write_h5ad("cells.h5ad")
    given = ["--domain", "batch", "--target", "query", "--method", "nearest-source", "--fdr", "0.1"]
    result = CliRunner().invoke(app, ["detect", "cells.h5ad", *given, "--show", "bulk_labels", "--out", "out"])
    assert result.exit_code == 0, result.output
    assert "report.html, cells.h5ad" in " ".join(result.output.split())
    back = anndata.read_h5ad("out/cells.h5ad")
    scores = pl.read_csv("out/scores.csv")
    assert back.obs["recoslip_score"].loc[scores["id"][0]] == pytest.approx(scores["score"][0])
    assert (back.X == pbmc.X).all()
    assert {"CD79A", "CD79B"} & set(recoslip.cells.marker_names(back)["1"])
    assert "CD79" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    result = CliRunner().invoke(app, ["check", "cells.h5ad", "--domain", "batch", "--target", "query"])
    assert result.exit_code == 0, result.output


def test_bad_cells_are_refused(pbmc):
    with pytest.raises(TableError, match=r"no column 'site'"):
        recoslip.read_graph(pbmc, domain="site")
    with pytest.raises(TableError, match=r"obsm has no 'X_scvi'; it has 'X_pca', 'X_umap'"):
        recoslip.read_graph(pbmc, **GIVEN, use_rep="X_scvi")
    with pytest.warns(UserWarning, match="names are not unique"):
        twice = pbmc[[0, 0, 1]].copy()
    with pytest.raises(RecoslipError, match="obs_names_make_unique"):
        recoslip.read_graph(twice, **GIVEN)
