"""Where one process works: the service, its hosts, its name, and whether it is to stop."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Event

from onnxbisect_db import models, workers
from onnxbisect_db.claims import Claim
from onnxbisect_db.reconcile import SearchBell
from onnxbisect_db.searches import Turn
from onnxbisect_db.states import Stage
from onnxbisect_worker.courier import Courier
from onnxbisect_worker.hosting import Case, Hosts
from onnxbisect_worker.order import Order
from onnxbisect_worker.service import Service
from onnxbisect_worker.universes import Universes

#: After which a worker whose compiler does not work passes a ring on: for as long as that the others may be busy.
ASIDE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """What every step of a job needs; threads may share it. `worker` is the name under which probes of these `backends`
    are taken, no more than `at_most` at a time, where it has more hands than that: some are for what needs no compiler.
    `hands` are all that the worker has, where several tenants share them.

    Once `stopping` is set nothing more is claimed, and what is in hand is given back.
    """

    service: Service
    hosts: Hosts
    worker: str
    backends: Collection[str] = ()
    at_most: int | None = None
    hands: int | None = None
    stopping: Event = field(default_factory=Event)
    universes: Universes = field(default_factory=Universes)
    courier: Courier = field(default_factory=Courier)

    def case(self, work: Turn | Claim) -> Case:
        """The stored model before the target, as a host wants it."""
        if isinstance(work, Turn):
            onnx, data = self._files_of(work)
        else:
            onnx, data = work.onnx, work.data
        return Case(
            tenant=work.tenant,
            onnx=onnx,
            model_name=work.model_name,
            files=data,
            backend=work.backend,
            options={name: str(value) for name, value in work.options.items()},
            order=Order.from_json(work.request),
            prepared=work.universe,
        )

    def ring_search(self, search_id: str, stage: Stage, backend: str) -> None:
        """Somebody is to take a turn of the search."""
        self.service.bell.search(SearchBell(search_id=search_id, stage=stage, backend=backend))

    def steps_aside(self, backend: str) -> bool:
        """See `workers.steps_aside`; the caller passes on what it was rung for."""
        with self.service.database.session() as session:
            return workers.steps_aside(session, self.worker, backend)

    def _files_of(self, turn: Turn) -> tuple[str, Mapping[str, str]]:
        if turn.onnx is not None:
            return turn.onnx, turn.data or {}
        with self.service.database.session() as session:
            model = models.get(session, turn.model_sha256, turn.tenant)
        return (turn.model_sha256, {}) if model is None else (model.onnx_file, model.files)
