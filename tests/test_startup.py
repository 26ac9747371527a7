"""Commands that compute nothing import nothing that computes. What is imported is asserted, not how long it takes."""

import json
import subprocess
import sys

import pytest

from recoslip import __version__

HEAVY = {
    "torch", "torch_geometric", "sklearn", "polars", "pyarrow", "pandas", "scipy", "ray", "sknetwork",
    "matplotlib", "starlette", "uvicorn",
}  # fmt: skip

COMMAND = """
import json, sys
from recoslip.products.cli import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """Run Python and return the modules that it says are imported."""
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return set(json.loads(result.stderr))


def after(statements: str) -> set[str]:
    return imported("-c", f"import json, sys\n{statements}\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["methods"],
        ["methods", "--json"],
        ["datasets"],
        ["datasets", "--json"],
        ["demo", "--help"],
        ["pack", "--help"],
        ["report", "--help"],
        ["compare", "--help"],
        ["review", "--help"],
        ["bench", "--help"],
        ["bench", "main", "--help"],
    ],
    ids=" ".join,
)
def test_commands_that_compute_nothing_import_nothing_heavy(arguments):
    assert not HEAVY & imported("-c", COMMAND, *arguments)


def test_python_runs_the_package_as_the_command():
    result = subprocess.run([sys.executable, "-m", "recoslip", "--version"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"recoslip {__version__}\n"), result.stderr


def test_the_packages_import_nothing_heavy():
    assert not HEAVY & after("import recoslip, recoslip.data.datasets, recoslip.learning, recoslip.products.cli")
    assert not HEAVY & after("from recoslip import __version__\nfrom recoslip.data.datasets.catalogue import CATALOGUE")


def test_a_detector_is_built_without_what_only_other_steps_need():
    # Without pandas, which is no dependency: scikit-learn imports it where it is installed, and pandas imports pyarrow.
    loaded = after("sys.modules['pandas'] = None\nimport recoslip\nrecoslip.RecoSlipPlus()")
    assert "torch" in loaded
    assert not {"torch_geometric", "pyarrow"} & loaded
    assert not {f"sklearn.{name}" for name in ("cluster", "decomposition", "manifold", "linear_model")} & loaded


def test_every_public_name_can_be_imported():
    names = after(
        "from recoslip.data.datasets.block_model import csbm\nassert csbm(nodes=20, categories=2).num_nodes == 20\n"
        "import recoslip\nassert all(hasattr(recoslip, name) for name in recoslip.__all__)"
    )
    assert {"recoslip.data.datasets.load", "recoslip.pipeline.report.html"} <= names
