"""The service's benchmark: what it counts as busy, that it runs, and that all it measures has a place to go."""

import importlib.util
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import many_jobs
import tables
from support.worker import redis_server

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "benchmarks" / "service.py"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds):
    return AT + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0),
        ([(1, 3)], 2),
        ([(-5, 2)], 2),
        ([(8, 20)], 2),
        ([(-5, 20)], 10),
        ([(-5, -1), (11, 12)], 0),
        ([(1, 3), (2, 5)], 5),
    ],
)
def test_only_what_lies_between_the_first_and_the_last_claim_counts(spans, seconds):
    assert many_jobs.within([(at(start), at(end)) for start, end in spans], at(0), at(10)) == seconds


def test_every_part_has_its_place_in_the_document():
    spec = importlib.util.spec_from_file_location("load_of_the_service", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    written = tables.fill((ROOT / "docs" / "service-load.md").read_text(), dict.fromkeys(program.PARTS, "measured"))
    assert written.count("\nmeasured\n") == len(program.PARTS)


@pytest.mark.long
def test_the_coordinator_is_measured_with_a_real_database():
    with redis_server.running():
        pass  # skipped where there is none
    argv = [sys.executable, "-W", "error", str(PROGRAM), "--quick", "--only", "coordination"]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| 100")]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| 100", "10"],
        ["| 100", "100"],
        ["| 1000", "10"],
        ["| 1000", "100"],
    ]
