"""The local driver: turns the crank from plan to probes to verdicts until the planner has no question left.

Why threads. Every compile is a process of its own, started, limited and killed as a tree by its backend; what is
left to run here is a thread that waits for it. A pool of worker processes would add nothing but a second copy of the
model in each and a second place from which a compiler could be orphaned. Cutting holds the interpreter's lock for
milliseconds, a compile takes seconds to minutes.

Never idle, never hasty: the planner is asked again whenever one verdict arrives, for as many questions as there are
workers. It knows nothing of what is still being compiled, so those stand among its answers and are passed over.
Speculative questions are taken only by workers for which nothing better is left.

A round counts the compiles that had to wait for each other: a question's round is one more than the highest round of
the verdicts on record when it was asked. With one worker that is the number of calls; with many it is the length of
the longest chain of calls, which is what a user waits for.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Protocol

from onnxbisect.answer import Answer
from onnxbisect.borrowing import borrowed
from onnxbisect.diagnosis import Diagnosis
from onnxbisect.job import ProbeRecord, Stats
from onnxbisect.search.plan import Ask, Plan, Verdicts
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict
from onnxbisect_backends.probing.culprit_files import OWN_FILE
from onnxbisect_backends.probing.prober import Asked, Probes
from onnxbisect_cli import verdict_base
from onnxbisect_cli.verdict_base import VerdictBase

#: Seconds after `stop` in which compiles must have died; a backend that deafly waits on is left to the process's end.
_PATIENCE = 5.0


class Planner(Protocol):
    """`onnxbisect.search.plan`: a pure function, replayed after every verdict."""

    def __call__(self, universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        """The questions worth asking now, best first, at least `width` of them where there are as many."""


class Observer(Protocol):
    """Told of everything that happens, in the driver's own thread."""

    def planned(self, plan: Plan, calls: int) -> None:
        """A new plan after `calls` compiler calls."""

    def asked(self, ask: Ask) -> None:
        """A compile is starting."""

    def answered(self, record: ProbeRecord) -> None:
        """A verdict is on record."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Where to end with what is known so far; None sets no bound."""

    calls: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a search came to. `answers` are the latest for each set of units; `stopped` says that `stop` ended it."""

    diagnosis: Diagnosis
    records: tuple[ProbeRecord, ...]
    answers: dict[UnitSet, Answer]
    stats: Stats
    stopped: bool


#: Questions that a final diagnosis raises: culprits whose failure must be seen on the very file that is handed out,
#: each with the key under which that answer is kept.
Confirm = Callable[[Diagnosis, dict[UnitSet, Answer]], Mapping[UnitSet, str]]


@dataclass(kw_only=True)
class _Running:
    """A compile under way, and the asks that wait for it: more than one where two places have one structure."""

    asks: list[Ask]
    round: int


@dataclass(frozen=True, kw_only=True)
class _Done:
    """What a worker thread sends back; `error` is what ended it."""

    question: tuple[str, int]
    asked: Asked | None
    error: BaseException | None = None


@dataclass(kw_only=True)
class Driver:
    """One search. `run` may be called once; `stop` ends it from a signal handler or another thread.

    `key` gives a probe's canonical structure. `kill_compiles` ends every compile of this process as a tree; it is
    called when `stop` was.
    """

    universe: Universe
    planner: Planner
    probes: Probes
    base: VerdictBase
    key: Callable[[UnitSet], str]
    observer: Observer
    jobs: int = 1
    budget: Budget = field(default_factory=Budget)
    confirm: Confirm = lambda diagnosis, answers: {}
    kill_compiles: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._verdicts: dict[UnitSet, list[Verdict]] = {}
        self._answers: dict[UnitSet, Answer] = {}
        self._records: list[ProbeRecord] = []
        self._running: dict[tuple[str, int], _Running] = {}
        self._keys: dict[UnitSet, str] = {}
        self._own_keys: dict[UnitSet, str] = {}
        self._confirmed: set[UnitSet] = set()
        self._inbox: SimpleQueue[_Done | None] = SimpleQueue()
        self._stopping = Event()
        self._calls = 0
        self._cached = 0
        self._round = 0
        self._compile_seconds = 0.0
        self._engine_seconds = 0.0
        self._began = 0.0

    def stop(self) -> None:
        """End as soon as may be: compiles are killed and forgotten, verdicts kept. Safe in a signal handler."""
        self._stopping.set()
        self._inbox.put(None)

    def run(self) -> Ended:
        """Search until the planner has no question left, the budget ends, or `stop` is called."""
        self._began = time.monotonic()
        self._recall()
        try:
            plan = self._search()
        finally:
            self._end_compiles()
        wall = time.monotonic() - self._began
        stats = Stats(
            compiler_calls=self._calls,
            cached=self._cached,
            rounds=self._round,
            compile_seconds=self._compile_seconds,
            engine_seconds=self._engine_seconds,
            wall_seconds=wall,
        )
        return Ended(
            diagnosis=plan.diagnosis,
            records=tuple(self._records),
            answers=self._answers,
            stats=stats,
            stopped=self._stopping.is_set(),
        )

    def _search(self) -> Plan:
        while True:
            plan = self._plan()
            if self._stopping.is_set() or self._take_known(plan.asks):
                if self._stopping.is_set():
                    return plan
                continue
            asks: Iterable[Ask] = plan.asks
            if not plan.asks and not self._running:
                asks = self._confirmations(plan.diagnosis)
                if self._take_known(asks):
                    continue
            self._launch(asks)
            if not self._running:
                return plan
            self._wait()

    def _plan(self) -> Plan:
        began = time.perf_counter()
        plan = self.planner(self.universe, self._verdicts, width=self.jobs)
        self._engine_seconds += time.perf_counter() - began
        self.observer.planned(plan, self._calls)
        return plan

    def _confirmations(self, diagnosis: Diagnosis) -> list[Ask]:
        """Compiles of the culprits' own files, where none is on record, each once.

        What the base knows of a file may be another place's of equal structure; then it is asked about again.
        """
        self._own_keys = dict(self.confirm(diagnosis, self._answers))
        return [
            Ask(units=units, attempt=len(self._verdicts.get(units, ())), why=OWN_FILE)
            for units in self._own_keys
            if units not in self._confirmed
        ]

    def _recall(self) -> None:
        """Start from what earlier runs of this very search asked."""
        for asked in self.base.journal():
            if asked.attempt != len(self._verdicts.get(asked.units, ())):
                continue  # an earlier attempt was not kept; this one will be found by its key when it is asked for
            answer = self.base.get(asked.key, asked.attempt)
            if answer is not None:
                if asked.why != OWN_FILE:
                    self._keys[asked.units] = asked.key
                ask = Ask(units=asked.units, attempt=asked.attempt, why=asked.why)
                self._record(ask, asked.key, answer, cached=True)

    def _take_known(self, asks: Iterable[Ask]) -> bool:
        """Answer what the base knows; True where it knew anything, for then the plan is out of date."""
        known = False
        for ask in asks:
            key = self._key(ask)
            if (key, ask.attempt) in self._running or ask.attempt != len(self._verdicts.get(ask.units, ())):
                continue
            answer = self.base.get(key, ask.attempt)
            if answer is not None:
                self._record(ask, key, borrowed(answer, self.universe, ask.units), cached=True)
                known = True
        return known

    def _launch(self, asks: Iterable[Ask]) -> None:
        for ask in sorted(asks, key=lambda ask: ask.speculative):  # stable: best first within each
            if ask.attempt != len(self._verdicts.get(ask.units, ())):
                continue
            question = (self._key(ask), ask.attempt)
            running = self._running.get(question)
            if running is not None:
                if all(ask.units != other.units for other in running.asks):
                    running.asks.append(ask)
                continue
            if len(self._running) >= self.jobs or self._spent():
                continue
            self._running[question] = _Running(asks=[ask], round=self._round + 1)
            if ask.why == OWN_FILE:
                self._confirmed.add(ask.units)
            self._calls += 1
            self.observer.asked(ask)
            Thread(target=self._work, args=(question, ask.units), name=f"probe {self._calls}", daemon=True).start()

    def _spent(self) -> bool:
        left = self._seconds_left()
        out_of_calls = self.budget.calls is not None and self._calls >= self.budget.calls
        return self._stopping.is_set() or out_of_calls or (left is not None and left <= 0)

    def _seconds_left(self) -> float | None:
        if self.budget.seconds is None:
            return None
        return self.budget.seconds - (time.monotonic() - self._began)

    def _work(self, question: tuple[str, int], units: UnitSet) -> None:
        """In a thread of its own: one compile."""
        try:
            done = _Done(question=question, asked=self.probes.ask(units, self._seconds_left()))
        except BaseException as error:  # it is raised again in the driver's thread
            done = _Done(question=question, asked=None, error=error)
        if self._stopping.is_set():  # the compile was killed: its outcome says nothing
            done = _Done(question=question, asked=None)
        self._inbox.put(done)

    def _wait(self) -> None:
        """Block until a compile ends or `stop` is called, then take all that has arrived."""
        done = self._inbox.get()
        while True:
            if done is not None:
                self._take(done)
            try:
                done = self._inbox.get_nowait()
            except Empty:
                return

    def _take(self, done: _Done) -> None:
        running = self._running.pop(done.question)
        if done.error is not None:
            raise done.error
        if done.asked is None:
            return
        self._engine_seconds += done.asked.engine_seconds
        if not done.asked.compiled:
            self._calls -= 1
        answer = done.asked.answer
        if answer is None:
            return
        self._compile_seconds += answer.verdict.seconds
        key, attempt = done.question
        self.base.put(key, attempt, answer)
        self._round = max(self._round, running.round)
        first, *others = running.asks
        self._record(first, key, answer, round_=running.round)
        for ask in others:
            self._record(ask, key, answer, cached=True)

    def _record(self, ask: Ask, key: str, answer: Answer, *, cached: bool = False, round_: int | None = None) -> None:
        self._verdicts.setdefault(ask.units, []).append(answer.verdict)
        self._answers[ask.units] = answer
        self._cached += cached
        self.base.note(verdict_base.Asked(units=ask.units, attempt=ask.attempt, key=key, why=ask.why))
        record = ProbeRecord(
            key=key,
            units=ask.units,
            verdict=answer.verdict,
            why=ask.why,
            round=self._round if round_ is None else round_,
            attempt=ask.attempt,
            cached=cached,
        )
        self._records.append(record)
        self.observer.answered(record)

    def _key(self, ask: Ask) -> str:
        if ask.why == OWN_FILE:
            return self._own_keys[ask.units]
        key = self._keys.get(ask.units)
        if key is None:
            began = time.perf_counter()
            key = self._keys[ask.units] = self.key(ask.units)
            self._engine_seconds += time.perf_counter() - began
        return key

    def _end_compiles(self) -> None:
        """Leave nobody behind: after `stop`, and when an error ended the search."""
        if not self._running:
            return
        self._stopping.set()
        give_up = time.monotonic() + _PATIENCE
        while self._running and time.monotonic() < give_up:
            self.kill_compiles()  # again and again: a thread may only now be starting its compiler
            try:
                done = self._inbox.get(timeout=0.1)
            except Empty:
                continue
            if done is not None:
                self._running.pop(done.question, None)
