"""Runs a search in threads of this process: `onnxbisect.session` plans the probes, threads compile them.

Threads suffice, because the backend runs every compile in a process of its own, and the thread only waits for it.
Worker processes would each hold a copy of the model, and could leave a compiler behind when they die. Cutting holds
the interpreter's lock for milliseconds; a compile takes seconds to minutes.

The driver plans again after every verdict, for as many probes as there are threads. Speculative probes run only in
threads that have no other probe.

A round counts compiles that had to wait for each other: a probe's round is one more than the highest round of the
verdicts on record when its compile started. With one thread it equals the number of calls; with several it is the
length of the longest chain of calls, which determines how long a user waits.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import Event, Thread

from onnx_bisect import verdict_base
from onnx_bisect.events import Progress, plan_made, probe_answered, probe_started
from onnxbisect.answer import Answer, Ask, answer_about
from onnxbisect.diagnosis import Diagnosis, ProbeRecord, Stats
from onnxbisect.session import AS_PART, OWN_FILE, Digests, Ending, Planner, SearchRecord, Step, next_step
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect_backends.probing.prober import ProbeResult, Probes
from onnxbisect_backends.sandbox.process import CompileGroup

#: Seconds to wait after `stop` for killed compiles to end. Threads that are still running then end with the process.
_KILL_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits after which a search ends with what is known; None is no limit."""

    calls: int | None = None
    seconds: float | None = None

    def without(self, *, calls: int, seconds: float) -> "Budget":
        """The budget that is left after so many calls and seconds."""
        return Budget(
            calls=None if self.calls is None else max(0, self.calls - calls),
            seconds=None if self.seconds is None else max(0.0, self.seconds - seconds),
        )

    @property
    def half(self) -> "Budget":
        """The same with half of the seconds."""
        return Budget(calls=self.calls, seconds=None if self.seconds is None else self.seconds / 2)

    def within(self, calls: int | None) -> "Budget":
        """The same with at most so many calls."""
        return Budget(
            calls=min((it for it in (self.calls, calls) if it is not None), default=None), seconds=self.seconds
        )


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The result of a search. `answers` has the latest answer for each set of units."""

    diagnosis: Diagnosis
    records: tuple[ProbeRecord, ...]
    answers: dict[UnitSet, Answer]
    stats: Stats
    ending: Ending


@dataclass(kw_only=True)
class _Running:
    """A running compile and the asks that it answers: several if they have the same structure."""

    asks: list[Ask]
    round: int


@dataclass(frozen=True, kw_only=True)
class _Done:
    """The result that a compile's thread sends to the driver; `error` is the exception that ended the thread."""

    question: tuple[str, int]
    asked: ProbeResult | None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class OtherForm:
    """The whole model, written as its parts are; `differs` says whether this is another file than the user's."""

    differs: Callable[[], bool]
    key: Callable[[], str]
    ask: Callable[[float | None], ProbeResult]


@dataclass(kw_only=True)
class Driver:
    """One search. `ask_whole` may be called before `run`; `stop` ends it from a signal handler or another thread.

    `key` returns a probe's key, which equal structures share. With `digests`, the files of culprits are compiled, too,
    and so is the whole model in its `other_form` where that differs (`next_step`). Compiles join the group `compiles`,
    which is killed when the search is stopped.
    """

    universe: Universe
    planner: Planner
    probes: Probes
    base: verdict_base.VerdictBase
    key: Callable[[UnitSet], str]
    progress: Progress
    jobs: int = 1
    budget: Budget = field(default_factory=Budget)
    digests: Digests | None = None
    other_form: OtherForm | None = None
    compiles: CompileGroup = field(default_factory=CompileGroup)

    def __post_init__(self) -> None:
        self._records: list[ProbeRecord] = []
        self._answers: dict[UnitSet, Answer] = {}
        self._attempts: Counter[UnitSet] = Counter()
        self._running: dict[tuple[str, int], _Running] = {}
        self._keys: dict[UnitSet, str] = {}
        self._inbox: SimpleQueue[_Done | None] = SimpleQueue()
        self._stopping = Event()
        self._calls = 0
        self._seconds_outside = 0.0
        self._round = 0
        self._engine_seconds = 0.0
        self._began: float | None = None

    def stop(self) -> None:
        """End the search soon: kill running compiles and keep the verdicts so far. Safe in a signal handler."""
        self._stopping.set()
        self._inbox.put(None)

    def ask_whole(self) -> Ended:
        """Compile only the whole model, the first probe of every search. `run` can continue the search afterwards."""
        whole = self.universe.everything
        return self._run(lambda asks: [ask for ask in asks if ask.units == whole and not ask.attempt])

    def spend(self, calls: int, seconds: float = 0) -> None:
        """Add compiler calls that were made outside of this driver to its budget and statistics, and their seconds."""
        self._calls += calls
        self._seconds_outside += seconds

    def go_on(self, universe: Universe, probes: Probes, key: Callable[[UnitSet], str], other_form: OtherForm) -> None:
        """Search on with probes of another form; the answers so far stay."""
        self.universe, self.probes, self.key = universe, probes, key
        self.other_form = None if self.other_form is None else other_form
        self._keys.clear()

    @property
    def budget_left(self) -> Budget:
        """The calls and seconds that are left."""
        return self.budget.without(calls=self._calls, seconds=self._seconds)

    def run(self) -> Ended:
        """Search until no probe is left, the budget is used up, or `stop` is called."""
        return self._run(list)

    def _run(self, chosen: Callable[[Iterable[Ask]], list[Ask]]) -> Ended:
        if self._began is None:
            self._began = time.monotonic()
            # take the verdicts of earlier runs of the same search from the journal
            for asked in self.base.journal():
                if asked.attempt != self._attempts[asked.units]:
                    continue  # an earlier attempt was not stored; `_take_known` finds this one by its key later
                ask = Ask(units=asked.units, attempt=asked.attempt, why=asked.why)
                if asked.why not in (OWN_FILE, AS_PART) and asked.key != self._key(ask):
                    continue  # an earlier release cut another file here
                answer = self.base.get(asked.key, asked.attempt)
                if answer is not None:
                    self._record(ask, asked.key, answer, cached=True)
        try:
            while True:
                step = self._next_step()
                if self._stopping.is_set():
                    break
                if self._take_known(chosen(step.wanted)):
                    continue
                self._launch(chosen(step.asks))
                if not self._running:
                    break
                self._wait()
        finally:
            stopped = self._stopping.is_set()
            self._end_compiles()
        stats = Stats.of(
            self._records,
            calls=self._calls,
            rounds=self._round,
            engine_seconds=self._engine_seconds,
            wall_seconds=self._seconds,
        )
        return Ended(
            diagnosis=step.plan.diagnosis,
            records=tuple(self._records),
            answers=self._answers,
            stats=replace(stats, compile_seconds=stats.compile_seconds + self._seconds_outside),
            ending=Ending.CANCELLED if stopped else step.ending or Ending.FINISHED,
        )

    def _next_step(self) -> Step:
        left = self._seconds_left()
        known = SearchRecord(
            records=self._records,
            in_flight=frozenset((ask.units, ask.attempt) for running in self._running.values() for ask in running.asks),
            calls_left=None if self.budget.calls is None else self.budget.calls - self._calls,
            out_of_time=left is not None and left <= 0,
        )
        began = time.perf_counter()
        # whether the other form is another file than the user's is compared only once that file fails
        fails = any(it.verdict.failed for it in self._records if it.units == self.universe.everything)
        step = next_step(
            self.universe,
            known,
            self.planner,
            width=self.jobs,
            digests=self.digests,
            forms_differ=self.other_form is not None and fails and self.other_form.differs(),
        )
        self._engine_seconds += time.perf_counter() - began
        self.progress(plan_made(self.universe, step.plan.diagnosis, self._calls, step.plan.expected))
        return step

    def _take_known(self, asks: Iterable[Ask]) -> bool:
        """Record verdicts that the base has. Returns whether it had any; the plan is then out of date."""
        known = False
        for ask in asks:
            key = self._key(ask)
            if (key, ask.attempt) in self._running or ask.attempt != self._attempts[ask.units]:
                continue
            answer = self.base.get(key, ask.attempt)
            if answer is not None:
                self._record(ask, key, answer_about(answer, self.universe, ask.units), cached=True)
                known = True
        return known

    def _launch(self, asks: Iterable[Ask]) -> None:
        for ask in sorted(asks, key=lambda ask: ask.speculative):  # the sort is stable: best first in both groups
            if ask.attempt != self._attempts[ask.units]:
                continue
            question = (self._key(ask), ask.attempt)
            running = self._running.get(question)
            if running is not None:
                if all(ask.units != other.units for other in running.asks):
                    running.asks.append(ask)
                continue
            if len(self._running) >= self.jobs:
                continue
            self.progress(probe_started(ask))
            self._running[question] = _Running(asks=[ask], round=self._round + 1)
            self._calls += 1
            Thread(target=self._work, args=(question, ask), name=f"probe {self._calls}", daemon=True).start()

    def _seconds_left(self) -> float | None:
        if self.budget.seconds is None:
            return None
        return self.budget.seconds - self._seconds

    @property
    def _seconds(self) -> float:
        """Seconds since the search began; 0 before."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _work(self, question: tuple[str, int], ask: Ask) -> None:
        """Compile one probe, in a thread of its own, and send the result to the driver."""
        try:
            with self.compiles.joined():
                left = self._seconds_left()
                if ask.why == AS_PART and self.other_form is not None:
                    asked = self.other_form.ask(left)
                else:
                    asked = self.probes.ask(ask.units, left)
            done = _Done(question=question, asked=asked)
        except BaseException as error:  # `_take` raises it in the driver's thread
            done = _Done(question=question, asked=None, error=error)
        if self._stopping.is_set():  # the compile was killed: its outcome says nothing
            done = _Done(question=question, asked=None)
        self._inbox.put(done)

    def _wait(self) -> None:
        """Block until a compile ends or `stop` is called, then process all results that have arrived."""
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
        key, attempt = done.question
        self.base.put(key, attempt, answer)
        self._round = max(self._round, running.round)
        first, *others = running.asks
        self._record(first, key, answer, round_=running.round)
        for ask in others:
            self._record(ask, key, answer, cached=True)

    def _record(self, ask: Ask, key: str, answer: Answer, *, cached: bool = False, round_: int | None = None) -> None:
        self._attempts[ask.units] += 1
        if ask.why != AS_PART:
            self._answers[ask.units] = answer
        self.base.note(verdict_base.JournalEntry(units=ask.units, attempt=ask.attempt, key=key, why=ask.why))
        record = ProbeRecord(
            key=key,
            units=ask.units,
            verdict=answer.verdict,
            why=ask.why,
            round=self._round if round_ is None else round_,
            attempt=ask.attempt,
            cached=cached,
            file_sha256=answer.file_sha256,
        )
        self._records.append(record)
        self.progress(probe_answered(record))

    def _key(self, ask: Ask) -> str:
        """The key of the probe's structure; for a culprit's own file its digest, as only that very file counts."""
        if ask.why == OWN_FILE and self.digests is not None and (own := self.digests([ask.units]).get(ask.units)):
            return own
        if ask.why == AS_PART and self.other_form is not None:
            return self.other_form.key()
        key = self._keys.get(ask.units)
        if key is None:
            began = time.perf_counter()
            key = self._keys[ask.units] = self.key(ask.units)
            self._engine_seconds += time.perf_counter() - began
        return key

    def _end_compiles(self) -> None:
        """Kill compiles that still run after `stop` or after an error."""
        if not self._running:
            return
        self._stopping.set()
        give_up = time.monotonic() + _KILL_SECONDS
        while self._running and time.monotonic() < give_up:
            self.compiles.kill()  # again and again: a thread may only now be starting its compiler
            try:
                done = self._inbox.get(timeout=0.1)
            except Empty:
                continue
            if done is not None:
                self._running.pop(done.question, None)
