"""Under a cap on memory, a graph is done or refused in time; the process never dies."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

CAP = 700  # MiB beside what the program itself takes
CAPPED = f"""
import resource, sys
import igraph, leidenalg, plotly, psutil, pyarrow, sklearn.manifold, torch_geometric.explain, recoslip.cli
pyarrow.array([1])  # Arrow sets addresses aside, though not memory
limit = psutil.Process().memory_info().vms + {CAP} * 2**20
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


@pytest.mark.skipif(sys.platform != "linux", reason="caps are set as Linux does")
def test_detect_is_done_or_refused_under_a_cap(tmp_path):
    codes = {}
    for nodes in (1_000, 150_000, 600_000):
        write_tables(tmp_path, nodes)
        command = ["detect", "--nodes", "n.parquet", "--edges", "e.parquet", "--out", f"out-{nodes}", "--device", "cpu",
                   "--method", "domain-discriminator", "--epochs", "3", "--batch-size", "0"]  # fmt: skip
        environment = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "PATH": ""}
        result = subprocess.run(
            [sys.executable, "-c", CAPPED, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        codes[nodes] = result.returncode
        assert result.returncode in (0, 2), (nodes, result.returncode, result.stderr[-2000:])
        assert (tmp_path / f"out-{nodes}").exists() == (result.returncode == 0)
        if result.returncode == 2:
            assert "memory" in result.stderr or "GiB" in result.stderr, result.stderr
    assert codes[1_000] == 0
    assert codes[600_000] == 2
