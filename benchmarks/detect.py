"""How well `recoslip.detect` ranks and lists, with the settings that users get, on graphs whose truth is known.

python benchmarks/detect.py --root data --records docs/results/detect/records.jsonl
python benchmarks/detect.py --records docs/results/detect/records.jsonl --table

Every row is one call of `recoslip.detect` on the domains alone. AU-ROC is over all target nodes. The list is made at a
false-discovery rate of 0.1: how many of the novel nodes are on it, and how many of the listed nodes are known. What
was computed is not computed again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from formatting import mean_and_error
from numpy.typing import NDArray

import recoslip
from recoslip.data.datasets.load import load_labelled
from recoslip.data.datasets.panel import panel_case
from recoslip.inference.metrics import auroc

PAPER = ("cora-s", "citeseer-s", "photo-s", "computers-s")  # as the authors divide them, other splits of them too
PANEL = ("blogcatalog", "flickr", "citationv1", "acmv9", "coauthor_cs")
CASES = ("mixed0", "mixed1", "mixed2", "grown", "unshifted", "faces", "nothing")
FDR = 0.1

Record = dict[str, Any]


def problems(args: argparse.Namespace) -> Iterator[tuple[str, str, int, Any]]:
    """Yield dataset, case, draw, and what makes the graph and the truth."""
    for name in args.datasets:
        for draw in range(args.splits):
            yield name, "paper", draw, lambda name=name, draw=draw: _split(name, draw, args.root)
    for name in args.panel:
        for case in args.cases:
            yield (
                name,
                case,
                0,
                lambda name=name, case=case: tuple(panel_case(name, load_labelled(name, args.root), case)),
            )


def _split(name: str, draw: int, root: str | None) -> tuple[recoslip.NodeGraph, NDArray[np.bool_]]:
    data = recoslip.load_dataset(name, root=root, split_seed=draw)
    return data.graph, data.novel


def measure(graph: recoslip.NodeGraph, novel: NDArray[np.bool_], method: str | None, device: str | None) -> Record:
    """Call `detect` and compare what it says with the truth."""
    began, processor = time.perf_counter(), time.process_time()
    result = recoslip.detect(graph, method=method, device=device, groups=False, progress=False)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    target, chosen = result.table.filter(result.table["domain"] == "target"), result.select(fdr=FDR)
    true = dict(zip(graph.ids.tolist(), novel.tolist(), strict=True))
    listed = np.array([true[name] for name in chosen["id"].to_list()], dtype=bool)
    by_rate = np.array([true[name] for name in result.listed["id"].to_list()], dtype=bool)
    truth = np.array([true[name] for name in target["id"].to_list()])
    is_target = np.ones(len(truth), dtype=bool)
    return {
        "auroc": auroc(truth, target["score"].to_numpy(), is_target) if truth.any() else None,
        "novel": int(truth.sum()),
        "target": len(truth),
        "listed": len(listed),
        "found": int(listed.sum()),
        "fpr": float((~by_rate).sum() / max(1, (~truth).sum())),
        "verdict": result.verdict.kind,
        "method": result.summary["method"],
        "seconds": round(seconds, 2),
        "processor": round(processor, 2),
    }


def table(records: list[Record]) -> str:
    """Return the means over draws of every dataset and case, as Markdown."""
    rows = defaultdict(list)
    for record in records:
        rows[record["dataset"] if record["case"] == "paper" else record["case"]].append(record)
    lines = [
        "| | AU-ROC | found at FDR 0.1 | known among the listed | false-positive rate at 1 % | processor s |",
        "|---|---|---|---|---|---|",
    ]
    for name, own in rows.items():
        ranked = [r["auroc"] for r in own if r["auroc"] is not None]
        found = [r["found"] / r["novel"] for r in own if r["novel"]]
        false = [1 - r["found"] / r["listed"] if r["listed"] else 0.0 for r in own]
        cells = [
            mean_and_error(ranked) if ranked else "",
            f"{np.mean(found):.2f}" if found else "",
            f"{np.mean(false):.2f}",
            f"{np.mean([r['fpr'] for r in own]):.3f}",
            f"{np.mean([r['processor'] for r in own]):.1f}",
        ]
        lines.append(f"| {name} ({len(own)}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def read_records(path: Path) -> list[Record]:
    """Return what was computed before."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add_record(path: Path, record: Record) -> None:
    """Append a record to the file, and print it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(record, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="*", default=PAPER)
    parser.add_argument("--panel", nargs="*", default=PANEL)
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--method", default=None, help="by default what detect takes")
    parser.add_argument("--device", default=None)
    parser.add_argument("--root", default=None)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="compute nothing")
    args = parser.parse_args()
    kept = read_records(args.records)
    done = {(r["dataset"], r["case"], r["draw"], r["asked"]) for r in kept}
    for dataset, case, draw, make in () if args.table else problems(args):
        if (dataset, case, draw, args.method) in done:
            continue
        graph, novel = make()
        record = {"dataset": dataset, "case": case, "draw": draw, "asked": args.method}
        record |= measure(graph, novel, args.method, args.device)
        kept.append(record)
        add_record(args.records, record)
    for method in sorted({r["asked"] for r in kept}, key=str):
        print(f"\n{method or 'default'}\n\n{table([r for r in kept if r['asked'] == method])}")


if __name__ == "__main__":
    main()
