"""The service without threads: a crank that has workers claim, one after the other, in any order."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxbisect_db import jobs, models
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.reconcile import reconcile
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Job
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.claiming import WorkClaimer
from onnxbisect_worker.context import Work, WorkerContext
from support.db.scenes import Clock
from support.worker.hidden_rule import Compiler, HiddenRulePool

NPU = "npu"


@dataclass(kw_only=True)
class Crank:
    """An installation whose workers work only when they are told to, one after the other."""

    database: Database
    clock: Clock
    folder: Path
    compiler: Compiler

    def __post_init__(self) -> None:
        self.settings = Settings(data=self.folder, slots=4)
        self.service = Service(
            settings=self.settings, database=self.database, files=Files(self.settings.files_folder, floor=0)
        )

    def place(self, worker: str = "w") -> WorkerContext:
        hosts = HiddenRulePool(self.compiler)
        return WorkerContext(service=self.service, pool=hosts, worker=worker, backends=(NPU, "other"))

    def next(self, place: WorkerContext) -> Work | None:
        """What this worker claims."""
        return WorkClaimer(place, control=True, probes=self.settings.slots)()

    def step(self, place: WorkerContext) -> bool:
        """Have this worker claim and do one piece of work. False where there was none."""
        work = self.next(place)
        if work is not None:
            work()
        return work is not None

    def until(self, stage: Stage, job: Job, place: WorkerContext) -> None:
        """Work on the job, which is alone, until it has come to the stage; there it is not claimed."""
        while self.read(job).searches[0].stage != stage:
            work = self.next(place)
            assert work is not None
            work()

    def job(self, backends: Sequence[str] = (NPU,), model: str = "net", spec: SearchSpec | None = None) -> Job:
        stored = self.service.files.put([model.encode()])

        def make(session: Any) -> Job:
            models.keep(session, tenant="", sha256=stored.sha256, name=f"{model}.onnx", size=stored.size)
            targets = tuple(NewTarget(backend=backend) for backend in backends)
            wanted = NewJob(model_sha256=stored.sha256, targets=targets, request=(spec or SearchSpec()).to_json())
            return jobs.create(session, wanted, tenant="").job

        return self.database.run(make)

    def read(self, job: Job) -> Job:
        with self.database.session() as session:
            found = jobs.get(session, job.id, "")
        assert found is not None
        return found

    def run(
        self, *wanted: Job, places: Sequence[WorkerContext] = (), chance: random.Random | None = None, dies: float = 0.0
    ) -> None:
        """Until these jobs have ended. `dies` is how often a worker dies with what it has claimed."""
        places, chance = places or [self.place()], chance or random.Random(0)
        idle = 0
        while any(not JobState(self.read(job).state).ended for job in wanted):
            work = self.next(chance.choice(places))
            if work is None:
                idle += 1
                assert idle < 400, "the jobs do not end"
                self.clock.forward(11)
                assert reconcile(self.database, "crank")
            elif chance.random() >= dies:
                work()

    def report(self, job: Job, ordinal: int = 0) -> dict[str, Any]:
        name = self.read(job).searches[ordinal].report
        assert name is not None
        with self.service.files.open(name) as file:
            return dict(json.load(file))
