"""What `detect` says, against the truth: lists, novel share, growth, groups and verdict, case by case.

python benchmarks/promises.py --root data --jobs 2 --draws 1 --records docs/results/promises/records.jsonl
python benchmarks/promises.py --graphs csbm digits --draws 20 --jobs 2 --records docs/results/promises/records.jsonl
python benchmarks/promises.py --records docs/results/promises/records.jsonl --table

Cases are those of the panel, with the domains drawn anew in every draw. What was computed is not computed again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from formatting import mean_and_error
from numpy.typing import NDArray

import recoslip
from recoslip import detector
from recoslip.base.errors import RecoslipWarning
from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.load import load_labelled
from recoslip.data.datasets.panel import Case, Labelled, panel_case
from recoslip.data.split import Mask, default_rotations
from recoslip.inference.analysis import analyse
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.metrics import auroc
from recoslip.inference.p_values import benjamini_hochberg, p_values
from recoslip.learning.methods import DEFAULT
from recoslip.learning.networks.objectives import best_bin

GRAPHS = ("acmv9", "blogcatalog", "citationv1", "coauthor_cs", "flickr", "csbm", "digits")
CASES = ("mixed0", "mixed1", "mixed2", "unshifted", "grown", "nothing")
KINDS = {"mixed0": "mixed", "mixed1": "mixed", "mixed2": "mixed"}
LEVELS = (0.1, 0.2)
CSBM = {"nodes": 1500, "categories": 8, "noise": 3.0, "homophily": 0.6, "degree": 6.0, "seed": 0}
MUCH = 3.0  # growth of a category from which on sentences about growth are counted

Record = dict[str, Any]


def load_case(graph: str, case: str, draw: int, root: str | None) -> Case:
    """Make a case of the panel with the domains of one draw."""
    if graph == "csbm":
        made = csbm(**CSBM)
        assert made.categories is not None
        labelled = Labelled(made.x, made.edge_index, made.categories)
    else:
        labelled = load_labelled(graph, root)
    return panel_case(graph, labelled, case, 7 + draw)


def measure(graph: str, case: str, draw: int, root: str | None) -> Record:
    """Fit as `detect` does and compare what it says with the truth."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RecoslipWarning)
    shown = load_case(graph, case, draw, root)
    start = time.perf_counter()
    rotations = default_rotations(shown.graph)
    fitted = recoslip.calibrate(detector(DEFAULT, random_state=draw), shown.graph, rotations=rotations)
    seconds = time.perf_counter() - start
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread"
    key = {"graph": graph, "case": case, "draw": draw, "seconds": round(seconds, 1), "device": device}
    return key | compare(fitted, shown)


def compare(fitted: Calibrated, shown: Case) -> Record:
    """Compare what is said of a fitted detector with the truth."""
    graph, categories = shown.graph, shown.graph.categories
    assert categories is not None
    target = graph.is_target
    novel, known = shown.novel & target, ~shown.novel & target
    findings = analyse(fitted, graph)
    share, p = findings.novel_share, findings.p_value
    record: Record = {
        "source": int((~target).sum()),
        "target": int(target.sum()),
        "truth": float(novel.sum() / target.sum()),
        "auroc": auroc(novel, fitted.scores, target) if novel.any() else None,
        "verdict": findings.verdict.kind,
        "fpr": float(findings.listed[known].mean()),
        "known with p up to 0.05": float((p[known] <= 0.05).mean()),
        "low": share.low,
        "high": share.high,
        "max_growth": share.max_growth,
        "estimates": {"quiet nodes": share.estimate} | other_estimates(fitted, target),
    }
    for level in LEVELS:
        record |= compare_list(f"at {level}", fitted.select(fdr=level), known, novel)
    # The list of before: one fit that hides a fifth of the source, compared with all of it.
    first = fitted.fits[0]
    p_once = p_values(first.scores_[target], first.scores_[fitted.hidden[0]])
    for level in LEVELS:
        once = np.zeros_like(target)
        once[target] = benjamini_hochberg(p_once, level)
        record |= compare_list(f"once at {level}", once, known, novel)

    def growth(nodes: NDArray[np.int64]) -> float | None:
        """How much the category grew that most of these nodes belong to; None for a novel one."""
        most = np.bincount(categories[nodes]).argmax()
        in_source, in_target = (categories == most) & ~target, (categories == most) & target
        return float(in_target.sum() / target.sum() / (in_source.sum() / (~target).sum())) if in_source.any() else None

    record["grown"] = [
        {"said": cluster.growth, "truth": growth(cluster.members[~novel[cluster.members]])}
        for cluster in findings.diagnosis.grown
    ]
    label = findings.partition.label
    record["groups"] = [
        {
            "size": group.size,
            "least_growth": None if group.evidence is None else group.evidence.least_growth,
            "growth": growth(np.flatnonzero(label == group.number)),
            "purity": float(np.bincount(categories[label == group.number]).max() / group.size),
        }
        for group in findings.groups
    ]
    largest = max((int((novel & (label == group.number)).sum()) for group in findings.groups), default=0)
    listed_novel = int((novel & findings.listed).sum())
    record["completeness"] = largest / listed_novel if listed_novel else None
    return record


def compare_list(name: str, listed: Mask, known: Mask, novel: Mask) -> Record:
    """Return the false-discovery proportion of a list, and the fraction of the novel nodes on it."""
    return {
        f"fdp {name}": float((listed & known).sum() / max(1, listed.sum())),
        f"found {name}": float(listed[novel].mean()) if novel.any() else None,
    }


def other_estimates(fitted: Calibrated, target: Mask) -> dict[str, float]:
    """Estimate the novel share as positive-unlabelled methods do, from the same scores."""
    source_like = 1 - fitted.scores
    source = source_like[fitted.calibration]
    return {
        "best bin": 1 - best_bin(source, source_like[target]).prior,
        "dedpul": 1 - dedpul(source, source_like[target]),
    }


def dedpul(source: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    r"""Return the known fraction of the target by DEDPUL (Ivanov 2020), where its EM algorithm has no fixed point.

    With the ratio r of the densities of source and target at the target's nodes, $D(\alpha) = \alpha - \text{mean}
    \min(\alpha r, 1)$ is 0 up to the known fraction and then grows; the estimate is where its slope changes most.
    """
    from scipy.stats import gaussian_kde

    def logit(probability: NDArray[np.float64]) -> NDArray[np.float64]:
        clipped = np.clip(probability, 1e-4, 1 - 1e-4)
        return np.log(clipped / (1 - clipped))

    if np.ptp(source) == 0 or np.ptp(target) == 0:
        return 1.0
    at = logit(target)
    ratio = gaussian_kde(logit(source))(at) / np.maximum(gaussian_kde(at)(at), 1e-12)
    alphas = np.linspace(0, 1, 101)
    excess = alphas - np.minimum(alphas[:, None] * ratio, 1).mean(axis=1)
    return float(alphas[1 + np.argmax(np.diff(excess, 2))])


def table(records: Sequence[Record]) -> str:
    """Write means with standard errors: lists, share and verdicts by kind of case, then growth, groups, estimates."""
    kinds: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        kinds[KINDS.get(record["case"], record["case"])].append(record)
    columns = ["FPR at 1 %", *(f"{what} at {level}" for level in LEVELS for what in ("FDP", "found", "found once"))]
    columns += ["share covered", "lower end > 0", "verdicts"]
    lines = [f"| | cases | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for kind, own in kinds.items():
        cells = [mean_and_error([record["fpr"] for record in own])]
        for level in LEVELS:
            cells.append(mean_and_error([record[f"fdp at {level}"] for record in own]))
            for name in (f"found at {level}", f"found once at {level}"):
                found = [record[name] for record in own if record[name] is not None]
                cells.append(mean_and_error(found) if found else "–")
        covered = sum(record["low"] <= record["truth"] <= record["high"] for record in own)
        large = [record for record in own if record["truth"] >= 0.1]
        verdicts = _counted(record["verdict"] for record in own)
        cells += [f"{covered} of {len(own)}", f"{sum(r['low'] > 0 for r in large)} of {len(large)}", verdicts]
        lines.append(f"| {kind} | {len(own)} | {' | '.join(cells)} |")
    return "\n\n".join(["\n".join(lines), _growth_table(records), _group_table(records), _estimate_table(records)])


def _counted(values: Any) -> str:
    names, counts = np.unique(list(values), return_counts=True)
    return ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))


def _growth_table(records: Sequence[Record]) -> str:
    claims = [claim for record in records for claim in record["grown"]]
    said = [(claim["said"], claim["truth"]) for claim in claims if claim["truth"] is not None]
    right = [truth / 2 <= growth <= 2 * truth for growth, truth in said]
    much = [is_right for is_right, (_, truth) in zip(right, said, strict=True) if truth > MUCH]
    return (
        f"Sentences about growth: {len(said)}, of which {sum(right)} are within a factor of 2 of the truth; of those "
        f"about categories that grew more than threefold, {sum(much)} of {len(much)}."
    )


def _group_table(records: Sequence[Record]) -> str:
    groups = [group for record in records for group in record["groups"] if group["least_growth"] is not None]
    new = [group for group in groups if group["growth"] is None]
    known = [group for group in groups if group["growth"] is not None]
    held = sum(group["least_growth"] <= group["growth"] for group in known)
    counts = [len(record["groups"]) for record in records if record["completeness"] is not None]
    purity = [g["purity"] for r in records if r["completeness"] is not None for g in r["groups"]]
    completeness = [record["completeness"] for record in records if record["completeness"] is not None]
    return (
        f"Groups, where something novel is listed: {np.mean(counts):.2f} in the mean and {max(counts)} at most, purity "
        f"{np.mean(purity):.2f}, completeness {np.mean(completeness):.2f}. The bound of the growth: {held} of "
        f"{len(known)} groups of a known category grew as much as it says; its median is "
        f"{np.median([g['least_growth'] for g in new]):.3g} for {len(new)} groups of a novel one."
    )


def _estimate_table(records: Sequence[Record]) -> str:
    lines = ["| novel share by | mean error | largest |", "|---|---|---|"]
    for name in records[0]["estimates"]:
        errors = [abs(record["estimates"][name] - record["truth"]) for record in records]
        lines.append(f"| {name} | {mean_and_error(errors)} | {max(errors):.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Compute what the records do not have yet, and print the tables."""
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
    print(table([record for record in records if record["graph"] in arguments.graphs]))


if __name__ == "__main__":
    main()
