"""Webhooks have threads of their own: nothing else waits for a receiver."""

import time
from pathlib import Path

from onnxbisect_db import deliveries, endpoints, jobs, models
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.states import JobState
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service, open_service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.running import embedded
from support.worker.webhook_receiver import dripping, saying

MODEL = Path(__file__).parent.parent / "models" / "sam_part1_prompt__ts11.onnx"


def pings(service: Service, url: str, count: int) -> list[str]:
    with service.database.transaction() as session:
        endpoint = endpoints.add(session, tenant="", url=url)
        return [deliveries.ping(session, endpoint).id for _ in range(count)]


def test_jobs_go_on_while_receivers_are_silent(tmp_path: Path) -> None:
    made = Settings(data=tmp_path, webhook_allow=("127.0.0.1",), webhook_seconds=300)
    service = open_service(made)
    service.database.upgrade()
    everything = embedded(service)
    with saying(dripping(b"", b""), pause=1000) as url:
        pings(service, url, 40)
        everything.start()
        sha256 = service.files.put([MODEL.read_bytes()]).sha256
        target = NewTarget(backend="whitelist", options={"deny": "Sin"})
        wanted = NewJob(model_sha256=sha256, targets=(target,), request=SearchSpec().to_json())
        with service.database.transaction() as session:
            models.keep(session, tenant="", sha256=sha256, name=MODEL.name, size=1)
            job = jobs.create(session, wanted, tenant="").job.id
        state = ""
        while state != JobState.DONE:
            time.sleep(0.1)
            with service.database.session() as session:
                found = jobs.get(session, job, "")
                assert found is not None
                state = found.state
    everything.stop()
    service.close()
