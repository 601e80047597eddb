"""The search for nodes that must stay precise, in one arithmetic: asks, records, and describes what was found."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import cast

import onnx

from onnx_bisect.precision_record import MeasurementBudget, Record
from onnx_bisect.precision_subject import PrecisionSubject
from onnxbisect.errors import OptionError
from onnxbisect.language import count, english
from onnxbisect.model.modules import path_of_node
from onnxbisect.precision.metric import broken
from onnxbisect.precision.plan import KeptSet, MinimalSet, PrecisionEnding, Space, Why, next_asks, plan, so_far
from onnxbisect.precision.reasons import reason
from onnxbisect.precision.report import Asked, Member
from onnxbisect.precision.wanted import Low
from onnxbisect.report.text import clip
from onnxbisect.unitset import UnitSet, members, of, size
from onnxbisect_backends.precision.arithmetic import Arithmetic, Ran, WideArithmetic
from onnxbisect_backends.precision.scoring import Scorer
from onnxbisect_backends.sandbox.process import kill_running

#: Behind the name of an arithmetic that is asked about results of 16 bits, and behind those of the nodes then.
SIXTEEN = ", 16 bits"

#: Called with a line about each measurement.
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """A value of the metric, infinitely bad where there is none, and then perhaps the reason; and the model's path."""

    value: float
    problem: str
    place: Path


@dataclass(frozen=True, kw_only=True)
class WideSet:
    """Members of a set for which 16 bits do, and the metric then; the model's path, if it was measured now."""

    units: UnitSet
    value: float
    shown: str
    place: Path | None


class PrecisionSearch:
    """Asks one arithmetic until the search has its result, and keeps what was measured.

    With several `jobs` what may be asked next is measured ahead (`next_asks`). What is found is the same.
    """

    def __init__(
        self,
        subject: PrecisionSubject,
        on: str,
        arithmetic: Arithmetic,
        scorer: Scorer,
        record: Record,
        tell: Tell,
        jobs: int = 1,
    ) -> None:
        self.on = on
        self._subject, self._arithmetic, self._scorer = subject, arithmetic, scorer
        self._record, self._tell, self._jobs = record, tell, jobs
        #: The nodes that the target merges into those that read them.
        self.merged: frozenset[str] = frozenset()
        self._scores: dict[UnitSet, float] = {}
        self._number: dict[UnitSet, int] = {}
        #: What did not run, and why.
        self._mute: dict[UnitSet, str] = {}
        self._files: dict[UnitSet, Path] = {}
        self._pool = ThreadPoolExecutor(jobs)
        self._running: dict[UnitSet, tuple[Why, Future[_Measured]]] = {}
        #: Measured in this search, of which some are not asked for yet.
        self._values: dict[UnitSet, float] = {}

    def ends(self, space: Space, budget: MeasurementBudget) -> bool:
        """Measure everything high and everything low; whether a set is to be found between them.

        Raises OptionError if full precision misses.
        """
        while isinstance(step := plan(space, self._scores, self._subject.want.at_least), KeptSet):
            if step.why not in (Why.FULL, Why.LOW):
                return True
            self._ask(step, space, budget)
        return self._reached(step, space).ending is not PrecisionEnding.NOTHING

    def search(self, space: Space, budget: MeasurementBudget) -> MinimalSet:
        """Measure until nothing is open, or the budget is spent. Raises OptionError if full precision misses."""
        while isinstance(step := plan(space, self._scores, self._subject.want.at_least), KeptSet):
            if not self._ask(step, space, budget):
                break
        else:
            return self._reached(step, space)
        # The best set of the record, which may have some that this search did not come to.
        place = {node.name: unit for unit, node in enumerate(self._subject.nodes)}
        values = {
            of(place[name] for name in names): value
            for (on, names), value in self._record.values.items()
            if on == self.on and names <= place.keys()
        }
        want = self._subject.want
        known = {keep: want.score(value) for keep, value in values.items()} | self._scores
        found = so_far(space, known, want.at_least)
        for keep, why in [
            (found.keep, Why.UNITS),
            *((found.keep & ~(1 << unit), Why.NECESSARY) for unit in found.without),
        ]:
            if keep not in self._scores:
                self._record.resumed += keep not in self._values
                self._noted(KeptSet(keep=keep, why=why), values[keep])
        return found

    def wide(self, found: MinimalSet, budget: MeasurementBudget) -> WideSet | None:
        """The members for which results of 16 bits do instead of high precision: all of them, or as many as can be.

        None where there are none, the arithmetic has no such results, or the budget is spent.
        """
        if not isinstance(self._arithmetic, WideArithmetic) or self._subject.low is not Low.INT8:
            return None
        best: WideSet | None = None
        dearest_first = sorted(members(found.keep), key=lambda unit: -self._subject.share(1 << unit))
        for units in (found.keep, *(1 << unit for unit in dearest_first)):
            tried = units | (best.units if best else 0)
            if best and best.units == found.keep:
                break
            if tried == found.keep != units:
                continue
            if (wide := self._wide(found.keep & ~tried, tried, budget)) is None:
                break
            if self._subject.want.score(wide.value) >= self._subject.want.at_least:
                best = wide
        return best

    def close(self) -> None:
        """Wait for what is measured ahead, and record it, too."""
        self._pool.shutdown(cancel_futures=True)
        for keep, (why, future) in self._running.items():
            if not future.cancelled() and future.exception() is None:
                self._keep(self.on, self._subject.names(keep), future.result(), self._subject.share(keep), why)

    def _wide(self, keep: UnitSet, wide: UnitSet, budget: MeasurementBudget) -> WideSet | None:
        """The metric with these results in 16 bits; None if the budget does not allow that."""
        subject, on = self._subject, self.on + SIXTEEN
        names = subject.names(keep) | {f"{name}{SIXTEEN}" for name in subject.names(wide)}
        place, problem = None, self._record.silent.get((on, names), "")
        if (on, names) in self._record.values:
            self._record.resumed += 1
            value = self._record.values[on, names]
        elif problem:
            value = self._nothing
        elif budget.spent:
            return None
        else:
            budget.take()
            arithmetic = cast(WideArithmetic, self._arithmetic)
            measured = self._scored(*arithmetic.run_wide(subject.names(keep), subject.names(wide)))
            value, problem, place = measured.value, measured.problem, measured.place
            self._keep(on, names, measured, subject.share(keep), Why.WIDE)
        shown = english("no numbers") if problem else subject.want.shown(value)
        self._asked(keep, value, shown, Why.WIDE, on)
        return WideSet(units=wide, value=value, shown=shown, place=place)

    def wide_file(self, found: MinimalSet, it: WideSet) -> Path:
        """The model with the other members high, these results in 16 bits, and all else in 8."""
        place = it.place
        if place is None:
            names = self._subject.names
            place = cast(WideArithmetic, self._arithmetic).run_wide(names(found.keep & ~it.units), names(it.units))[1]
        return place.with_suffix(".onnx")

    def _ask(self, step: KeptSet, space: Space, budget: MeasurementBudget) -> bool:
        """Take the value from the record or measure it; False if the budget does not allow that."""
        asked = self.on, self._subject.names(step.keep)
        if asked in self._record.values and step.keep not in self._values:
            self._record.resumed += 1
            self._noted(step, self._record.values[asked])
            return True
        if asked in self._record.silent and step.keep not in self._values:
            self._values[step.keep], self._mute[step.keep] = self._nothing, self._record.silent[asked]
        while step.keep not in self._values:
            # measure what is asked for, and on idle workers what may be asked next
            want = self._subject.want
            known = self._scores | {keep: want.score(value) for keep, value in self._values.items()}
            open_asks = next_asks(space, known, want.at_least, self._jobs)
            for ask in [step] if isinstance(open_asks, MinimalSet) else [step, *open_asks]:
                asked = self.on, self._subject.names(ask.keep)
                recorded = asked in self._record.values or asked in self._record.silent
                if len(self._running) < self._jobs and not (ask.keep in self._running or recorded or budget.spent):
                    budget.take()
                    self._running[ask.keep] = ask.why, self._pool.submit(self._measured, ask.keep)
            if not self._running:
                if step.why in (Why.FULL, Why.LOW):
                    raise OptionError(english("The budget ended before anything could be measured; give more."))
                return False
            self._collect()
        if step.why is Why.FULL and step.keep in self._mute:
            raise OptionError(
                english("The model does not run in full precision: {reason}.", reason=self._mute[step.keep])
            )
        self._noted(step, self._values[step.keep])
        return True

    def _collect(self) -> None:
        """Wait until a measurement ends, and keep what has ended."""
        want = self._subject.want
        try:
            ended, _ = wait([future for _, future in self._running.values()], return_when=FIRST_COMPLETED)
        except BaseException:
            kill_running()  # the threads would go on until their compilers end
            raise
        for keep in [keep for keep, (_, future) in self._running.items() if future in ended]:
            why, future = self._running.pop(keep)
            measured = future.result()
            self._values[keep] = measured.value
            if measured.problem:
                self._mute[keep] = measured.problem
            self._keep(self.on, self._subject.names(keep), measured, self._subject.share(keep), why)
            if want.score(measured.value) < want.at_least:
                measured.place.with_suffix(".onnx").unlink(missing_ok=True)
                continue
            for path in self._files.values():
                path.with_suffix(".onnx").unlink(missing_ok=True)
            self._files = {keep: measured.place}

    def _keep(self, on: str, names: frozenset[str], it: _Measured, work: float, why: Why) -> None:
        """Record a measurement, or for this process alone that it gave no numbers."""
        if it.problem:
            self._record.silent[on, names] = it.problem
        else:
            self._record.add(on, names, it.value, work=work, shown=self._subject.want.shown(it.value), why=why)

    @property
    def _nothing(self) -> float:
        """The value of what gave no numbers: infinitely bad."""
        return -self._subject.want.score(inf)

    def _reached(self, step: MinimalSet, space: Space) -> MinimalSet:
        """The result; raises OptionError if full precision misses."""
        want = self._subject.want
        if step.ending is PrecisionEnding.MISSED:
            raise OptionError(
                english(
                    "Full precision itself has {metric} {seen} on {backend}, and {what} is wanted; give another "
                    "threshold.",
                    backend=self.on,
                    metric=clip(want.metric, 100),
                    seen=want.shown(self.value(space.everything)),
                    what=want.words,
                )
            )
        return step

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about measurements that came to nothing."""
        asked = Counter(said for keep, said in self._mute.items() if keep in self._number)
        return tuple(
            english("{units} gave no numbers: {reason}.", units=count(times, "ask"), reason=said)
            for said, times in asked.items()
        )

    def value(self, keep: UnitSet) -> float:
        """The metric with these nodes kept; infinitely bad where there is none."""
        want = self._subject.want
        return want.score(self._scores[keep]) if keep in self._scores else self._nothing

    def shown(self, keep: UnitSet) -> str:
        """The metric with these nodes kept, for people; what did not run is told from what gave NaN."""
        return english("no numbers") if keep in self._mute else self._subject.want.shown(self.value(keep))

    def members(self, found: MinimalSet) -> tuple[Member, ...]:
        """What is known of each node that has to stay."""
        subject, known = self._subject, []
        for unit in members(found.keep):
            node, rest = subject.nodes[unit], found.keep & ~(1 << unit)
            without = subject.want.score(found.without[unit]) if unit in found.without else None
            known.append(
                Member(
                    node=node.name,
                    op=node.op_type,
                    module="/".join(path_of_node(node)),
                    without=None if without is None else finite(without),
                    shown="" if without is None else self.shown(rest),
                    asked=None if without is None else self._number[rest],
                    reason=reason(self._as_merged(node), subject.low, subject.measured.seen, subject.measured.weights),
                    work=subject.share(1 << unit),
                )
            )
        return tuple(known)

    def model_file(self, keep: UnitSet) -> Path | None:
        """The model with these nodes high and all others low; None if it cannot be made."""
        if keep not in self._files:
            self._files[keep] = self._arithmetic.run(self._subject.names(keep))[1]
        file = self._files[keep].with_suffix(".onnx")
        return file if file.is_file() else None

    def _measured(self, keep: UnitSet) -> _Measured:
        """Measure, in a thread of its own."""
        return self._scored(*self._arithmetic.run(self._subject.names(keep)))

    def _scored(self, ran: Ran, place: Path) -> _Measured:
        reference = self._subject.measured.reference
        if ran.problem:
            return _Measured(value=self._nothing, problem=clip(ran.problem, 300), place=place)
        bad = broken(reference, ran.outputs)
        value = self._nothing if bad else self._scorer.value(reference, ran.outputs, place)
        return _Measured(value=value, problem="", place=place)

    def _noted(self, ask: KeptSet, value: float) -> Asked:
        self._scores[ask.keep] = self._subject.want.score(value)
        asked = self._asked(ask.keep, value, self.shown(ask.keep), ask.why, self.on)
        self._number[ask.keep] = asked.number
        return asked

    def _asked(self, keep: UnitSet, value: float, shown: str, why: Why, on: str) -> Asked:
        """Number one measurement, and tell the user about it."""
        number, kept = len(self._record.asked) + 1, size(keep)
        work = self._subject.share(keep)
        asked = Asked(number=number, on=on, kept=kept, work=work, value=finite(value), shown=shown, why=why)
        self._record.asked.append(asked)
        self._tell(f"{number}  {count(kept, 'node')} kept: {shown} ({why}, {on})")
        return asked

    def _as_merged(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """The node as the target computes it: it reads what the nodes read that are merged into it."""
        maker = {name: it for it in self._subject.nodes if it.name in self.merged for name in it.output}
        read: dict[str, None] = {}
        rest = list(reversed(node.input))
        while rest:
            name = rest.pop()
            if name in read:
                continue
            read[name] = None
            rest += reversed(maker[name].input) if name in maker else ()
        own = onnx.NodeProto()
        own.CopyFrom(node)
        del own.input[:]
        own.input.extend(name for name in read if name not in maker)
        return own


def finite(value: float) -> float | None:
    """The value, or None where JSON has no number for it."""
    return value if isfinite(value) else None
