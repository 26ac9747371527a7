"""Command lines -> exit codes and output, each from a process of its own that has imported everything already.

The server imports recoslip and what it uses, then forks one child per command. So a command does not spend seconds on
imports, and can still be killed, be given a working directory, and end with any exit code. The server runs no command
itself, so it has no threads that a fork would lose.
"""

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

IMPORTED = [
    "pyarrow.parquet", "scipy.sparse.csgraph", "sklearn.cluster",
    "sklearn.decomposition", "sklearn.linear_model", "sklearn.manifold", "sklearn.preprocessing",
]  # fmt: skip
NEVER = 10**9  # more changes than any command makes
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate"}  # audit events


@dataclass(frozen=True)
class Ended:
    """How a command ended; the exit code of a killed one is -9."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    changes: int | None  # to the file system, where they were counted: with kill_at_change; None if it was killed

    @property
    def killed(self) -> bool:
        return self.returncode == -signal.SIGKILL


class ForkServer:
    """Start the server, and stop it at the end of the `with` block."""

    def __enter__(self):
        environment = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self.folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()

    def run(self, *arguments, cwd=None, kill_after=None, kill_at_change=None, memory_limit=None):
        """Run recoslip with arguments; `save OLD NEW` loads a saved detector and saves it.

        Args:
            *arguments: the command line.
            cwd: its working directory.
            kill_after: seconds after which it is killed.
            kill_at_change: it is killed right before this change to the file system, the first being 0.
            memory_limit: address space in MiB, beside what the program with its libraries has.
        """
        output = [Path(self.folder.name, name) for name in ("stdout", "stderr")]
        changes = Path(self.folder.name, "changes")
        changes.write_text("0")
        request = {
            "arguments": list(map(str, arguments)),
            "output": list(map(str, output)),
            "changes": str(changes),
            "cwd": str(cwd or Path.cwd()),
            "kill_after": kill_after,
            "kill_at_change": kill_at_change,
            "memory_limit": memory_limit,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        returncode, seconds = json.loads(self.process.stdout.readline())
        written = (path.read_text(encoding="utf-8") for path in output)
        counted = None if returncode == -signal.SIGKILL else int(changes.read_text())
        return Ended(returncode, *written, seconds, counted)

    def count_changes(self, *arguments):
        """Run recoslip with arguments and return the number of its changes to the file system."""
        ended = self.run(*arguments, kill_at_change=NEVER)
        assert not ended.killed
        return ended.changes


def serve():
    """Fork one child per line of JSON on stdin, and answer with its exit code and the seconds that it took."""
    import recoslip

    for module in pkgutil.walk_packages(recoslip.__path__, "recoslip."):
        importlib.import_module(module.name)
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        child = os.fork()
        if child == 0:
            run_child(request)
        status = wait(child, None if request["kill_after"] is None else started + request["kill_after"])
        print(json.dumps([os.waitstatus_to_exitcode(status), time.perf_counter() - started]), flush=True)


def wait(child, deadline):
    """Return the status of a child when it has ended, or was killed at the deadline."""
    if deadline is None:
        return os.waitpid(child, 0)[1]
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.perf_counter() > deadline:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.0005)
    return ended[1]


def run_child(request):
    """Run the command and end the process."""
    os.chdir(request["cwd"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, path in enumerate(request["output"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    if request["memory_limit"] is not None:
        limit_memory(request["memory_limit"])
    stop_counting = kill_at_change(request["kill_at_change"]) if request["kill_at_change"] is not None else lambda: 0
    code = 99
    try:
        run_command(request["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        Path(request["changes"]).write_text(str(stop_counting()))
        os._exit(code)


def run_command(arguments):
    if arguments[0] == "save":
        import recoslip

        recoslip.load_detector(arguments[1]).save(arguments[2])
    else:
        from recoslip.products.cli import main

        sys.argv = ["recoslip", *arguments]
        main()


def limit_memory(mebibytes):
    """Limit the address space of this process."""
    import resource

    import psutil
    import pyarrow

    pyarrow.array([1])  # Arrow reserves address space at its first use
    limit = psutil.Process().memory_info().vms + mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def kill_at_change(number):
    """Make this process kill itself right before a change of the file system; return how to end that and count them."""
    changes = 0

    def count(event, details):
        nonlocal changes
        writes = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or writes:
            if changes == number:
                os.kill(os.getpid(), signal.SIGKILL)
            changes += 1

    def stop():
        nonlocal number
        number = NEVER
        return changes

    sys.addaudithook(count)
    return stop


def spread(number, some, last):
    """Return some of the first numbers evenly, and every one of the last."""
    return sorted({*(k * number // some for k in range(some)), *range(max(0, number - last), number)})


if __name__ == "__main__":
    serve()
