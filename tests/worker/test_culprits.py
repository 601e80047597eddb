"""A compiler is updated: what was known of it is asked again, by the workers that have the new version."""

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from onnxbisect.verdict import Status
from onnxbisect_db import culprits, endpoints
from onnxbisect_db.culprits import versions_of
from onnxbisect_db.states import CulpritState
from onnxbisect_db.tables import Delivery
from support import TESTS
from support.worker import redis_server
from support.worker.installation import Installation
from support.worker.process_tree import within

NET = TESTS / "models" / "sam_part1_prompt__ts11.onnx"
PLUGIN = TESTS / "support" / "site" / "plugin"


def states(it: Installation) -> dict[str, str]:
    """By op."""
    with it.service.database.session() as session:
        return {" + ".join(each.ops): each.state for each in culprits.list_page(session, "").rows}


def said(it: Installation, op: str) -> list[tuple[str, str]]:
    """What each version says of the culprit."""
    with it.service.database.session() as session:
        (culprit,) = [each for each in culprits.list_page(session, "").rows if each.ops == [op]]
        return [(each.version, each.status) for each in versions_of(session, [culprit.id])[culprit.id]]


@pytest.mark.long
def test_a_new_version_fixes_one_culprit_and_breaks_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    with (
        redis_server.running() as redis,
        closing(Installation.at(tmp_path, redis_url=redis.url, compiler_env="SIMULATED_VERSION,PYTHONPATH")) as it,
    ):
        with it.service.database.transaction() as session:
            endpoints.add(session, tenant="", url="https://hooks.example")
        monkeypatch.setenv("SIMULATED_VERSION", "1")
        with it.worker(["versioned"]):
            it.ended(it.submit(NET, {}, backend="versioned"))
        assert states(it) == {"Sin": CulpritState.OPEN, "Abs": CulpritState.OPEN}
        monkeypatch.setenv("SIMULATED_VERSION", "2")
        with it.worker(["versioned"]):
            assert within(90, lambda: states(it)["Sin"] == CulpritState.FIXED and len(said(it, "Abs")) == 2)
            it.ended(it.submit(NET, {}, backend="versioned"))
        assert states(it) == {"Sin": CulpritState.FIXED, "Abs": CulpritState.OPEN, "Cos": CulpritState.OPEN}
        assert said(it, "Sin") == [("1", Status.FAIL), ("2", Status.PASS)]
        assert said(it, "Abs") == [("1", Status.FAIL), ("2", Status.FAIL)]
        assert said(it, "Cos") == [("1", Status.PASS), ("2", Status.FAIL)]
        with it.service.database.session() as session:
            kinds = list(session.scalars(select(Delivery.type).order_by(Delivery.created_at, Delivery.id)))
    one_job = ["job.started", "culprit.found", "culprit.found", "job.finished"]
    assert kinds == [*one_job, "culprit.fixed", *one_job]
