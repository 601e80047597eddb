"""The loop that picks up what was dropped lives through everything, and tells what it finds."""

import time
from pathlib import Path

from onnxbisect_db import jobs, models
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_worker.bell import SilentBell
from onnxbisect_worker.reconciling import Reconciler
from onnxbisect_worker.service import Service
from onnxbisect_worker.settings import Settings


def test_a_database_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, reconcile_seconds=0.05)
    bell = SilentBell()
    service = Service(
        settings=settings, database=Database(settings.database), files=Files(settings.files_folder, floor=0), bell=bell
    )
    reconciler = Reconciler(service, "me")
    reconciler.start()
    try:
        time.sleep(0.3)  # some rounds that must fail: there are no tables
        service.database.upgrade()
        with service.database.transaction() as session:
            models.keep(session, tenant="", sha256="a" * 64, name="net.onnx", size=1)
            wanted = NewJob(model_sha256="a" * 64, targets=(NewTarget(backend="npu"),))
            [search] = jobs.create(session, wanted, tenant="").job.searches
            search.ring_at = None  # as if the ring that came with it was due again
        give_up = time.monotonic() + 30
        while not bell.searches:
            assert time.monotonic() < give_up
            time.sleep(0.01)
    finally:
        reconciler.stop()
        service.close()
    assert [(ring.search_id, ring.backend) for ring in bell.searches] == [(search.id, "npu")]
