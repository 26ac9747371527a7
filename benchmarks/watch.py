"""The alarm of `recoslip watch` on streams whose truth is known.

python benchmarks/watch.py --root data --records docs/results/watch/records.jsonl --jobs 2
python benchmarks/watch.py --root data/pyg --records docs/results/watch/arxiv.jsonl --arxiv
python benchmarks/watch.py --records docs/results/watch/records.jsonl --table
python benchmarks/watch.py --size

A graph with categories is cut into a known world and twelve batches. In every batch the known categories have other
proportions, which drift. In *grown* streams one known category, at most a twentieth of the known world, becomes ten
times as frequent within four batches. In *born* streams a category that the known world does not have takes 5 % of
every batch from the seventh on; in *quiet* streams there is none. Constants were chosen on other draws of csbm, ACMv9,
BlogCatalog and Coauthor CS; Citationv1 and Flickr were only reported on.

What is measured is the test that `recoslip.Watch` makes with every batch until its first alarm, on the same pooled
graph; reading and writing are left out. ogbn-arxiv by year goes through `Watch` itself (--arxiv; its features are
surrogates).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.panel import Labelled, read_labelled
from recoslip.data.graph import NodeGraph
from recoslip.data.partitions import Partitions
from recoslip.inference.separability import measure_mixing
from recoslip.products.watch.alarm import FIRST, TREES, appearance, level, nodes_in

BATCHES, BIRTH, WITHIN = 12, 7, 5  # batches, the first with the novel category, and within how many it should ring
ALPHA, MAX_GROWTH, WINDOW = 0.05, 10.0, 5  # the defaults of `Watch`
NOVEL_SHARE, GROWTH, KNOWN = 0.05, 10.0, 0.45
CSBM = {
    "csbm-1": {"noise": 1.0, "homophily": 0.8},
    "csbm-1.5": {"noise": 1.5, "homophily": 0.7},
}
PANEL = ("acmv9", "blogcatalog", "citationv1", "coauthor_cs", "flickr")
DRAWS = dict.fromkeys(CSBM, 25) | dict.fromkeys(PANEL, 10)  # of each of four kinds of streams
SEED = 1000


class Stream(NamedTuple):
    """Nodes in the order of their arrival."""

    x: Any  # (nodes, features)
    edge_index: NDArray[np.int64]
    arrival: NDArray[np.int64]  # 0 for the known world, then the batch
    categories: NDArray[np.int64]
    novel: int  # the novel category, or -1


def load(name: str, root: Path, draw: int) -> Labelled:
    """Return a graph with categories; csbm is drawn anew each time."""
    if name in CSBM:
        graph = csbm(
            nodes=16_000, categories=8, degree=8, features=32, shift=0, novel_share=0.222, seed=draw, **CSBM[name]
        )
        assert graph.categories is not None
        return Labelled(graph.x, graph.edge_index, graph.categories.astype(np.int64))
    return _panel(root / "panel" / f"{name}.npz")


@cache
def _panel(path: Path) -> Labelled:
    return read_labelled(path)


def draw_stream(labelled: Labelled, rng: np.random.Generator, *, born: bool, grown: bool) -> Stream:
    """Cut a graph into a known world and batches, as large as its categories allow."""
    label = labelled.categories
    count = np.bincount(label)
    frequent = np.flatnonzero(count >= 0.01 * len(label))
    candidates = [c for c in frequent if 0.05 <= count[c] / len(label) <= 0.3]
    novel = int(rng.choice(candidates)) if born else -1
    known = frequent[frequent != novel]
    nodes = count[known].astype(float)
    share = nodes / nodes.sum()
    growing = int(rng.choice(np.flatnonzero(share >= 0.04))) if grown else -1
    if grown:
        share = _with_share(share, growing, min(share[growing], 0.05))
    proportions = _drifting(share, growing, rng)  # (batches, known categories)
    world = min(KNOWN * nodes.sum(), float((0.9 * nodes / share).min()) if grown else np.inf)
    size = min(((nodes - world * share) / proportions.sum(axis=0)).min(), (1 - KNOWN) * nodes.sum() / BATCHES)
    if born:
        size = min(size, count[novel] / (NOVEL_SHARE * (BATCHES - BIRTH + 1)))
    left = {int(c): rng.permutation(np.flatnonzero(label == c)).tolist() for c in frequent}
    order: list[int] = []
    arrival: list[int] = []

    def arrive(category: int, number: int, batch: int) -> None:
        taken, left[category] = left[category][:number], left[category][number:]
        order.extend(taken)
        arrival.extend([batch] * len(taken))

    for category, part in zip(known, share, strict=True):
        arrive(int(category), int(world * part), 0)
    for batch in range(1, BATCHES + 1):
        new = rng.binomial(int(size), NOVEL_SHARE) if born and batch >= BIRTH else 0
        if new:
            arrive(novel, new, batch)
        for category, number in zip(known, rng.multinomial(int(size) - new, proportions[batch - 1]), strict=True):
            arrive(int(category), int(number), batch)
    position = np.full(len(label), -1)
    position[order] = np.arange(len(order))
    ends = position[labelled.edge_index]
    edges = ends[:, (ends >= 0).all(axis=0)]
    return Stream(labelled.x[order], edges, np.array(arrival), label[order], novel)


def _with_share(share: NDArray[np.float64], category: int, wanted: float) -> NDArray[np.float64]:
    others = np.arange(len(share)) != category
    return np.where(others, share * (1 - wanted) / share[others].sum(), wanted)


def _drifting(share: NDArray[np.float64], growing: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Let the logarithms of proportions drift, and one category grow tenfold within four batches."""
    drift, result = np.zeros(len(share)), []
    begin = int(rng.integers(2, 8))
    for batch in range(1, BATCHES + 1):
        drift = 0.85 * drift + 0.25 * rng.standard_normal(len(share))
        proportions = share * np.exp(np.clip(drift, -1, 1))
        proportions /= proportions.sum()
        if growing >= 0:
            grown = np.clip((batch - begin + 1) / 4, 0, 1)
            top = min(0.6, GROWTH * share[growing])
            proportions = _with_share(proportions, growing, share[growing] * (top / share[growing]) ** grown)
        result.append(proportions)
    return np.array(result)


def run(name: str, root: Path, draw: int, born: bool, grown: bool) -> dict[str, Any]:
    """Test every batch of a stream until an alarm is raised, or it is found separable."""
    rng = np.random.default_rng([SEED, draw, born, grown, *name.encode()])
    stream = draw_stream(load(name, root, SEED + draw), rng, born=born, grown=grown)
    rings, apart, seconds, precision = None, None, [], None
    for batch in range(1, BATCHES + 1):
        begin = time.perf_counter()
        so_far = stream.arrival <= batch
        is_recent = stream.arrival[so_far] > max(0, batch - WINDOW)
        inside = (stream.arrival[stream.edge_index] <= batch).all(axis=0)
        position = np.cumsum(so_far) - 1
        x = stream.x[np.flatnonzero(so_far)]
        graph = NodeGraph(x, position[stream.edge_index[:, inside]], is_recent)
        partitions = Partitions.of(graph, trees=TREES, first=FIRST)
        counts = partitions.count(is_recent)[partitions.parent >= 0]
        sizes = int((~is_recent).sum()), int(is_recent.sum())
        found = appearance(counts, sizes, max_growth=MAX_GROWTH, at_level=level(batch, ALPHA))
        seconds.append(time.perf_counter() - begin)
        if found.p_value <= level(batch, ALPHA):
            assert found.bin is not None
            chosen = int(np.flatnonzero(partitions.parent >= 0)[found.bin])
            members = np.flatnonzero(nodes_in(partitions, chosen) & is_recent)
            own = stream.arrival[so_far]
            compared = ~is_recent | np.isin(own, np.unique(own[members]))
            if measure_mixing(graph.subgraph(np.flatnonzero(compared))).situation == "apart":
                apart = apart or batch
                continue
            rings = batch
            precision = float((stream.categories[so_far][members] == stream.novel).mean())
            break
    return {
        "graph": name,
        "draw": draw,
        "born": born,
        "grown": grown,
        "rings": rings,
        "apart": apart,
        "precision": precision,
        "world": int((stream.arrival == 0).sum()),
        "batch": int((stream.arrival == 1).sum()),
        "seconds": round(float(np.mean(seconds)), 3),
    }


def run_arxiv(root: Path) -> dict[str, Any]:
    """Watch the papers of ogbn-arxiv's subset by year: those before 2007 are known."""
    import polars as pl

    from recoslip import Watch, load_dataset

    data = load_dataset("arxiv", root)
    graph = data.graph
    assert graph.times is not None
    assert graph.categories is not None
    years, x = graph.times.astype(int), graph.x.toarray()
    frame = pl.DataFrame(
        {"id": [str(k) for k in range(len(x))], "year": years, **{f"f{k}": x[:, k] for k in range(x.shape[1])}}
    )
    left, right = graph.edge_index
    later = np.maximum(years[left], years[right])
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        for year in sorted(set(np.maximum(years, 2006).tolist())):
            chosen = years <= year if year == 2006 else years == year
            own = (later <= year if year == 2006 else later == year) & (left < right)
            edges = pl.DataFrame({"a": left[own].astype(str), "b": right[own].astype(str)})
            if year == 2006:
                watch = Watch.begin(state, frame.filter(chosen), edges, time="year")
                continue
            outcome = watch.add(frame.filter(chosen), edges)
            members = [] if outcome.group is None else [int(name) for name in outcome.group.members]
            values, counts = np.unique(graph.categories[members], return_counts=True)
            outcomes.append(
                {
                    "year": year,
                    "nodes": int(chosen.sum()),
                    "verdict": outcome.batch.verdict,
                    "sentence": outcome.batch.sentence,
                    "members": {str(value): int(count) for value, count in zip(values, counts, strict=True)},
                    "least_members": outcome.batch.least_members,
                }
            )
    first = {str(c): int(years[graph.categories == c].min()) for c in np.unique(graph.categories)}
    periods = [years < 2007, *(years == year for year in range(2007, 2013))]
    shares = {
        str(c): [round(float((graph.categories[own] == c).mean()), 4) for own in periods]
        for c in np.unique(graph.categories)
    }
    return {
        "graph": "arxiv",
        "known": int((years <= 2006).sum()),
        "first_years": first,
        "shares": shares,
        "years": outcomes,
    }


def measure_size(batches: int = 1000, nodes: int = 10_000) -> None:
    """Measure a call of the command with a state that has taken in many batches.

    Eight batches are real, so that the nodes that are kept are as many as they ever are; of the others the state has
    what it remembers of old batches: their entries and the hashes of their ids.
    """
    import resource
    import subprocess
    import sys
    from dataclasses import replace

    import polars as pl

    from recoslip import Watch
    from recoslip.base.files import update
    from recoslip.products.watch.page import render
    from recoslip.products.watch.state import files_of, read_state

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, 32))

    def frames(number: int, count: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        kind = rng.integers(0, 20, count)
        x = centres[kind] + rng.standard_normal((count, 32))
        ids = np.array([f"{number}-{k}" for k in range(count)])
        ends = rng.integers(0, count, (2, 5 * count))
        same = kind[ends[0]] == kind[ends[1]]
        kept = same | (rng.random(5 * count) < 0.05)
        table = pl.DataFrame({"id": ids, **{f"f{k}": x[:, k] for k in range(32)}})
        return table, pl.DataFrame({"a": ids[ends[0][kept]], "b": ids[ends[1][kept]]})

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "state"
        watch = Watch.begin(folder, *frames(0, 50_000))
        for number in range(1, 8):
            watch.add(*frames(number, nodes))
        state = read_state(folder)
        last_batch = state.batches[-1]
        for number in range(8, batches):  # as if the batches had come
            came = last_batch.came + nodes * (number - 7)
            entry = replace(last_batch, number=number, fingerprint=number, came=came)
            state = state.with_batches((*state.batches, entry))
            state = state.with_seen(rng.integers(-(2**63), 2**63 - 1, nodes), number)
        last, edges = frames(batches, nodes)
        table = state.nodes.table.with_columns(batch=pl.col("batch") + (batches - 8) * (pl.col("batch") > 0))
        state = replace(state, nodes=replace(state.nodes, table=table))
        update(folder, files_of(state, render(state)), "watch")
        last.write_csv(Path(name) / "last.csv")
        edges.write_csv(Path(name) / "last-edges.csv")
        size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
        begin = time.perf_counter()
        command = [Path(sys.executable).parent / "recoslip", "watch", folder]
        subprocess.run([*command, "--nodes", f"{name}/last.csv", "--edges", f"{name}/last-edges.csv"], check=True)
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"batch {batches:,} of {nodes:,} nodes: {seconds:.0f} s, at most {peak:.1f} GiB, state {size:,.0f} MiB")


def print_table(records: list[dict[str, Any]]) -> None:
    """Print, for each graph and in all, how often the alarm was false and how often it rang in time."""
    streams = [record for record in records if record["graph"] != "arxiv"]
    cells: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in streams:
        for name in (record["graph"], "csbm" if record["graph"] in CSBM else "panel", "all"):
            cells[name].append(record)
    head = "graph, known, batch, quiet: any alarm, same grown, born: too early, within 5, same grown, apart, s"
    print(f"| {' | '.join(head.split(', '))} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, own in cells.items():
        parts = []
        for born, grown in ((False, False), (False, True)):
            chosen = [r for r in own if r["born"] == born and r["grown"] == grown]
            parts.append(f"{sum(r['rings'] is not None for r in chosen)} of {len(chosen)}")
        births = [r for r in own if r["born"]]
        parts.append(f"{sum(r['rings'] is not None and r['rings'] < BIRTH for r in births)} of {len(births)}")
        for grown in (False, True):
            chosen = [r for r in births if r["grown"] == grown]
            in_time = [r for r in chosen if r["rings"] is not None and BIRTH <= r["rings"] < BIRTH + WITHIN]
            parts.append(f"{len(in_time)} of {len(chosen)}")
        world, batch, seconds = (np.mean([r[key] for r in own]) for key in ("world", "batch", "seconds"))
        apart = sum(r["apart"] is not None for r in own)
        print(f"| {name} | {world:,.0f} | {batch:.0f} | {' | '.join(parts)} | {apart} | {seconds:.2f} |")
    precise = [r["precision"] for r in streams if r["born"] and r["rings"] is not None]
    if precise:
        print(f"novel among the nodes that rang: {np.mean(precise):.2f} in the mean, lowest {min(precise):.2f}")
    for record in records:
        if record["graph"] == "arxiv":
            print(f"arxiv: {record['known']} papers before 2007; first years of categories {record['first_years']}")
            print(f"  shares of categories before 2007, then in each year: {record['shares']}")
            for year in record["years"]:
                print(f"  {year['year']}, {year['nodes']} papers: {year['sentence']} {year['members'] or ''}")


def main() -> None:
    """Run the streams that have no record yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder with panel/NAME.npz, and ogbn_arxiv for --arxiv")
    parser.add_argument("--records", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="graphs, separated by commas")
    parser.add_argument("--draws", type=int, default=10**6, help="of each kind of stream, at most")
    parser.add_argument("--arxiv", action="store_true", help="ogbn-arxiv by year, and nothing else")
    parser.add_argument("--size", action="store_true", help="what the 1,000th batch costs, and nothing else")
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    if arguments.size:
        measure_size()
        return
    path: Path = arguments.records
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {(r["graph"], r.get("draw"), r.get("born"), r.get("grown")) for r in records}
    chosen = [name for name in DRAWS if not arguments.only or name in arguments.only.split(",")]
    wanted = [
        (name, arguments.root, draw, born, grown)
        for draw in range(max(DRAWS.values()))
        for name in chosen
        for born in (False, True)
        for grown in (False, True)
        if draw < min(DRAWS[name], arguments.draws) and (name, draw, born, grown) not in done
    ]
    if not arguments.table:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file, ProcessPoolExecutor(arguments.jobs) as pool:
            if arguments.arxiv:
                records = [record for record in records if record["graph"] != "arxiv"] + [run_arxiv(arguments.root)]
                file.write(json.dumps(records[-1]) + "\n")
                wanted = []
            for future in as_completed([pool.submit(run, *each) for each in wanted]):
                record = future.result()
                records.append(record)
                file.write(json.dumps(record) + "\n")
                file.flush()
    print_table(records)


if __name__ == "__main__":
    main()
