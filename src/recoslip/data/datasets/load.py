"""Dataset name -> files -> categories and edges -> Dataset, by the paper's protocol."""

import contextlib
import io
import os
import tempfile
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from recoslip.base.errors import DatasetError, SettingError, nearest, need
from recoslip.base.randomness import Permutations
from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.catalogue import CATALOGUE, GRAPHS, NO_PAPER_SETTINGS, Entry, Settings
from recoslip.data.datasets.panel import SEED, Labelled, panel_case, read_labelled
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask, Split, assign_source, hide, random_split

HIDDEN = 0.2  # fraction of the source that is presented as target in the cases of the panel


@dataclass(frozen=True, eq=False)
class Dataset:
    """A graph with everything needed to train on it and to score the result."""

    name: str
    graph: NodeGraph
    split: Split
    novel: Mask  # the true novel nodes, for scoring only
    settings: Settings  # those of the paper
    scored: Mask | None = None  # the nodes that methods are judged by; None: the test nodes

    @property
    def judged(self) -> Mask:
        """The nodes that methods are judged by."""
        return self.split.test if self.scored is None else self.scored


def load_dataset(
    name: str, root: str | os.PathLike[str] | None = None, split_seed: int | None = None, **options: Any
) -> Dataset:
    """Load a dataset of the catalogue.

    Args:
        name: a key of `CATALOGUE`, such as "cora-s", "arxiv", "digits" or "csbm".
        root: folder of the downloaded files; by default the environment variable RECOSLIP_DATA, or the user's cache
            folder.
        split_seed: seed that source nodes and split are drawn from; by default the authors' seed.
        **options: arguments of `csbm`; other datasets take none.

    >>> load_dataset("digits").graph
    NodeGraph(1,797 nodes: 808 source, 989 target; 12,340 edges; 64 features)
    """
    entry = CATALOGUE.get(name.lower())
    if entry is None:
        raise DatasetError(
            f"no dataset is called {name!r}{nearest(name.lower(), CATALOGUE)}; known: {', '.join(CATALOGUE)}"
        )
    if options and entry.origin != "csbm":
        raise SettingError(f"{name} takes no further options; got {sorted(options)}")
    seed = entry.split_seed if split_seed is None else index(split_seed)
    permutations = Permutations(seed)
    if entry.origin == "csbm":
        graph = csbm(**{"seed": seed, **options})
        split = random_split(graph.is_target, permutations)
    elif entry.origin == "ogbn_arxiv":
        graph, split = _arxiv(data_root(root), permutations)
    else:
        graph, split = _shifted(entry, root, permutations)
    categories = graph.categories
    assert categories is not None
    source_categories = categories[~graph.is_target]
    novel = categories == ARXIV_NOVEL if entry.origin == "ogbn_arxiv" else ~np.isin(categories, source_categories)
    return Dataset(name.lower(), graph, split, novel, entry.settings)


def load_panel_case(graph: str, labelled: Labelled, case: str, seed: int | None = None) -> Dataset:
    """Load a case of the panel; a fifth of the source is presented as target, as `detect` does to calibrate with.

    Methods are judged by all nodes that are truly target, and learn from them: the question is asked of these nodes.
    """
    chosen, novel = panel_case(graph, labelled, case, SEED if seed is None else seed)
    presented, split, _ = hide(chosen, HIDDEN, seed=0)
    return Dataset(f"{graph}-{case}", presented, split, novel, NO_PAPER_SETTINGS, chosen.is_target)


def load_labelled(name: str, root: str | os.PathLike[str] | None = None) -> Labelled:
    """Load a graph with categories: one of the paper's, the digits, or `panel/NAME.npz` in the data folder."""
    if name == "digits":
        return _digits()
    if name in GRAPHS:
        return _pyg(GRAPHS[name], data_root(root))
    path = panel_archive(name, root)
    if not path.is_file():
        raise DatasetError(f"no graph of the panel is called {name!r}: there is no file {path}")
    return read_labelled(path)


def panel_archive(name: str, root: str | os.PathLike[str] | None = None) -> Path:
    """Return where the archive of a graph of the panel is, or should be."""
    return data_root(root) / "panel" / f"{name}.npz"


def panel_graphs(root: str | os.PathLike[str] | None = None) -> list[str]:
    """Name the graphs that cases can be made of here, without the user's."""
    return [*GRAPHS, "digits", *sorted(path.stem for path in (data_root(root) / "panel").glob("*.npz"))]


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of downloaded data: the argument, else RECOSLIP_DATA, else one in the user's cache folder."""
    chosen = root or os.environ.get("RECOSLIP_DATA")
    return Path(chosen).expanduser() if chosen else user_cache_path("recoslip") / "data"


def _shifted(entry: Entry, root: str | os.PathLike[str] | None, permutations: Permutations) -> tuple[NodeGraph, Split]:
    """Build a graph with categories whose nodes are divided by the entry's source ratios."""
    x, edge_index, y, _ = _digits() if entry.origin == "digits" else _pyg(entry.origin, data_root(root))
    is_target = ~assign_source(y, entry.ratios, permutations)
    split = random_split(is_target, permutations)
    names = [f"row {k // 8 + 1}, column {k % 8 + 1}" for k in range(64)] if entry.origin == "digits" else None
    return NodeGraph(x, edge_index, is_target, categories=y, feature_names=names), split


def _digits(neighbours: int = 10) -> Labelled:
    """Return scikit-learn's 1,797 images of 8 x 8, each joined to its nearest by Euclidean distance."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

    images, labels = load_digits(return_X_y=True)
    nearest_images = kneighbors_graph(images, neighbours).tocoo()
    edges = np.stack([nearest_images.row, nearest_images.col]).astype(np.int64)
    return Labelled((images / 16).astype(np.float32), edges, labels)


def _pyg(name: str, root: Path) -> Labelled:
    """Load Cora or CiteSeer (Planetoid), Computers or Photo (Amazon) with PyTorch Geometric."""
    need("torch_geometric", f"dataset {name}")
    from torch_geometric.datasets import Amazon, Planetoid

    loader = Planetoid if name in ("Cora", "CiteSeer") else Amazon
    raw = root / name / "raw"
    try:
        if not any(raw.glob("*")):  # nor what a failed download left
            loader(str(root), name)  # downloads
        # The loaders write processed files beside the raw ones. That folder may be read-only, and another process may
        # read a file that is half written, so this process gives them a temporary folder.
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "raw").symlink_to(raw.resolve(), target_is_directory=True)
            data = loader(folder, name)[0]
    except Exception as problem:
        raise DatasetError(
            f"{name} could not be loaded from {root / name} ({type(problem).__name__}: {problem}). "
            f"With a network PyTorch Geometric downloads it there; without one, put its raw files into "
            f"{raw}: {_raw_files(name)}"
        ) from problem
    return Labelled(data.x.numpy(), data.edge_index.numpy(), data.y.numpy())


def _raw_files(name: str) -> str:
    if name in ("Cora", "CiteSeer"):
        suffixes = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
        return ", ".join(f"ind.{name.lower()}.{suffix}" for suffix in suffixes)
    return f"amazon_electronics_{name.lower()}.npz"


# OGB's labels of six categories, their names, and the index of the novel one among them.
ARXIV_LABELS = (10, 11, 16, 19, 24, 27)
ARXIV_NAMES = ("cs:AI", "cs:MA", "cs:CV", "cs:SY", "cs:LG", "cs:RO")
ARXIV_NOVEL = 3
ARXIV_FILES = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz", "node_year.csv.gz")


def check_arxiv(root: Path) -> Path:
    """Return the folder of arxiv's files; raise if one is missing, because nothing downloads them."""
    folder = root / "ogbn_arxiv" / "raw"
    missing = [name for name in ARXIV_FILES if not (folder / name).is_file()]
    if missing:
        raise DatasetError(
            f"arxiv needs OGB's raw files; missing in {folder}: {', '.join(missing)}. Download ogbn-arxiv from "
            "the Open Graph Benchmark, unpack it and put the contents of its raw folder there"
        )
    return folder


def _arxiv(root: Path, permutations: Permutations) -> tuple[NodeGraph, Split]:
    """Build ogbn-arxiv before 2013 with six categories; source is before 2007, test is 2012."""
    import polars as pl

    folder = check_arxiv(root)

    def column(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return pl.read_csv(folder / name, has_header=False).to_numpy()[:, 0]

    label, year = column("node-label.csv.gz"), column("node_year.csv.gz")
    kept = np.flatnonzero(np.isin(label, ARXIV_LABELS) & (year < 2013))
    index = np.full(len(label), -1)  # of each paper among those that are kept
    index[kept] = np.arange(len(kept))
    x = pl.read_csv(folder / "node-feat.csv.gz", has_header=False).to_numpy()[kept]
    edges = index[pl.read_csv(folder / "edge.csv.gz", has_header=False).to_numpy().T]
    graph = NodeGraph(
        x,
        edges[:, (edges >= 0).all(axis=0)],
        year[kept] >= 2007,
        ids=kept,
        categories=np.searchsorted(ARXIV_LABELS, label[kept]),
        times=year[kept],
    )
    fractions = (0.8, 0.2)
    test = year[kept] == 2012
    return graph, random_split(graph.is_target, permutations, source=fractions, target=fractions, test=test)
