"""What the main uses give is what it was, to the last bit on the machine of the record; tests/golden.py renews it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent
RECORD = json.loads((FOLDER / "golden.json").read_text(encoding="utf-8"))
NEAR = 0.05  # scores of short trainings, on processors whose instructions round otherwise


@pytest.fixture(scope="module")
def made():
    command = [sys.executable, "-W", "ignore", str(FOLDER / "golden.py")]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def scores(record):
    """The recorded scores of every case, by the way that leads to them."""
    found = {}
    for key, value in record.items():
        if isinstance(value, dict) and "some" in value:
            found[key] = value["some"]
        elif isinstance(value, dict):
            found |= {f"{key}.{name}": some for name, some in scores(value).items()}
    return found


@pytest.mark.parametrize("part", [name for name in RECORD if name != "machine"])
def test_scores_lists_and_verdicts_are_the_recorded_ones(made, part):
    if made["machine"] == RECORD["machine"]:
        assert made[part] == RECORD[part]
        return
    if part == "watch":
        assert [len(batch) for batch in made[part]] == [len(batch) for batch in RECORD[part]]
        return
    own, recorded = scores({part: made[part]}), scores({part: RECORD[part]})
    assert set(own) == set(recorded)
    for name in own:
        if not name.endswith("p_values"):
            np.testing.assert_allclose(own[name], recorded[name], atol=NEAR, err_msg=name)
