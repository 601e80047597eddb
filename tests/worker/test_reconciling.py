"""The loop that picks up what was dropped lives through everything."""

import time
from pathlib import Path

from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Probe
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.running import Reconciler
from support.db.scenes import Clock, asking, claimed


def test_a_database_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    settings, clock = Settings(data=tmp_path, reconcile_seconds=0.05), Clock()
    service = Service(
        settings=settings,
        database=Database(settings.database, clock=clock),
        files=Files(settings.files_folder, floor=0),
    )
    reconciler = Reconciler(service, "me")
    reconciler.start()

    def state() -> str:
        with service.database.session() as session:
            return session.get_one(Probe, probe.probe.id).state

    try:
        time.sleep(0.3)  # some rounds that must fail: there are no tables
        service.database.upgrade()
        asking(service.database, [1])
        probe = claimed(service.database)
        clock.forward(3600)
        give_up = time.monotonic() + 30
        while state() != ProbeState.QUEUED:
            assert time.monotonic() < give_up
            time.sleep(0.01)
    finally:
        reconciler.stop()
        service.close()
