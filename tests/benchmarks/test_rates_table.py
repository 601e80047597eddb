"""The rates of false statements are measured and printed as the document has them."""

import subprocess
import sys
from pathlib import Path

import pytest

RATES = Path(__file__).parents[2] / "benchmarks" / "rates.py"


@pytest.mark.long
def test_rates_are_shown_for_each_log_with_what_is_wrong_where():
    command = [sys.executable, str(RATES), "--worlds", "8", "--classes", "monotone", "--examples"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| monotone")]
    assert [row.split(" | ")[1:3] for row in rows] == [
        [log, "8"] for log in ("silent", "first offender", "the op behind it", "every node", "some ops")
    ]
    unknown = subprocess.run([*command[:-2], "monotonous"], capture_output=True, text=True)
    assert unknown.returncode == 2
    assert "the classes are monotone, fusion" in unknown.stderr


def test_classes_of_larger_models_are_letters_with_a_row_for_each_behaviour():
    command = [sys.executable, str(RATES), "--classes", "L,R", "--larger", "2", "--examples"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith(("| L", "| R"))]
    assert [row[1:5] for row in rows] == [
        ["many ops and pairs", "2", "0.0", "0.0"],
        ["patterns that its parser names, and others at which it crashes", "2", "0.0", "0.0"],
    ]
