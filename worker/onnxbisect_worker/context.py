"""What the steps of one worker share: the service, the pool of model processes, its name, whether it is to stop."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Event

from onnxbisect.universe import Universe
from onnxbisect_db import models
from onnxbisect_db.claims import Claim
from onnxbisect_db.searches import Turn
from onnxbisect_service.order import Order
from onnxbisect_service.service import Service
from onnxbisect_worker.model_processes.protocol import Case, Pool
from onnxbisect_worker.prepared import Prepared

#: A universe of ten thousand units takes some ten megabytes.
_UNIVERSES = 32


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """What every step of a job needs; threads may share it. `worker` is the name under which work for these `backends`
    is claimed; it has so many `slots`, where several tenants share them.

    Once `stopping` is set nothing more is claimed, and what is claimed is given back.
    """

    service: Service
    pool: Pool
    worker: str
    backends: Collection[str] = ()
    slots: int | None = None
    stopping: Event = field(default_factory=Event)

    @cached_property
    def universe(self) -> Callable[[str], Universe]:
        """Reads the universe of a prepared search, and keeps the last few: mostly the next step needs one of them."""
        return lru_cache(maxsize=_UNIVERSES)(self._universe)

    def case(self, work: Turn | Claim) -> Case:
        """The stored model before the target, as a model process wants it."""
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

    def _universe(self, sha256: str) -> Universe:
        with self.service.files.open(sha256) as file:
            return Prepared.from_bytes(file.read()).universe

    def _files_of(self, turn: Turn) -> tuple[str, Mapping[str, str]]:
        if turn.onnx is not None:
            return turn.onnx, turn.data or {}
        with self.service.database.session() as session:
            model = models.get(session, turn.model_sha256, turn.tenant)
        return (turn.model_sha256, {}) if model is None else (model.onnx_file, model.files)
