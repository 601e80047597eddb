"""The service without celery: a bell that remembers, and a crank that does what was rung for, in any order."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxbisect_db import jobs, models
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.reconcile import reconcile
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Job
from onnxbisect_worker.asking import probes_in_turn
from onnxbisect_worker.bell import SilentBell, ring_all
from onnxbisect_worker.coordinating import advance
from onnxbisect_worker.order import Order
from onnxbisect_worker.place import Place
from onnxbisect_worker.preparing import prepare
from onnxbisect_worker.repairing import repair
from onnxbisect_worker.reporting import write_report
from onnxbisect_worker.service import Service
from onnxbisect_worker.settings import Settings
from support.db.scenes import Clock
from support.worker.hidden_rule import Compiler, HiddenRuleHosts

NPU = "npu"
STEPS = {Stage.PREPARE: prepare, Stage.SEARCH: advance, Stage.REPORT: write_report, Stage.REPAIR: repair}


@dataclass(kw_only=True)
class Crank:
    """An installation whose workers work only when they are told to, one after the other."""

    database: Database
    clock: Clock
    folder: Path
    compiler: Compiler
    bell: SilentBell = field(default_factory=SilentBell)

    def __post_init__(self) -> None:
        self.settings = Settings(data=self.folder, slots=4)
        self.service = Service(
            settings=self.settings,
            database=self.database,
            files=Files(self.settings.files_folder, floor=0),
            bell=self.bell,
        )

    def place(self, worker: str = "w") -> Place:
        return Place(service=self.service, hosts=HiddenRuleHosts(self.compiler), worker=worker)

    def job(self, backends: Sequence[str] = (NPU,), model: str = "net", order: Order | None = None) -> Job:
        stored = self.service.files.put([model.encode()])

        def make(session: Any) -> Job:
            models.keep(session, tenant="", sha256=stored.sha256, name=f"{model}.onnx", size=stored.size)
            targets = tuple(NewTarget(backend=backend) for backend in backends)
            wanted = NewJob(model_sha256=stored.sha256, targets=targets, request=(order or Order()).to_json())
            return jobs.create(session, wanted, tenant="").job

        return self.database.run(make)

    def read(self, job: Job) -> Job:
        with self.database.session() as session:
            found = jobs.get(session, job.id, "")
        assert found is not None
        return found

    def run(self, *wanted: Job, places: Sequence[Place] = (), chance: random.Random | None = None) -> None:
        """Until these jobs have ended. With a `chance` rings come in any order, are doubled and get lost."""
        places = places or [self.place()]
        chance = chance or random.Random(0)
        idle = 0
        while any(not JobState(self.read(job).state).ended for job in wanted):
            if not self.step(places, chance):
                idle += 1
                assert idle < 200, "the jobs do not end"
                self.clock.forward(11)
                self.reconcile()

    def reconcile(self) -> None:
        bells = reconcile(self.database, "crank")
        assert bells is not None
        ring_all(self.bell, bells)

    def step(self, places: Sequence[Place], chance: random.Random) -> bool:
        heard: list[Any] = [
            *self.bell.searches,
            *(backend for backend, count in self.bell.backends for _ in range(count)),
        ]
        self.bell.searches.clear()
        self.bell.backends.clear()
        chance.shuffle(heard)
        for ring in heard:
            for _ in range(chance.choice([0, 1, 1, 2])):
                place = chance.choice(places)
                if isinstance(ring, str):
                    probes_in_turn(place, ring, seconds=chance.choice([0.0, 60.0]))
                else:
                    STEPS[ring.stage](place, ring.search_id)
        return bool(heard)

    def report(self, job: Job, ordinal: int = 0) -> dict[str, Any]:
        name = self.read(job).searches[ordinal].report
        assert name is not None
        with self.service.files.open(name) as file:
            return dict(json.load(file))
