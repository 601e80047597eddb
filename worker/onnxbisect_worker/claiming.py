"""Chooses a worker's next work: coordinate a search, write a report, read or repair a model, or compile a probe."""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from threading import Lock
from typing import Protocol, TypeVar

from sqlalchemy.orm import Session

from onnxbisect.answer import answer_about
from onnxbisect.errors import ModelError, OnnxBisectError, OptionError
from onnxbisect.session import AS_PART, OWN_FILE
from onnxbisect.verdict import Kind, Status
from onnxbisect_db import locking, plans, probes, queues, search_queue, searches, workers
from onnxbisect_db.errors import LostClaimError
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import AT_BACKEND, Fault, Stage
from onnxbisect_worker.context import DATABASE_AWAY, Work, WorkerContext, machine_fault, sentence
from onnxbisect_worker.coordinating import coordinate, write_report
from onnxbisect_worker.lease_keeper import LeaseKeeper, WorkT
from onnxbisect_worker.measuring import measure
from onnxbisect_worker.model_requests import protocol
from onnxbisect_worker.repairing import change_file, repair

log = logging.getLogger(__name__)


def prepare(keeper: LeaseKeeper[ClaimedSearch]) -> None:
    """Prepare a claimed search, so that probes can be planned."""
    claimed, spec, files = keeper.claimed, keeper.spec, keeper.service.files
    search, graph = claimed.search, None
    log.info("search %s: preparing for %s", search.id, search.backend)
    with keeper.process() as process:
        prepared = process.prepare()
        if search.asked_for is None:
            try:
                graph = files.put([process.draw().encode()]).sha256
            except OnnxBisectError as error:
                if keeper.ended or machine_fault(error) is not None:
                    raise
                log.warning("search %s: there will be no picture of the model: %s", search.id, error)
    universe = files.put([prepared.to_bytes()]).sha256
    # the earlier search may be of another file with these units, so the whole and its culprits' own files do not count
    whole = f"{prepared.universe.everything:x}"

    def store(session: Session) -> None:
        identity = prepared.identity
        recalled = plans.recall(session, claimed, universe=universe, identity=identity, whole=whole, without=OWN_FILE)
        if recalled:
            log.info("search %s: %d answers of an earlier search", search.id, recalled)
        searches.store_prepared(
            session,
            claimed,
            identity=identity,
            tool=prepared.target.tool,
            version=prepared.target.version,
            universe=universe,
            units=len(prepared.universe),
            graph=graph,
            changeable=prepared.changeable and search.asked_for is None and not (spec.as_is or spec.whole),
        )

    keeper.write(store)


#: Seconds between checks whether this worker compiles nothing else.
_LOOK_EVERY = 0.5


def ask(keeper: LeaseKeeper[probes.Claim]) -> None:
    """Compile a claimed probe, and store its answer."""
    claim, left = keeper.claimed, None
    log.info(
        "probe %s of search %s: %d units, attempt %d",
        *(claim.probe.id, claim.search.id, claim.units.bit_count(), claim.probe.attempt),
    )
    as_part, own_file = claim.probe.why == AS_PART, claim.probe.why == OWN_FILE
    with keeper.process() as process:
        if claim.alone:
            _wait_for_others(keeper)
        if keeper.spec.budget_seconds is not None:
            with keeper.service.database.session() as session:
                left = keeper.seconds_left(session)
        if left is not None and left <= 0:
            keeper.write(lambda session: probes.give_back(session, claim, spent=True))
            return
        key = claim.probe.key
        if not key and own_file:  # the key of the file itself, so that no other answer is reused (`culprit_files`)
            key = process.digests([claim.units])[0]
        key = key or process.key(claim.units, as_part=as_part)
        named = keeper.write(lambda session: probes.dedupe_by_key(session, claim, key))
        if not named.mine:
            return
        if named.known is not None:
            known = answer_about(named.known, keeper.universe, claim.units)
            keeper.write(lambda session: probes.answer(session, claim, known, cached=True))
            return
        asked = process.ask(claim.units, seconds_left=left, as_part=as_part)
        answer, seconds = asked.answer, asked.engine_seconds
        if answer is None:  # the search's budget ended, not the compiler's limit
            keeper.write(lambda session: probes.give_back(session, claim, spent=True))
        elif asked.interrupted:
            raise protocol.ProcessKilledError(answer.verdict.message)
        elif answer.verdict.status is Status.UNRESOLVED and answer.verdict.kind is Kind.RESOURCE:
            # out of memory or disk: the same compile may succeed with nothing beside it
            keeper.write(lambda session: probes.record_crash(session, claim, answer.verdict.message, answer.log))
        else:
            keeper.write(
                lambda session: probes.answer(session, claim, answer, compiled=asked.compiled, engine_seconds=seconds)
            )


def _wait_for_others(keeper: LeaseKeeper[probes.Claim]) -> None:
    """Wait until this worker compiles nothing else; it claims no other probe meanwhile (`queues.next_probes`)."""
    while not keeper.ended:
        with keeper.service.database.session() as session:
            if not queues.others_run(session, keeper.context.worker, keeper.claimed.probe.id):
                return
        keeper.context.stopping.wait(_LOOK_EVERY)
    raise protocol.ProcessKilledError("This process is to stop.")


#: Seconds between models that are read while probes wait.
_READ_EVERY = 3.0
#: Seconds until a worker asks again which of a thousand waiting jobs may begin, once none may.
_BEGIN_EVERY = 0.5

_STEPS = {
    Stage.PREPARE: prepare,
    Stage.FILES: change_file,
    Stage.SEARCH: coordinate,
    Stage.REPORT: write_report,
    Stage.REPAIR: repair,
    Stage.PRECISION: measure,
}


_Claimed = ClaimedSearch | probes.Claim
#: Claims one kind of work, given the backends whose compilers work here.
_Kind = Callable[[Session, Collection[str]], _Claimed | None]


class WorkClaimer:
    """Claims for one worker, one at a time. Kinds of work take turns, and so do its backends.

    While probes wait, a model is read only every few seconds, so that jobs which have begun end before others begin. At
    most `probes` probes are compiled at a time; further slots are for work without a compiler.
    """

    def __init__(self, context: WorkerContext, *, control: bool, probes: int) -> None:
        self._context = context
        self._free = probes
        self._lock = Lock()
        self._backends = deque(context.backends)
        self._read: _Kind = self._model
        self._read_at = self._begin_at = 0.0
        self._kinds: list[_Kind] = [self._coordinated] if control else []
        if context.backends:
            self._kinds += [self._read, self._probe]

    def __call__(self) -> Work | None:
        """Work of the kind served longest ago; None if there is none."""
        if self._context.stopping.is_set():
            return None
        kinds = self._kinds
        if self._read in kinds and time.monotonic() < self._read_at:
            kinds = [*(kind for kind in kinds if kind is not self._read), self._read]

        def claim(session: Session) -> tuple[_Kind, _Claimed] | None:
            able = workers.usable_backends(session, self._context.worker, self._backends)
            for kind in kinds:
                claimed = kind(session, able)
                if claimed is not None:
                    return kind, claimed
            return None

        found = self._context.service.database.run(claim)
        if found is None:
            return None
        kind, claimed = found
        self._kinds = [*(it for it in self._kinds if it is not kind), kind]
        if isinstance(claimed, ClaimedSearch):
            if kind is self._read:
                self._read_at = time.monotonic() + _READ_EVERY
            return partial(work_on, self._context, claimed)
        with self._lock:
            self._free -= 1
        self._backends.remove(claimed.search.backend)
        self._backends.append(claimed.search.backend)
        return partial(self._ask, claimed)

    def _coordinated(self, session: Session, _able: Collection[str]) -> ClaimedSearch | None:
        return search_queue.take(session, self._claim_filter((Stage.SEARCH, Stage.REPORT), None, begin=True))

    def _model(self, session: Session, able: Collection[str]) -> ClaimedSearch | None:
        wanted = self._claim_filter(AT_BACKEND, able, begin=time.monotonic() >= self._begin_at)
        claimed = search_queue.take(session, wanted)
        if claimed is None and wanted.begin and search_queue.waits(session, wanted):
            self._begin_at = time.monotonic() + _BEGIN_EVERY
        return claimed

    def _claim_filter(
        self, stages: Collection[Stage], backends: Collection[str] | None, *, begin: bool
    ) -> search_queue.ClaimFilter:
        context = self._context
        return search_queue.ClaimFilter(
            worker=context.worker,
            seconds=context.service.settings.lease_seconds,
            stages=stages,
            backends=backends,
            slots=context.slots,
            begin=begin,
        )

    def _probe(self, session: Session, able: Collection[str]) -> probes.Claim | None:
        with self._lock:
            if not self._free:
                return None
        if locking.holds_any(session):  # locks are taken on queues before jobs
            return None
        context = self._context
        due = queues.due(session, able)
        for backend in due and [name for name in self._backends if name in due]:
            request = queues.ClaimRequest(
                backend=backend,
                worker=context.worker,
                seconds=context.service.settings.lease_seconds,
                warm=context.pool.warm(),
            )
            claim = probes.claim(session, request)
            if claim is not None:
                return claim
        return None

    def _ask(self, claim: probes.Claim) -> None:
        try:
            work_on(self._context, claim)
        finally:
            with self._lock:
                self._free += 1


def work_on(context: WorkerContext, held: _Claimed) -> None:
    """Do the claimed work. If the database is away, nothing is stored and the lease expires."""
    if isinstance(held, probes.Claim):
        _do(LeaseKeeper(context, held), ask, probes)
    else:
        _do(LeaseKeeper(context, held), _STEPS[held.stage], searches)


_TableWorkT = TypeVar("_TableWorkT", bound=_Claimed, contravariant=True)


class _Table(Protocol[_TableWorkT]):
    """What becomes of claimed work that was not done: `probes` or `searches`."""

    def give_back(self, session: Session, claimed: _TableWorkT, /) -> None: ...

    def record_loss(self, session: Session, claimed: _TableWorkT, what: str, /) -> None: ...

    def record_crash(self, session: Session, claimed: _TableWorkT, what: str, /) -> None: ...


def _do(keeper: LeaseKeeper[WorkT], step: Callable[[LeaseKeeper[WorkT]], None], table: _Table[WorkT]) -> None:
    try:
        with keeper:
            try:
                if keeper.ended:  # the worker stops since it was claimed
                    raise protocol.ProcessKilledError("The worker is to stop.")
                step(keeper)
            except (LostClaimError, *DATABASE_AWAY):
                raise
            except Exception as error:
                _give_up(keeper, error, table)
    except LostClaimError:
        log.info("%s: another worker has it", keeper.claimed)


def _give_up(keeper: LeaseKeeper[WorkT], error: Exception, table: _Table[WorkT]) -> None:
    """Store a failure: the work goes to another worker or a later attempt, or the error becomes its result."""
    held = keeper.claimed
    what, fault_of_machine = sentence(error), machine_fault(error)
    if isinstance(error, protocol.ToolBrokenError) and isinstance(held, ClaimedSearch):
        fault_of_machine = None  # if it works nowhere, the search fails
    if keeper.lost:
        log.info("%s: not wanted any more", held)
    elif keeper.ended:
        keeper.write(lambda session: table.give_back(session, held))
    elif isinstance(error, protocol.OtherVersionError):
        log.warning("%s: its target begins again: %s", held, what)
        keeper.write(lambda session: searches.begin_again(session, held, what))
    elif keeper.leaves_to_others(error):
        log.warning("%s: left to another worker: %s", held, what)
        keeper.write(lambda session: table.give_back(session, held))
    elif fault_of_machine is not None:
        log.warning("%s: %s", held, fault_of_machine)
        keeper.write(lambda session: table.record_loss(session, held, fault_of_machine))
    elif (
        isinstance(held, probes.Claim)
        or isinstance(error, protocol.ProcessLostError)
        or not isinstance(error, OnnxBisectError)
    ):
        log.warning("%s: %s", held, what, exc_info=not isinstance(error, OnnxBisectError))
        keeper.write(lambda session: table.record_crash(session, held, what))
    else:
        log.warning("%s: %s", held, what)
        fault = Fault.REQUEST if isinstance(error, ModelError | OptionError) else Fault.SERVICE
        keeper.write(lambda session: searches.fail(session, held, what, fault))
