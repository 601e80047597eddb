"""The service as it is installed: a folder, a database, a queue, workers, and a client that knows the database."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxbisect_db import jobs, models
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service, open_service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.model_requests.protocol import PROCESS_NAME

_WORK = """
import sys
from onnxbisect_service.settings import load_settings
from onnxbisect_worker.working import work
sys.exit(work(load_settings(), backends=sys.argv[2:], control=sys.argv[1] == "control"))
"""


@dataclass
class Installation:
    settings: Settings
    #: The settings that its processes are told, besides what this process has.
    given: dict[str, Any]
    service: Service = field(init=False)

    @classmethod
    def at(cls, folder: Path, **settings: Any) -> "Installation":
        wanted = {"data": str(folder / "data"), "lease_seconds": "6", "reconcile_seconds": "0.5", **settings}
        return cls(Settings.model_validate(wanted), wanted)

    def __post_init__(self) -> None:
        self.service = open_service(self.settings)
        self.service.database.upgrade()

    def close(self) -> None:
        self.service.close()

    def submit(
        self,
        model: Path,
        options: dict[str, str],
        *,
        backend: str = "whitelist",
        spec: SearchSpec | None = None,
        tenant: str = "",
    ) -> Job:
        stored = self.service.files.put([model.read_bytes()])

        def make(session: Any) -> Job:
            models.keep(session, tenant=tenant, sha256=stored.sha256, name=model.name, size=stored.size)
            targets = (NewTarget(backend=backend, options=options),)
            wanted = NewJob(model_sha256=stored.sha256, targets=targets, request=(spec or SearchSpec()).to_json())
            return jobs.create(session, wanted, tenant=tenant).job

        return self.service.database.run(make)

    def read(self, job: Job) -> Job:
        with self.service.database.session() as session:
            found = jobs.get(session, job.id, job.tenant)
        assert found is not None
        return found

    def ended(self, job: Job, seconds: float = 200, meanwhile: Callable[[], object] = lambda: None) -> Job:
        give_up = time.monotonic() + seconds
        while not JobState(self.read(job).state).ended:
            assert time.monotonic() < give_up, f"the job is still {self.read(job).state}"
            meanwhile()
            time.sleep(0.05)
        return self.read(job)

    def until_asked(self, job: Job, calls: int, seconds: float = 200) -> None:
        """Until so many compiles of the job are over."""
        give_up = time.monotonic() + seconds
        while self.read(job).searches[0].calls < calls:
            assert time.monotonic() < give_up
            assert not JobState(self.read(job).state).ended
            time.sleep(0.02)

    def report(self, job: Job) -> dict[str, Any]:
        [search] = self.read(job).searches
        assert search.report is not None
        with self.service.files.open(search.report) as file:
            return dict(json.load(file))

    @contextmanager
    def worker(
        self, backends: Sequence[str] = ("whitelist",), *, control: bool = True
    ) -> "Iterator[subprocess.Popen[str]]":
        """A worker process, which is told to stop in the end."""
        argv = [sys.executable, "-W", "ignore", "-c", _WORK, "control" if control else "", *backends]
        told = {f"ONNXBISECT_{name.upper()}": text for name, text in self.given.items()}
        with subprocess.Popen(argv, env={**os.environ, **told}, text=True) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise

    def processes(self) -> list[int]:
        """All that have to do with the data folder, but for this one."""
        marker = str(self.settings.data).encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                told += os.fsencode((entry / "cwd").readlink())
            except OSError:
                continue
            if marker in told and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return found

    def hosts(self) -> list[int]:
        """Of its processes those that have a model."""
        found = []
        for process in self.processes():
            with suppress(OSError):
                if Path(f"/proc/{process}/comm").read_text().strip() == PROCESS_NAME:
                    found.append(process)
        return found

    def gone(self, seconds: float, found: Callable[[], list[int]] | None = None) -> bool:
        """Whether all of its processes are, or those that are `found`, within so many seconds."""
        give_up = time.monotonic() + seconds
        while (found or self.processes)():
            if time.monotonic() > give_up:
                return False
            time.sleep(0.05)
        return True
