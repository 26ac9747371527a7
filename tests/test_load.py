"""With limited memory, detect finishes or refuses the graph; the process is never killed."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

LIMIT = 700  # MiB beside the program with its libraries
PROGRAM = f"""
import resource
import igraph, leidenalg, plotly, psutil, pyarrow.parquet, sklearn.manifold, sklearn.preprocessing
import torch_geometric.explain
import recoslip.cli, recoslip.detectors.domain_discriminator, recoslip.output
pyarrow.array([1])  # Arrow reserves address space at its first use
limit = psutil.Process().memory_info().vms + {LIMIT} * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
recoslip.cli.main()
"""


def write_tables(folder, nodes: int) -> None:
    rng = np.random.default_rng(0)
    columns = {f"x{k}": rng.normal(size=nodes).astype(np.float32) for k in range(32)}
    pl.DataFrame({"id": np.arange(nodes), "domain": np.arange(nodes) % 2, **columns}).write_parquet(
        folder / "n.parquet"
    )
    ends = rng.integers(0, nodes, (2, 5 * nodes))
    pl.DataFrame({"a": ends[0], "b": ends[1]}).write_parquet(folder / "e.parquet")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is enforced on Linux")
def test_detect_finishes_or_refuses_with_limited_memory(tmp_path):
    codes = {}
    for nodes in (1_000, 150_000, 600_000):
        write_tables(tmp_path, nodes)
        command = ["detect", "--nodes", "n.parquet", "--edges", "e.parquet", "--out", f"out-{nodes}", "--device", "cpu",
                   "--method", "domain-discriminator", "--epochs", "3", "--batch-size", "0"]  # fmt: skip
        environment = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "PATH": ""}
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        codes[nodes] = result.returncode
        assert result.returncode in (0, 2), (nodes, result.returncode, result.stderr[-2000:])
        assert (tmp_path / f"out-{nodes}").exists() == (result.returncode == 0)
        if result.returncode == 2:
            assert "memory" in result.stderr or "GiB" in result.stderr, result.stderr
    assert codes[1_000] == 0
    assert codes[600_000] == 2
