"""What surrounds a command, broken at random: other processes, signals, environment, file systems, forged files.

    $ python benchmarks/torture.py                       # half an hour of processor time
    $ python benchmarks/torture.py --seconds 60 --only signals --seed 7

Every case draws a command and a misfortune, and checks what is promised whatever happens:

- the exit code is 0, 2 (refused, with a reason), 130 or 143 (asked to end), or that of the signal that killed it;
- no traceback, no panic of a library, no crash, no hang;
- an output folder is complete, or what it was before, or not there; code 0 means that it is complete, with the scores
  that the same command writes in peace;
- unless it was killed, a command leaves nothing beside its output; and after any of it the same command succeeds.

A case that breaks a promise is printed with its seed. The exit code is 1 if there was one.
"""

import argparse
import gzip
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import feather, parquet

import recoslip
from recoslip.data.datasets.block_model import csbm
from recoslip.data.packed.reader import open_packed
from recoslip.data.packed.writer import pack

RECOSLIP = [sys.executable, "-c", "from recoslip.products.cli import main; main()"]
LIMIT = 300  # seconds until a command counts as hanging
OUTPUT = {"recoslip.json", "scores.csv", "summary.json", "model", "report.html", "report.json"}
PACKED = {"recoslip.json", "graph.json", "nodes.parquet", "edge_index.npy", "is_target.npy", "x.npy"}
BAD_WORDS = ("Traceback", "panicked", "Exception ignored", "Fatal Python error", "core dumped", "Segmentation")
NOBODY = 65534
RECORDS = Path(__file__).parent.parent / "docs" / "results" / "records"


@dataclass
class Ended:
    """How a command ended."""

    command: list[str]
    code: int
    text: str


@dataclass
class World:
    """A folder of its own for each case, with tables, a packed graph and what a command writes in peace."""

    root: Path
    draw: random.Random

    def __post_init__(self) -> None:
        graph = csbm(nodes=150, categories=3, features=4, seed=1)
        columns = {f"x{k}": graph.x[:, k] for k in range(4)}
        table = pl.DataFrame({"id": range(150), "domain": graph.is_target.astype(int), **columns})
        self.root.chmod(0o755)
        table.write_csv(self.root / "nodes.csv")
        pl.DataFrame(dict(zip("ab", graph.edge_index, strict=True))).write_csv(self.root / "edges.csv")
        pack(self.root / "nodes.csv", self.root / "edges.csv", self.root / "packed")
        self.place = self.root / "case"
        self.peace: dict[tuple[str, ...], pl.DataFrame] = {}

    def detect(self, method: str) -> list[str]:
        """Return a command that writes an output folder."""
        more = {"lp-pul": [], "domain-discriminator": ["--epochs", "30"], "reco-slip": ["--epochs", "5"]}[method]
        tables = [str(self.root / "nodes.csv"), str(self.root / "edges.csv")]
        return ["detect", *tables, "--method", method, *more, "--seed", "3"]

    def pack(self) -> list[str]:
        """Return a command that writes a packed graph."""
        return ["pack", str(self.root / "nodes.csv"), str(self.root / "edges.csv")]

    def scores(self, command: list[str]) -> pl.DataFrame:
        """Return the scores that a command writes in peace."""
        key = tuple(command)
        if key not in self.peace:
            with tempfile.TemporaryDirectory() as folder:
                result = run([*command, "--out", f"{folder}/out"])
                if result.code:
                    raise SystemExit(f"the command fails in peace: {result.text}")
                self.peace[key] = read_scores(Path(folder) / "out")
        return self.peace[key]


class Broken(Exception):  # noqa: N818
    """A promise that was broken."""


def promise(kept: bool, text: str) -> None:
    """Raise Broken unless a promise was kept."""
    if not kept:
        raise Broken(text)


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command of recoslip."""
    defaults = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    threads = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    options["env"] = threads | os.environ | options.get("env", {})
    return subprocess.Popen([*RECOSLIP, *command], **(defaults | options))


def finish(process: subprocess.Popen[bytes], command: list[str]) -> Ended:
    """Wait for a command, and check what holds for every command."""
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Broken(f"{command} hangs") from None
    text = (output or b"").decode("utf-8", "replace")
    promise(not any(word in text for word in BAD_WORDS), f"{command} printed {text[-1500:]}")
    return Ended(command, process.returncode, text)


def run(command: list[str], **options: Any) -> Ended:
    """Run a command of recoslip."""
    return finish(start(command, **options), command)


def check_output(world: World, out: Path, done: list[list[str]]) -> None:
    """Check that a folder is complete and holds the scores of one of the commands."""
    promise(out.is_dir() and {path.name for path in out.iterdir()} == OUTPUT, f"{out} is not complete: {done}")
    found = read_scores(out)
    differences = [float((found["score"] - world.scores(command)["score"]).abs().max()) for command in done]
    promise(min(differences) < 1e-4, f"{out} has scores that are {differences} from those of {done}")
    recoslip.load_detector(out / "model")


def read_scores(out: Path) -> pl.DataFrame:
    """Read the scores of an output, in the order of ids; rounding may exchange neighbours."""
    return pl.read_csv((out / "scores.csv").read_bytes()).sort("id")


def check_packed(world: World, out: Path) -> None:
    """Check that a folder is the packed graph of the tables."""
    promise(out.is_dir() and {path.name for path in out.iterdir()} == PACKED, f"{out} is no packed graph")
    for name in ("edge_index.npy", "x.npy", "is_target.npy"):
        same = (out / name).read_bytes() == (world.root / "packed" / name).read_bytes()
        promise(same, f"{name} of {out} is not that of the tables")
    open_packed(out)


def check_alone(place: Path, names: set[str]) -> None:
    """Check that nothing lies beside the outputs."""
    found = {path.name for path in place.iterdir()}
    promise(found <= names, f"left over: {sorted(found - names)}")


# Other processes.


def concurrency(world: World) -> str:
    """Start several commands into one folder, moments apart; some replace, some write its page anew."""
    draw, out = world.draw, world.place / "out"
    if draw.random() < 0.3:
        commands = [[*world.pack(), str(out), *draw.choice([[], ["--force"]])] for _ in range(draw.randint(2, 3))]
        ended = _all_at_once(draw, commands)
        promise(any(one.code == 0 for one in ended), f"nobody succeeded: {[one.text for one in ended]}")
        promise(all(one.code in (0, 2) for one in ended), f"codes {[one.code for one in ended]}")
        check_packed(world, out)
        check_alone(world.place, {"out"})
        return "pack"
    methods = [draw.choice(["lp-pul", "domain-discriminator"]) for _ in range(draw.randint(2, 3))]
    plain = [world.detect(method) for method in methods]
    before = draw.random() < 0.5
    if before:
        promise(run([*plain[0], "--out", str(out)]).code == 0, "the first run failed")
    commands = [[*command, "--out", str(out), *draw.choice([[], ["--force"]])] for command in plain]
    if before:
        commands.append(["report", str(out)])
    ended = _all_at_once(draw, commands)
    promise(all(one.code in (0, 2) for one in ended), f"codes {[one.code for one in ended]}: {[e.text for e in ended]}")
    writers = [command for command, one in zip(plain, ended, strict=False) if one.code == 0]
    promise(before or bool(writers), f"nobody succeeded: {[one.text for one in ended]}")
    check_output(world, out, writers or plain[:1])
    check_alone(world.place, {"out"})
    return "detect"


def _all_at_once(draw: random.Random, commands: list[list[str]]) -> list[Ended]:
    processes = []
    for command in commands:
        processes.append(start(command))
        time.sleep(draw.choice([0, 0.05, 0.5, 2]))
    return [finish(process, command) for process, command in zip(processes, commands, strict=True)]


# Signals.


def signals(world: World) -> str:
    """Send signals at random moments, then run the same command again."""
    draw, out = world.draw, world.place / "out"
    packing = draw.random() < 0.3
    plain = world.pack() if packing else world.detect(draw.choice(["lp-pul", "reco-slip"]))
    command = [*plain, str(out)] if packing else [*plain, "--out", str(out)]
    names = draw.choices(["SIGINT", "SIGTERM", "SIGKILL", "SIGHUP", "SIGSTOP", "SIGINT SIGINT", "SIGTERM SIGINT"])[0]
    process = start(command, start_new_session=True)
    time.sleep(draw.choice([draw.uniform(0, 0.5), draw.uniform(0, 5), draw.uniform(2, 4)]))
    for name in names.split():
        process.send_signal(getattr(signal, name))
        time.sleep(draw.choice([0, 0.01, 0.3]))
    if names == "SIGSTOP":
        process.send_signal(signal.SIGCONT)
    ended = finish(process, command)
    allowed = {"SIGKILL": {0, -9}, "SIGHUP": {0, 129, -1}, "SIGSTOP": {0}}.get(names, {0, 130, 143, -2, -15})
    promise(ended.code in allowed, f"{names}: code {ended.code}: {ended.text[-500:]}")
    if ended.code == 0:
        check_packed(world, out) if packing else check_output(world, out, [plain])
        check_alone(world.place, {"out"})
    elif names == "SIGKILL" and out.exists():  # in its last moments
        check_packed(world, out) if packing else check_output(world, out, [plain])
    else:
        promise(not out.exists(), f"{names}: code {ended.code}, and {out} is there")
        if names != "SIGKILL":
            check_alone(world.place, set())
        again = run(command)
        promise(again.code == 0, f"after {names}, the same command: {again.code}, {again.text[-500:]}")
        check_packed(world, out) if packing else check_output(world, out, [plain])
    return names


# Environment.

VARIABLES: dict[str, list[str]] = {
    "LC_ALL": ["C", "POSIX", "C.UTF-8", "xx_YY.nothing", "", "tr_TR.UTF-8"],
    "PYTHONUTF8": ["0", "1"],
    "PYTHONIOENCODING": ["ascii", "latin-1", "utf-16", "ascii:strict"],
    "PYTHONHASHSEED": ["0", "77"],
    "PYTHONOPTIMIZE": ["1", "2"],
    "PYTHONUNBUFFERED": ["1"],
    "PYTHONDONTWRITEBYTECODE": ["1"],
    "PYTHONWARNINGS": ["always", "ignore"],
    "TERM": ["dumb", "", "xterm-256color", "unknown"],
    "COLUMNS": ["1", "0", "-5", "100000", "wide"],
    "LINES": ["0", "1"],
    "NO_COLOR": ["1"],
    "FORCE_COLOR": ["1"],
    "HOME": ["/nonexistent", "", "relative/home", "/dev/null"],
    "XDG_CACHE_HOME": ["/nonexistent", "/dev/null", "relative"],
    "TMPDIR": ["/nonexistent", "", "/dev/null", "/proc"],
    "TZ": ["UTC", "Asia/Kathmandu", "nonsense", ""],
    "OMP_NUM_THREADS": ["2", "0", "many"],
    "POLARS_MAX_THREADS": ["2"],
    "PATH": ["", "/nonexistent"],
    "CUDA_VISIBLE_DEVICES": ["", "-1", "99"],
    "PWD": ["/nonexistent"],
    "USER": [""],
}


def environment(world: World) -> str:
    """Run with odd variables, streams, limits, masks and working folders."""
    draw, out = world.draw, world.place / "out"
    chosen = draw.sample(sorted(VARIABLES), draw.randint(0, 6))
    variables = {name: draw.choice(VARIABLES[name]) for name in chosen}
    oddity = draw.choice(
        ["none", "streams", "umask", "files", "working folder", "nobody", "narrow memory", "file size"]
    )
    plain = world.detect(draw.choice(["lp-pul", "reco-slip"]))
    more = draw.choice([[], ["--json"], ["--quiet"], ["--title", "Où ☃ <b>"], ["--title", "\udcff"]])
    command = [*plain, "--out", str(out), *more]
    options: dict[str, Any] = {"env": variables}
    allowed = {0}
    if oddity == "streams":
        options |= {"stdin": None, "stdout": draw.choice([subprocess.DEVNULL, _full()])}
        options["preexec_fn"] = draw.choice([_close(0), _close(1), _close(2), _close(0, 1, 2), None])
    elif oddity == "umask":
        options["umask"] = draw.choice([0o000, 0o077, 0o777])
    elif oddity == "files":
        options["preexec_fn"] = _limit(resource.RLIMIT_NOFILE, draw.choice([8, 20, 40, 64, 256]))
        allowed = {0, 2}
    elif oddity == "working folder":
        gone = Path(tempfile.mkdtemp())
        options |= {"cwd": gone, "preexec_fn": lambda: gone.rmdir()}
        allowed = {2}
    elif oddity == "nobody":
        world.place.chmod(draw.choice([0o777, 0o755, 0o000]))
        options["user"] = NOBODY
        allowed = {0, 2}
    elif oddity == "narrow memory":
        options["preexec_fn"] = _limit(resource.RLIMIT_AS, draw.randint(1, 40) * 2**27)
        allowed = {0, 2}
    elif oddity == "file size":
        options["preexec_fn"] = _limit(resource.RLIMIT_FSIZE, draw.choice([0, 1000, 100_000, 3_000_000]))
        allowed = {0, 2}
    described = f"{oddity} {variables} {more}"
    try:
        ended = run(command, **options)
    except Broken as problem:
        if oddity == "narrow memory" or (oddity == "files" and "recoslip/__init__" not in str(problem)):
            # Python and the libraries cannot even be loaded: theirs to say. What is promised is the folder.
            promise(not out.exists() or {path.name for path in out.iterdir()} == OUTPUT, f"{described}: half an output")
            check_alone(world.place, {"out"})
            return f"{oddity} (too little to load the libraries)"
        raise Broken(f"{described}: {problem}") from None
    except PermissionError:
        return f"{oddity} (may not run Python)"
    finally:
        world.place.chmod(0o755)
    if oddity in ("narrow memory", "files") and ended.code not in allowed:
        promise(not out.exists(), f"{described}: code {ended.code}, and an output")
        check_alone(world.place, set())
        return f"{oddity} (too little to load the libraries)"
    promise(ended.code in allowed, f"{described}: code {ended.code}: {ended.text[-800:]}")
    if ended.code == 0:
        check_output(world, out, [plain])
        check_alone(world.place, {"out"})
    else:
        promise("error" in ended.text.lower(), f"{described}: no reason: {ended.text[-500:]}")
        promise(not out.exists(), f"{described}: code 2, and an output")
        check_alone(world.place, set())
    return oddity


def _close(*streams: int) -> Callable[[], None]:
    return lambda: [os.close(stream) for stream in streams] and None


def _limit(kind: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (value, value))


def _full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


# File systems.

NAMES = ["a" * 255, "a" * 256, "-o", " ", "...", "a\nb", "é", "e\u0301", "☃", "$(touch x)", "a*b?[c]", "\udcff\udcfe",
         "con", "a b", "%s", "{x}", "<script>", "~", "--out"]  # fmt: skip


def file_systems(world: World) -> str:
    """Write to odd names, full, read-only and odd disks, over inputs, through links; read tables that change."""
    draw = world.draw
    kind = draw.choice(["name", "full", "read-only", "itself", "link", "changing", "special", "deep", "foreign"])
    plain = world.detect("lp-pul")
    out = world.place / "out"
    if kind == "name":
        out = world.place / draw.choice(NAMES)
        ended = run([*plain, "--out", f"{out}"])
        too_long = len(os.fsencode(out.name)) > 255
        promise(ended.code == (2 if too_long else 0), f"{out.name!r}: {ended.code} {ended.text[-500:]}")
        if not too_long:
            check_output(world, out, [plain])
            promise(run(["report", str(out)]).code == 0, f"no page anew for {out.name!r}")
        check_alone(world.place, {out.name})
    elif kind in ("full", "read-only"):
        size = draw.choice([64, 500, 2000, 5000, 17_000, 20_000, 40_000])
        with mounted(world.place / "disk", f"size={size}k") as disk:
            target = disk / "out"
            if kind == "read-only":
                subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            command = draw.choice([[*plain, "--out", str(target)], [*world.pack(), str(target)]])
            ended = run(command)
            promise(ended.code in (0, 2), f"{kind} {size}k: {ended.code} {ended.text[-500:]}")
            if ended.code == 2:
                promise(not target.exists(), f"{kind} {size}k: code 2, and an output")
            elif command[0] == "pack":
                check_packed(world, target)
            else:
                check_output(world, target, [plain])
            left = {path.name for path in disk.iterdir()} - {"out"}
            promise(not left, f"{kind} {size}k leaves {left}")
    elif kind == "itself":
        place = world.place / "graph"
        shutil.copytree(world.root / "packed", place)
        before = sorted(path.name for path in place.rglob("*"))
        for command in (
            ["detect", str(place), "--method", "lp-pul", "--out", str(place), "--force"],
            ["detect", str(place / "x.npy"), "--method", "lp-pul", "--out", str(world.place / "o")],
            [*world.pack(), "/"],
            [*plain, "--out", "/"],
            [*plain, "--out", "", "--force"],
            [*plain, "--out", str(world.root), "--force"],
            [*plain, "--out", str(world.root / "nodes.csv"), "--force"],
        ):
            ended = run(command, cwd=world.place)
            promise(ended.code == 2, f"{command}: {ended.code} {ended.text[-500:]}")
        promise(sorted(path.name for path in place.rglob("*")) == before, "the graph has changed")
        check_alone(world.place, {"graph"})
    elif kind == "link":
        real = world.place / "real"
        shape = draw.choice(["folder", "dangling", "loop", "file", "chain"])
        if shape in ("folder", "chain"):
            real.mkdir()
        if shape == "file":
            real.write_text("mine")
        (world.place / "between").symlink_to(world.place / ("out" if shape == "loop" else "real"))
        out.symlink_to(world.place / ("between" if shape in ("chain", "loop") else "real"))
        ended = run([*plain, "--out", str(out)])
        promise(ended.code == (2 if shape in ("file", "loop") else ended.code), f"{shape}: {ended.code}")
        promise(ended.code in (0, 2), f"{shape}: {ended.code} {ended.text[-500:]}")
        promise(out.is_symlink(), f"{shape}: the link is gone")
        if ended.code == 0:
            check_output(world, real, [plain])
        promise(shape != "file" or real.read_text() == "mine", "a file was replaced")
        check_alone(world.place, {"out", "real", "between"})
    elif kind == "changing":
        nodes = world.place / "n.csv"
        original = (world.root / "nodes.csv").read_text()
        nodes.write_text(original)
        command = ["detect", str(nodes), "--method", "lp-pul", "--out", str(out)]
        process = start(command)
        until = time.monotonic() + draw.uniform(1, 5)
        while time.monotonic() < until and process.poll() is None:
            nodes.write_text(original[: draw.randint(0, len(original))])
            time.sleep(0.002)
        ended = finish(process, command)
        promise(ended.code in (0, 2), f"a table that changes: {ended.code} {ended.text[-800:]}")
        promise((ended.code == 0) == out.exists(), f"a table that changes: {ended.code}, output {out.exists()}")
        check_alone(world.place, {"out", "n.csv"})
    elif kind == "special":
        special = draw.choice(["/dev/null", "/dev/zero", "/proc/self/mem", "/", "fifo", "socket"])
        path = world.place / "special.csv"
        if special == "fifo":
            os.mkfifo(path)
        elif special == "socket":
            os.mknod(path, 0o140666)
        else:
            path.symlink_to(special)
        where = draw.choice(["nodes.csv", "edges.csv", "--config"])
        command = [str(path) if part.endswith(where) else part for part in plain]
        command += ["--config", str(path)] if where == "--config" else []
        ended = run([*command, "--out", str(out)])
        promise(ended.code == 2, f"{where} {special}: {ended.code} {ended.text[-500:]}")
        check_alone(world.place, {"special.csv"})
    elif kind == "deep":
        out = world.place.joinpath(*["d" * 200] * draw.choice([5, 15, 18, 19, 25]))
        ended = run([*plain, "--out", str(out)])
        promise(ended.code in (0, 2), f"{len(str(out))} characters: {ended.code} {ended.text[-500:]}")
        promise((ended.code == 0) == _exists(out), f"{len(str(out))} characters: {ended.code}")
    else:
        out.mkdir()
        (out / draw.choice(["thesis.tex", ".hidden", "scores.csv.bak", "model.txt"])).write_text("mine")
        (out / "scores.csv").write_text("an earlier result")
        ended = run([*plain, "--out", str(out), "--force"])
        promise(ended.code == 2 and len(list(out.iterdir())) == 2, f"foreign files: {ended.code}")
        check_alone(world.place, {"out"})
    return kind


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


@contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """Mount a disk in memory."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


# Forged files.

ANYTHING: list[Any] = [None, True, False, -1, 0, 1, 2, 0.5, 1.5, -5.0, 1e308, float("nan"), float("inf"), 10**30, "",
    "a", "auto", "\u0000", "../../etc/passwd", [], {}, [1], [None], ["a", "b"], {"a": 1}, [[[]]], {"": {}}]  # fmt: skip


def forged_files(world: World) -> str:
    """Change one value of the data of a page, or of records of a bench."""
    draw = world.draw
    folder = world.place / "forged"
    if draw.random() < 0.5:
        shutil.copytree(_finished(world), folder)
        name = draw.choice(["report.json", "summary.json"])
        content, forged = forge_json(json.loads((folder / name).read_text()), draw)
        (folder / name).write_text(json.dumps(content))
        ended = run(["report", str(folder)])
        promise(ended.code in (0, 2), f"{name}, {forged}: {ended.code} {ended.text[-500:]}")
        return "page"
    records = folder / "records"
    records.mkdir(parents=True)
    lines = (RECORDS / "cpu.jsonl").read_text().splitlines()[:20]
    for place in draw.sample(range(len(lines)), draw.choice([1, 3])):
        text = json.dumps(forge_json(json.loads(lines[place]), draw)[0])
        lines[place] = draw.choice([text, text, text[: len(text) // 2], "[" * 99_999, "\x00", ""])
    (records / "cpu.jsonl").write_text("\n".join(lines))
    options = ["--datasets", "citeseer-ms", "--methods", "sar-em", "--any-version", "--render", "--out", str(folder)]
    ended = run(["bench", "shift", *options])
    promise(ended.code in (0, 2), f"bench: {ended.code} {ended.text[-500:]}")
    return "records"


def _finished(world: World) -> Path:
    folder = world.root / "finished"
    if not folder.exists():
        run([*world.detect("lp-pul"), "--out", str(folder)])
    return folder


def forge_json(content: Any, draw: random.Random) -> tuple[Any, str]:
    """Replace, remove or add one value somewhere in a JSON document."""
    paths = list(_paths(content))
    path = draw.choice(paths)
    if not path:
        return draw.choice(ANYTHING), "everything"
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    value = draw.choice(ANYTHING)
    action = draw.choice(["replace", "replace", "replace", "remove", "add"])
    if action == "replace":
        parent[path[-1]] = value
    elif action == "remove":
        parent.pop(path[-1])
    elif isinstance(parent, dict):
        parent["more"] = value
    else:
        parent.append(value)
    return content, f"{action} {path} by {value!r}"


def _paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = (
        content.items() if isinstance(content, dict) else enumerate(content[:5]) if isinstance(content, list) else ()
    )
    for key, value in items:
        yield from _paths(value, (*path, key))


# Small files that stand for more than memory holds.

ADDRESSES = 6 * 2**30  # bytes that a command may address
FAR = [
    '<c r="XFD1048576"><v>1</v></c>', "<c r='XFD1048576'><v>1</v></c>", '<c r = "XFD1048576"><v>1</v></c>',
    '<c r="xfd1048576"><v>1</v></c>', '<c r="XFD0000000001048576"><v>1</v></c>', '<c r="ZZZZZ99999999"><v>1</v></c>',
]  # fmt: skip


def bombs(world: World) -> str:
    """Read a small file of cells, texts or lines that would take more memory than a process may have."""
    draw = world.draw
    kind = draw.choice(["workbook", "shared text", "parquet", "arrow", "lines"])
    path = world.place / {"parquet": "n.parquet", "arrow": "n.arrow", "lines": "n.csv.gz"}.get(kind, "n.xlsx")
    rows, length = draw.choice([(4000, 2**21), (20_000, 2**19), (1_000_000, 2**14)])
    if kind in ("parquet", "arrow"):
        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * length]))
        table = pa.table({"id": range(rows), "domain": np.arange(rows) % 2, "v": range(rows), "t": texts})
        write = parquet.write_table if kind == "parquet" else feather.write_feather
        write(table, path)
    elif kind == "lines":
        block = gzip.compress(b"0,0,0\n" * 2**18)  # members of a gzip file follow each other
        path.write_bytes(gzip.compress(b"id,domain,v\n") + block * draw.choice([700, 5000]))
    else:
        table = pl.DataFrame({"id": ["a", "b"], "domain": [0, 1], "v": [1, 2]})
        table.write_excel(world.place / "plain.xlsx")
        more = draw.choice(FAR) if kind == "workbook" else '<c t="s"><v>0</v></c>' * 20_000
        with zipfile.ZipFile(world.place / "plain.xlsx") as plain, zipfile.ZipFile(path, "w") as archive:
            for name in plain.namelist():
                content = plain.read(name).replace(b"</sheetData>", f"<row>{more}</row></sheetData>".encode())
                if kind != "workbook" and name == "xl/sharedStrings.xml":
                    content = content.replace(b"<t>", b"<t>" + b"x" * 2**20, 1)
                archive.writestr(name, content)
    command = ["check", str(path)]
    ended = run(command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES)))
    promise(ended.code == 2, f"{kind} {rows} {length}: {ended.code} {ended.text[-800:]}")
    return kind


# Settings files.

SETTINGS = [
    b"epochs = 3", b"epochs = -1", b"epochs = nan", b'epochs = "3"', b"epochs = [3]", b"[detect]\nepochs = 3",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\r\n", b"a.b.c = 1", b"epochs = 2020-01-01", b"device = 'cuda'",
    b"device = 'meta'", b"hidden_channels = 9223372036854775807", b"batch_size = 0", b"learning_rate = 1e30",
    b"x = " + b"[" * 3000, b"x = " + b"{a=" * 3000, b"x = " + b"9" * 5000, b"k" * 10_000 + b" = 1", b"seed = 2",
]  # fmt: skip


def settings_files(world: World) -> str:
    """Give a file of settings that is put together at random."""
    path, out = world.place / "settings.toml", world.place / "out"
    lines = world.draw.sample(SETTINGS, world.draw.choice([1, 1, 2, 3]))
    path.write_bytes(b"".join([*lines[:1], *(b"\n" + line for line in lines[1:])]))
    ended = run([*world.detect("domain-discriminator"), "--config", str(path), "--out", str(out)])
    promise(ended.code in (0, 2), f"{lines!r:.300}: {ended.code} {ended.text[-500:]}")
    promise((ended.code == 0) == out.exists(), f"{lines!r:.300}: {ended.code}, output {out.exists()}")
    check_alone(world.place, {"settings.toml", "out"} if out.exists() else {"settings.toml"})
    return "accepted" if ended.code == 0 else "refused"


FAMILIES = {
    "concurrency": concurrency,
    "signals": signals,
    "environment": environment,
    "file-systems": file_systems,
    "forged-files": forged_files,
    "bombs": bombs,
    "settings": settings_files,
}


def processor_seconds() -> float:
    """Return the processor time of this process and its children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> int:
    """Run cases until the processor time is spent, and print what broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800, help="processor time in all, shared among the families")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="cases per family, instead of a time")
    parser.add_argument("--only", choices=sorted(FAMILIES))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    settings = parser.parse_args()
    families = [settings.only] if settings.only else list(FAMILIES)
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), random.Random())
        for name in families:
            counts: Counter[str] = Counter()
            began, case, failures = processor_seconds(), settings.first, 0
            share = settings.seconds / len(families)
            while case < settings.first + settings.cases if settings.cases else processor_seconds() - began < share:
                seed = f"{settings.seed}-{name}-{case}"
                world.draw.seed(seed)
                world.place.mkdir()
                try:
                    counts[FAMILIES[name](world)] += 1
                except Broken as problem:
                    failures += 1
                    print(f"BROKEN {seed}: {problem}\n", flush=True)
                shutil.rmtree(world.place, ignore_errors=True)
                case += 1
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
            print(f"{name}: {case - settings.first} cases, {failures} broken ({kinds})", flush=True)
            broken += failures
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
