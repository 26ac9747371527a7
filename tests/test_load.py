"""With limited memory, detect finishes or refuses the graph; the process is never killed."""

import sys

import numpy as np
import polars as pl
import pytest

LIMIT = 400  # MiB beside the program with its libraries


def write_tables(folder, nodes: int) -> None:
    rng = np.random.default_rng(0)
    columns = {f"x{k}": rng.standard_normal(nodes, dtype=np.float32) for k in range(32)}
    frame = pl.DataFrame({"id": np.arange(nodes), "domain": np.arange(nodes) % 2, **columns})
    frame.write_parquet(folder / "n.parquet")
    ends = rng.integers(0, nodes, (2, 5 * nodes))
    pl.DataFrame({"a": ends[0], "b": ends[1]}).write_parquet(folder / "e.parquet")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is enforced on Linux")
def test_detect_finishes_or_refuses_with_limited_memory(forked, tmp_path):
    codes = {}
    for nodes in (1_000, 50_000, 300_000):
        write_tables(tmp_path, nodes)
        command = ["detect", "n.parquet", "e.parquet", "--out", f"out-{nodes}", "--device", "cpu",
                   "--method", "domain-discriminator", "--epochs", "3", "--batch-size", "0"]  # fmt: skip
        ended = forked.run(*command, cwd=tmp_path, memory_limit=LIMIT)
        codes[nodes] = ended.returncode
        assert ended.returncode in (0, 2), (nodes, ended.returncode, ended.stderr[-2000:])
        assert (tmp_path / f"out-{nodes}").exists() == (ended.returncode == 0)
        if ended.returncode == 2:
            assert "memory" in ended.stderr or "GiB" in ended.stderr, ended.stderr
    assert codes[1_000] == 0
    assert codes[300_000] == 2
