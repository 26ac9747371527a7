"""How the scan ranks beside other packages' detectors, the paper's methods and two plain scores, on the same cases.

pip install pyod pulearn pygod
python benchmarks/peers.py --root data --records docs/results/peers/records.jsonl
python benchmarks/peers.py --records docs/results/peers/records.jsonl --table --panel docs/results/panel/records

The packages are no dependencies of recoslip: methods of one that is missing are skipped. PyOD's and PyGOD's detectors
are fitted to the source and applied to the target; pulearn's learns from the source as positive and the target as
unlabelled. They get the vectors that the scan computes. Every method has its default settings and one seed, and each
case presents a fifth of the source as target. Networks take minutes of a processor for each case, so they run on the
cases of --trained alone; --panel adds what `recoslip bench panel` has recorded of them, marked by a star. What was
computed is not computed again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from detect import Record, add_record, read_records
from numpy.typing import NDArray

from recoslip import NodeGraph, detector
from recoslip.base.errors import RecoslipWarning
from recoslip.data.datasets.load import Dataset, load_labelled, load_panel_case
from recoslip.data.vectors import Vectors
from recoslip.inference.metrics import auroc

GRAPHS = ("citationv1", "acmv9", "blogcatalog", "flickr")
CASES = ("mixed0", "mixed1", "mixed2", "grown", "unshifted", "rare")
TRAINED = ("citationv1-mixed0",)

Scorer = Callable[[Dataset], NDArray[np.floating]]


def ours(name: str) -> Scorer:
    """Return a method of recoslip."""
    return lambda data: detector(name).fit(data.graph, data.split).scores_


def minus_degree(data: Dataset) -> NDArray[np.floating]:
    return -np.bincount(data.graph.edge_index[0], minlength=data.graph.num_nodes).astype(float)


def pyod(module: str, name: str) -> Scorer:
    """Return a detector of PyOD."""

    def score(data: Dataset) -> NDArray[np.floating]:
        kind = getattr(import_module(f"pyod.models.{module}"), name)
        vectors = Vectors.of(data.graph).summary()
        model = kind(random_state=0) if name == "IForest" else kind()
        return np.asarray(model.fit(vectors[~data.graph.is_target]).decision_function(vectors))

    return score


def pulearn_elkan_noto(data: Dataset) -> NDArray[np.floating]:
    from pulearn import ElkanotoPuClassifier
    from sklearn.linear_model import LogisticRegression

    vectors, is_source = Vectors.of(data.graph).beside(), ~data.graph.is_target
    model = ElkanotoPuClassifier(LogisticRegression(max_iter=1000), random_state=0).fit(vectors, is_source.astype(int))
    return 1 - model.predict_proba(vectors)[:, 1]


def pygod(name: str) -> Scorer:
    """Return a detector of PyGOD, in whole graphs: only its sampling of neighbours needs pyg-lib."""

    def score(data: Dataset) -> NDArray[np.floating]:
        import pygod.detector

        torch.manual_seed(0)
        is_source = ~data.graph.is_target
        with patch("pygod.detector.base.NeighborLoader", _whole):
            model = getattr(pygod.detector, name)().fit(_pyg(data.graph, is_source))
            model.batch_size = data.graph.num_nodes
            return np.asarray(model.decision_function(_pyg(data.graph, np.ones_like(is_source))))

    return score


def _whole(data: Any, *_: Any, **__: Any) -> list[Any]:
    """Return the whole graph as the one batch that PyGOD's defaults ask for."""
    data.batch_size, data.n_id = data.num_nodes, torch.arange(data.num_nodes)
    data.input_id = data.n_id
    return [data]


def _pyg(graph: NodeGraph, kept: NDArray[np.bool_]) -> Any:
    from torch_geometric.data import Data
    from torch_geometric.utils import subgraph

    edges = subgraph(torch.from_numpy(np.flatnonzero(kept)), graph.edge_index, relabel_nodes=True)[0]
    return Data(x=torch.from_numpy(Vectors.of(graph).own[kept]), edge_index=edges)


METHODS: Mapping[str, Scorer] = {
    "scan": ours("scan"),
    "nearest-source": ours("nearest-source"),
    "minus degree": minus_degree,
    "lp-pul": ours("lp-pul"),
    "PyOD IForest": pyod("iforest", "IForest"),
    "PyOD KNN": pyod("knn", "KNN"),
    "PyOD ECOD": pyod("ecod", "ECOD"),
    "pulearn Elkan-Noto": pulearn_elkan_noto,
    "PyGOD GAE": pygod("GAE"),
    "PyGOD OCGNN": pygod("OCGNN"),
    "PyGOD CoLA": pygod("CoLA"),
    "domain-discriminator": ours("domain-discriminator"),
    "nnpu": ours("nnpu"),
    "pu-gnn": ours("pu-gnn"),
    "reco-slip": ours("reco-slip"),
}
PACKAGES = ("pyod", "pulearn", "pygod")
NETWORKS = ("domain-discriminator", "nnpu", "pu-gnn", "reco-slip")


def problems(args: argparse.Namespace) -> Iterator[tuple[str, Dataset, Sequence[str]]]:
    """Yield every case with the methods that have no record of it."""
    done = {(r["case"], r["method"]) for r in read_records(args.records)}
    for name in args.graphs:
        for kind in args.cases:
            case = f"{name}-{kind}"
            wanted = [m for m in args.methods if m not in NETWORKS or case in args.trained]
            if missing := [m for m in wanted if (case, m) not in done]:
                yield case, load_panel_case(name, load_labelled(name, args.root), kind), missing


def measure(data: Dataset, score: Scorer) -> Record:
    """Score a case by a method; nothing is left of what another has computed of the graph."""
    graph = NodeGraph(data.graph.x, data.graph.edge_index, data.graph.is_target, ids=data.graph.ids)
    fresh = Dataset(data.name, graph, data.split, data.novel, data.settings, data.scored)
    began, processor = time.perf_counter(), time.process_time()
    scores = score(fresh)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    found = auroc(data.novel, scores, data.judged)
    return {"auroc": found, "seconds": round(seconds, 2), "processor": round(processor, 2)}


def table(records: Sequence[Record], methods: Sequence[str]) -> str:
    """Return the means of some methods over the cases that each of them has a record of, as Markdown."""
    rows: dict[str, dict[str, Record]] = defaultdict(dict)
    for record in records:
        rows[record["method"]][record["case"]] = record
    methods = [method for method in methods if method in rows]
    cases = sorted(set.intersection(*(set(rows[method]) for method in methods)))
    values = np.array([[rows[method][case]["auroc"] for case in cases] for method in methods])
    wins = (values == values.max(axis=0)).sum(axis=1)
    seconds = [np.mean([rows[method][case]["processor"] for case in cases]) for method in methods]
    kinds = [kind for kind in CASES if any(case.endswith(kind) for case in cases)]
    by_kind = [values[:, [case.endswith(kind) for case in cases]].mean(axis=1) for kind in kinds]
    lines = [
        f"| | AU-ROC, {len(cases)} case{'s' * (len(cases) > 1)} | {' | '.join(kinds)} | best in | processor s |",
        "|" + "---|" * (len(kinds) + 4),
    ]
    for k in np.argsort(-values.mean(axis=1), kind="stable"):
        means = [f"{each[k]:.3f}" for each in (values.mean(axis=1), *by_kind)]
        lines.append(f"| {methods[k]} | {' | '.join(means)} | {wins[k]} | {seconds[k]:.1f} |".replace("nan", ""))
    return "\n".join(lines)


def of_panel(folder: Path) -> list[Record]:
    """Return what the bench has recorded of networks in the same cases, as methods with a star."""
    records = [record for path in sorted(folder.glob("*.jsonl")) for record in read_records(path)]
    return [
        {"case": r["dataset"], "method": f"{r['method']} *", "auroc": r["auroc"], "processor": np.nan}
        for r in records
        if r["method"] in NETWORKS and r["dataset"].startswith(GRAPHS) and r["dataset"].endswith(CASES)
    ]


def available(methods: Sequence[str]) -> list[str]:
    """Leave out the methods of packages that are not installed, with a line for each package."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    for package in missing:
        print(f"{package} is not installed; its methods are skipped")
    return [method for method in methods if method.split()[0].lower() not in missing]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="*", default=GRAPHS)
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--trained", nargs="*", default=TRAINED, help="cases of networks")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--root", default=None)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--panel", type=Path, help="folder of the records of recoslip bench panel")
    parser.add_argument("--table", action="store_true", help="compute nothing")
    args = parser.parse_args()
    if not args.table:
        warnings.simplefilter("ignore", RecoslipWarning)
        args.methods = available(args.methods)
        for case, data, methods in problems(args):
            for method in methods:
                add_record(args.records, {"case": case, "method": method} | measure(data, METHODS[method]))
    records, cheap = read_records(args.records), [method for method in METHODS if method not in NETWORKS]
    print(f"\n{table(records, cheap)}\n\n{table(records, list(METHODS))}")
    if args.panel is not None:
        print(f"\n{table(records + of_panel(args.panel), [*cheap, *(f'{method} *' for method in NETWORKS)])}")


if __name__ == "__main__":
    main()
