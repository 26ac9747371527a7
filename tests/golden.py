"""What the main uses give with little training, as JSON: hashes of scores, listed ids, verdicts.

OMP_NUM_THREADS=1 python tests/golden.py > tests/golden.json    # in a commit that changes a number on purpose
"""

import hashlib
import inspect
import json
import os
import sys
import tempfile
import warnings
from contextlib import chdir
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}

import numpy as np
import polars as pl
import torch
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

from recoslip import RecoSlipPlus, detector, load_dataset
from recoslip.products.cli import app

LITTLE = {"epochs": 50, "rounds": 2, "hidden_channels": 16}
METHODS = ("lp-pul", "reco-slip", "nnpu", "reco-slip-plus", "nearest-source", "scan")


def machine() -> list[str]:
    """What the last bits of a score depend on, besides the code."""
    libraries = {str(info.get("architecture")) for info in threadpool_info()}
    return [torch.__version__, np.__version__, torch.backends.cpu.get_cpu_capability(), *sorted(libraries)]


def train_little() -> None:
    """Let the default method train for a moment, whoever asks for it."""
    kind: type | None = RecoSlipPlus
    defaults = inspect.unwrap(kind.__init__).__kwdefaults__
    assert set(LITTLE) <= set(defaults)
    defaults.update(LITTLE)


def run(*arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code in codes, result.output
    return result.output


def summed(ids: list, scores: np.ndarray) -> dict:
    """A hash of all scores, and some of them to compare with elsewhere."""
    order = np.argsort(np.array([str(name) for name in ids]), kind="stable")
    scores = np.ascontiguousarray(np.asarray(scores, dtype=np.float64)[order])
    return {
        "hash": hashlib.sha256(scores.tobytes()).hexdigest()[:16],
        "some": [round(float(score), 4) for score in scores[:: max(1, len(scores) // 12)]],
    }


def outcome(folder: Path) -> dict:
    table = pl.read_csv(folder / "scores.csv")
    summary = json.loads((folder / "summary.json").read_text())
    return {
        "scores": summed(table["id"].to_list(), table["score"].to_numpy()),
        "p_values": summed(table["id"].to_list(), table["p_value"].fill_null(2).to_numpy()),
        "listed": sorted(str(name) for name in table.filter("listed")["id"].to_list()),
        "verdict": summary["verdict"],
        "method": summary["method"],
    }


WORDS = {
    "books": "novel paperback author chapters", "kitchen": "steel pan knife oven", "garden": "seeds spade hose soil",
    "toys": "kids puzzle plastic colours", "drones": "rotor battery camera flight",
}  # fmt: skip
SOUTH = {"books": 110, "kitchen": 120, "garden": 30, "toys": 80}
NORTH = {"books": 70, "kitchen": 20, "garden": 80, "toys": 40, "drones": 40}


def shop(name: str, parts: dict[str, dict[str, int]], seed: int, *, offset: float = 0.0, first: int = 0) -> None:
    """Write tables of products, whose second region may be measured on another scale, so that the two are separable."""
    rng = np.random.default_rng(seed)
    rows = [(region, kind) for region, kinds in parts.items() for kind, count in kinds.items() for _ in range(count)]
    rows = [rows[k] for k in rng.permutation(len(rows))]
    kind = np.array([row[1] for row in rows])
    north = np.array([row[0] == "north" for row in rows])
    ids = [f"P{first + k:04}" for k in range(len(rows))]
    size = (
        rng.normal(np.unique(kind, return_inverse=True)[1][:, None] * 1.5, 1.0, (len(rows), 6))
        + offset * north[:, None]
    )
    frame = pl.DataFrame({"id": ids, "region": [row[0] for row in rows], **{f"size{k}": size[:, k] for k in range(6)}})
    if not offset:
        titles = [" ".join(rng.choice(WORDS[each].split(), 3, replace=False)) for each in kind]
        frame = frame.with_columns(title=pl.Series(titles))
    frame.write_csv(f"{name}.csv")
    ends = rng.integers(0, len(rows), 5 * len(rows))
    others = np.array([rng.choice(np.flatnonzero(kind == kind[k])) for k in ends])
    others = np.where(rng.random(len(ends)) < 0.8, others, rng.integers(0, len(rows), len(ends)))
    pl.DataFrame({"a": np.array(ids)[ends], "b": np.array(ids)[others]}).write_csv(f"{name}_edges.csv")


def tables() -> dict:
    shop(
        "ordinary",
        {region: {name: 3 * n for name, n in kinds.items()} for region, kinds in (("south", SOUTH), ("north", NORTH))},
        1,
    )
    shop("separable", {"south": SOUTH, "north": NORTH}, 2, offset=30.0)
    shop("tomorrow", {"north": {"books": 12, "drones": 8}}, 3, first=5000)
    domains = ("--domain", "region", "--target", "north")
    options = (*domains, "--max-fpr", "0.05")
    run("detect", "ordinary.csv", "ordinary_edges.csv", *options, "--text", "title", "--out", "ordinary")
    run("detect", "separable.csv", "separable_edges.csv", *options, "--out", "separable", "--ignore", "size5")
    run("detect", "separable.csv", "separable_edges.csv", *options, "--out", "apart", "--align", "off")
    run("detect", "ordinary.csv", "ordinary_edges.csv", *domains, "--text", "title", "--fdr", "0.2", "--out", "fdr")
    new = ("score", "ordinary", "--nodes", "tomorrow.csv", "--edges", "tomorrow_edges.csv")
    run(*new, "--out", "alone")
    run(*new, "--with", "ordinary.csv", "ordinary_edges.csv", "--out", "together")
    alone = pl.read_csv("alone/scores.csv")
    return {
        **{name: outcome(Path(name)) for name in ("ordinary", "separable", "apart", "fdr", "together")},
        "alone": summed(alone["id"].to_list(), alone["score"].to_numpy()),
    }


def demo() -> dict:
    run("demo", "--out", "demo")
    return outcome(Path("demo"))


def cells() -> dict:
    import anndata

    rng = np.random.default_rng(4)
    kind = np.repeat(np.arange(4), 70)
    query = np.where(kind == 3, True, rng.random(280) < 0.5)
    counts = rng.poisson(1 + 6 * (np.arange(30) // 7 == kind[:, None])).astype(np.float32)
    adata = anndata.AnnData(np.log1p(counts))
    adata.obs_names = [f"c{k}" for k in range(280)]
    adata.var_names = [f"g{k}" for k in range(30)]
    adata.obs["batch"] = np.where(query, "query", "reference")
    adata.write_h5ad("cells.h5ad")
    run("detect", "cells.h5ad", "--domain", "batch", "--target", "query", "--max-fpr", "0.05", "--out", "cells")
    return outcome(Path("cells"))


def watch() -> list:
    shop("known", {"south": {name: 6 * count for name, count in SOUTH.items()}}, 5)
    run(
        "watch",
        "watch",
        "--begin",
        "--nodes",
        "known.csv",
        "--edges",
        "known_edges.csv",
        "--ignore",
        "region",
        "--text",
        "title",
    )
    verdicts = []
    for week, kinds in enumerate((SOUTH, SOUTH | {"drones": 200}), start=1):
        shop(f"week{week}", {"south": kinds}, 5 + week, first=10_000 * week)
        own = ("--nodes", f"week{week}.csv", "--edges", f"week{week}_edges.csv")
        found = json.loads(run("watch", "watch", *own, "--json", codes=(0, 10, 11)))
        verdicts.append(
            [found["verdict"], found["exit_code"], 0 if found["group"] is None else len(found["group"]["members"])]
        )
    return verdicts


def methods() -> dict:
    data = load_dataset("csbm", nodes=300, categories=4, features=8, noise=0.5, split_seed=1)
    found = {}
    for name in METHODS:
        method = detector(name)
        little = {key: value for key, value in LITTLE.items() if key in method.get_params()}
        little |= {"prior_epochs": 4} if "prior_epochs" in method.get_params() else {}
        method = method.set_params(**little).fit(data.graph, data.split)
        found[name] = summed(data.graph.ids.tolist(), method.scores_)
    return found


PARTS = (methods, tables, demo, cells, watch)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    train_little()
    record = {"machine": machine()}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for part in PARTS:
            record[part.__name__] = part()
    json.dump(record, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
