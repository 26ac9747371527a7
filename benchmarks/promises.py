"""What `detect` promises, against the truth: false discoveries, false positives and the novel share, case by case.

python benchmarks/promises.py --root data --jobs 12 --records docs/results/promises/records.jsonl
python benchmarks/promises.py --records docs/results/promises/records.jsonl --table

Cases are those of the panel, with the domains drawn anew in every draw. What was computed is not computed again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from formatting import mean_and_error

from recoslip import detector
from recoslip.calibration.novel_share import novel_share
from recoslip.datasets import csbm
from recoslip.datasets.load import load_labelled
from recoslip.datasets.panel import Labelled, panel_case
from recoslip.detectors.catalogue import DEFAULT
from recoslip.errors import RecoslipWarning
from recoslip.metrics import auroc
from recoslip.shift import default_rotations

GRAPHS = ("acmv9", "blogcatalog", "citationv1", "coauthor_cs", "flickr", "csbm", "digits")
CASES = ("mixed0", "mixed1", "mixed2", "unshifted", "grown", "nothing")
KINDS = {"mixed0": "mixed", "mixed1": "mixed", "mixed2": "mixed"}
LEVELS = (0.1, 0.2)
CSBM = {"nodes": 3000, "categories": 8, "noise": 2.0, "homophily": 0.7, "degree": 6.0, "seed": 0}


def measure(graph: str, case: str, draw: int, root: str | None) -> dict[str, Any]:
    """Fit as `detect` does and compare with the truth."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RecoslipWarning)
    if graph == "csbm":
        made = csbm(**CSBM)
        assert made.categories is not None
        labelled = Labelled(made.x.numpy(), made.edge_index.numpy(), made.categories)
    else:
        labelled = load_labelled(graph, root)
    shown, novel = panel_case(graph, labelled, case, 7 + draw)
    target = shown.is_target.numpy()
    novel, known = novel & target, ~novel & target
    start = time.perf_counter()
    fitted = detector(DEFAULT, random_state=draw).fit(shown, rotations=default_rotations(shown))
    seconds = time.perf_counter() - start
    share = novel_share(fitted.scores_[target], fitted.scores_[fitted.calibration_])
    record = {
        "graph": graph,
        "case": case,
        "draw": draw,
        "source": int((~target).sum()),
        "target": int(target.sum()),
        "truth": float(novel.sum() / target.sum()),
        "auroc": auroc(novel, fitted.scores_, target) if novel.any() else None,
        "fpr": float(fitted.predict()[known].mean()),
        "regions": len(np.unique(fitted.region_)),
        "low": share.low,
        "estimate": share.estimate,
        "high": share.high,
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }
    for level in LEVELS:
        listed = fitted.shortlist(level)
        record[f"listed at {level}"] = int(listed.sum())
        record[f"fdp at {level}"] = float((listed & known).sum() / max(1, listed.sum()))
        record[f"found at {level}"] = float(listed[novel].mean()) if novel.any() else None
    return record


def table(records: list[dict[str, Any]]) -> str:
    """Write one row per kind of case: means over graphs and draws with standard errors."""
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        kinds[KINDS.get(record["case"], record["case"])].append(record)
    columns = ["FPR at 1 %", *(f"{what} at {level}" for level in LEVELS for what in ("FDP", "found"))]
    lines = [f"| | cases | {' | '.join(columns)} | share covered | lower end > 0 |", "|---" * (len(columns) + 4) + "|"]
    for kind, own in kinds.items():
        cells = [mean_and_error([record["fpr"] for record in own])]
        for level in LEVELS:
            cells.append(mean_and_error([record[f"fdp at {level}"] for record in own]))
            found = [record[f"found at {level}"] for record in own if record[f"found at {level}"] is not None]
            cells.append(mean_and_error(found) if found else "–")
        covered = sum(record["low"] <= record["truth"] <= record["high"] for record in own)
        large = [record for record in own if record["truth"] >= 0.1]
        cells += [f"{covered} of {len(own)}", f"{sum(r['low'] > 0 for r in large)} of {len(large)}"]
        lines.append(f"| {kind} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Compute what the records do not have yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--root", default=None)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="compute nothing")
    arguments = parser.parse_args()
    lines = arguments.records.read_text(encoding="utf-8").splitlines() if arguments.records.exists() else []
    records = [json.loads(line) for line in lines]
    done = {(record["graph"], record["case"], record["draw"]) for record in records}
    keys = [(g, c, d) for d in range(arguments.draws) for g in arguments.graphs for c in arguments.cases]
    missing = [] if arguments.table else [key for key in keys if key not in done]
    if missing:
        arguments.records.parent.mkdir(parents=True, exist_ok=True)
        with (
            ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool,
            arguments.records.open("a", encoding="utf-8") as file,
        ):
            for future in as_completed([pool.submit(measure, *key, arguments.root) for key in missing]):
                records.append(future.result())
                file.write(json.dumps(records[-1], sort_keys=True) + "\n")
                file.flush()
    print(table(records))


if __name__ == "__main__":
    main()
