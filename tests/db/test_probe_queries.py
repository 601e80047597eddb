"""What was asked, page by page."""

from onnxbisect_db import probe_queries
from onnxbisect_db.database import Database
from onnxbisect_db.states import ProbeState
from support.db.scenes import answer, asking, claimed


def test_every_probe_is_on_one_page(database: Database) -> None:
    job = asking(database, range(1, 6), "npu", "cpu")
    asking(database, [1])
    seen: list[str] = []
    after = None
    with database.session() as session:
        for _ in range(4):
            page = probe_queries.list_page(session, job, after=after, limit=3)
            seen += [probe.id for probe in page.rows]
            after = page.after
        assert after is None
        assert len(set(seen)) == len(seen) == 10
        own = probe_queries.list_page(session, job, search_id=job.searches[1].id)
    assert {probe.search_id for probe in own.rows} == {job.searches[1].id}


def test_probes_by_state(database: Database) -> None:
    job = asking(database, [1, 2, 3])
    answer(database, claimed(database))
    claimed(database)
    with database.session() as session:
        found = {state: len(probe_queries.list_page(session, job, state=state).rows) for state in ProbeState}
    assert found == {ProbeState.QUEUED: 1, ProbeState.RUNNING: 1, ProbeState.DONE: 1, ProbeState.DROPPED: 0}
