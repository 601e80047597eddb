"""Nothing is lost when anything dies: a small storm; `make chaos` is the large one."""

from pathlib import Path

import pytest

from support.production.chaos_embedded import EmbeddedRun
from support.production.chaos_orders import GOALS, REPAIRED
from support.production.chaos_run import Run

#: Compilers in the model process and in one of their own, several targets of a job, and repairs; each with few probes.
_FEW = (GOALS[0], GOALS[5], *REPAIRED)
_EMBEDDED = (GOALS[1], *REPAIRED)

pytestmark = pytest.mark.chaos


@pytest.mark.timeout(600)
def test_every_job_ends_right_whatever_is_killed_meanwhile(tmp_path: Path) -> None:
    result = Run(folder=tmp_path, jobs=6, seed=7, kill_every=2, kills=10, seconds=300, goals=_FEW)()
    assert not result.complaints, "\n".join(result.complaints)
    assert result.killed.total() == 10
    assert result.killed["FLUSHALL"] == 1
    assert result.counted["targets repaired"] > 0


@pytest.mark.timeout(300)
def test_every_report_is_that_of_run_however_often_the_embedded_service_is_killed(tmp_path: Path) -> None:
    result = EmbeddedRun(folder=tmp_path, jobs=3, kills=4, seed=5, kill_every=2, seconds=200, goals=_EMBEDDED)()
    assert not result.complaints, "\n".join(result.complaints)
    assert (result.right, result.kills) == (3, 4)
