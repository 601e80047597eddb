"""The search for nodes that must stay precise, in one arithmetic: asks, records, and describes what was found."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import onnx

from onnxbisect.errors import OptionError
from onnxbisect.language import english
from onnxbisect.model.model import Model
from onnxbisect.model.modules import path_of_node
from onnxbisect.precision.low import can_be_low, suspicion
from onnxbisect.precision.metric import broken
from onnxbisect.precision.plan import KeptSet, MinimalSet, PrecisionEnding, Space, Why, plan, so_far
from onnxbisect.precision.reasons import reason
from onnxbisect.precision.report import Asked, Member
from onnxbisect.precision.wanted import Low, Wanted
from onnxbisect.report.files import put
from onnxbisect.report.text import clip, plural
from onnxbisect.split.choose import total, work_of
from onnxbisect.unitset import UnitSet, members, of, size
from onnxbisect_backends.precision.arithmetic import Ran, ReferenceRun
from onnxbisect_backends.precision.scoring import Scorer

#: The file of a folder's measurements.
RECORD = "asks.jsonl"

#: Called with a line about each measurement.
Tell = Callable[[str], None]


class Arithmetic(Protocol):
    """Runs the model with all nodes low but some."""

    def run(self, keep: Iterable[str]) -> tuple[Ran, Path]:
        """The outputs, and the path without ending of the model and of the folder of its outputs."""


class PrecisionSubject:
    """The model of a search, in full precision, and what is wanted of it."""

    def __init__(self, model: Model, measured: ReferenceRun, low: Low, want: Wanted) -> None:
        self.model, self.measured, self.low, self.want = model, measured, low, want
        self.nodes = [model.proto.graph.node[unit.node] for unit in model.units]
        self.work = work_of(model)

    @property
    def space(self) -> Space:
        """The nodes that can be low, the most suspect first, in groups of one variant."""
        units = [unit for unit, node in enumerate(self.nodes) if can_be_low(node, self.low, self.measured.seen)]
        variants: dict[int, list[int]] = {}
        for unit in units:
            variants.setdefault(self.model.universe.variant[unit], []).append(unit)
        return Space(
            order=self.by_suspicion(units),
            groups=(tuple(of(group) for group in variants.values()),),
        )

    def by_suspicion(self, units: Iterable[int]) -> tuple[int, ...]:
        """These nodes, the most suspect first."""
        seen, weights = self.measured.seen, self.measured.weights
        doubt = {unit: suspicion(self.nodes[unit], self.low, seen, weights) for unit in units}
        return tuple(sorted(doubt, key=lambda unit: (-doubt[unit], unit)))

    def names(self, units: UnitSet) -> frozenset[str]:
        """The names of these nodes."""
        return frozenset(self.nodes[unit].name for unit in members(units))

    def share(self, units: UnitSet) -> float:
        """The share of the model's work that these nodes do."""
        return total(self.work, units) / total(self.work, self.model.universe.everything) if units else 0.0


class MeasurementBudget:
    """Measurements and seconds that several searches share."""

    def __init__(self, calls: int | None, seconds: float | None, began: float) -> None:
        self._calls = inf if calls is None else calls
        self._deadline = inf if seconds is None else began + seconds

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self._calls <= 0 or time.monotonic() >= self._deadline

    def take(self) -> None:
        """Take one measurement."""
        self._calls -= 1


class Record:
    """The measurements of all arithmetics in order.

    `values` are those that are known, of the same question: `resumed` counts the ones that were taken from there.
    """

    def __init__(self, values: Mapping[tuple[str, frozenset[str]], float] = MappingProxyType({})) -> None:
        self.asked, self.resumed = list[Asked](), 0
        self.values = dict(values)

    def add(self, asked: Asked, keep: frozenset[str], value: float) -> None:
        """Record one measurement, of which `asked` has what people see."""
        self.values[asked.on, keep] = value


class FolderRecord(Record):
    """A record with a file, from which a later search of the same question continues."""

    def __init__(self, folder: Path, identity: object) -> None:
        super().__init__()
        self._file = folder / RECORD
        head = json.dumps({"question": identity})
        folder.mkdir(parents=True, exist_ok=True)
        lines = self._file.read_text().splitlines() if self._file.is_file() else []
        if lines[:1] == [head]:
            for line in lines[1:]:
                try:
                    entry = json.loads(line)
                    self.values[entry["on"], frozenset(entry["keep"])] = float(entry["value"])
                except (ValueError, KeyError, TypeError):
                    break  # a process was killed while it wrote
            kept = [_line(on, keep, value) for (on, keep), value in self.values.items()]
            put(self._file, "\n".join([head, *kept, ""]).encode())
        else:
            put(self._file, f"{head}\n".encode())

    def add(self, asked: Asked, keep: frozenset[str], value: float) -> None:
        super().add(asked, keep, value)
        with self._file.open("a") as stream:
            stream.write(_line(asked.on, keep, value) + "\n")


def _line(on: str, keep: frozenset[str], value: float) -> str:
    return json.dumps({"on": on, "keep": sorted(keep), "value": value})


class PrecisionSearch:
    """Asks one arithmetic until the search has its result, and keeps what was measured."""

    def __init__(
        self, subject: PrecisionSubject, on: str, arithmetic: Arithmetic, scorer: Scorer, record: Record, tell: Tell
    ) -> None:
        self.on = on
        self._subject, self._arithmetic, self._scorer = subject, arithmetic, scorer
        self._record, self._tell = record, tell
        #: The nodes that the target merges into those that read them.
        self.merged: frozenset[str] = frozenset()
        self._scores: dict[UnitSet, float] = {}
        self._number: dict[UnitSet, int] = {}
        self._problems: dict[str, int] = {}
        self._mute: set[UnitSet] = set()
        self._files: dict[UnitSet, Path] = {}

    def ends(self, space: Space, budget: MeasurementBudget) -> bool:
        """Measure everything high and everything low; whether a set is to be found between them.

        Raises OptionError if full precision misses.
        """
        while isinstance(step := plan(space, self._scores, self._subject.want.at_least), KeptSet):
            if step.why not in (Why.FULL, Why.LOW):
                return True
            self._ask(step, budget)
        return self._reached(step, space).ending is not PrecisionEnding.NOTHING

    def search(self, space: Space, budget: MeasurementBudget) -> MinimalSet:
        """Measure until nothing is open, or the budget is spent. Raises OptionError if full precision misses."""
        while isinstance(step := plan(space, self._scores, self._subject.want.at_least), KeptSet):
            if not self._ask(step, budget):
                return so_far(space, self._scores, self._subject.want.at_least)
        return self._reached(step, space)

    def _ask(self, step: KeptSet, budget: MeasurementBudget) -> bool:
        """Take the value from the record or measure it; False if the budget does not allow that."""
        names = self._subject.names(step.keep)
        if (self.on, names) in self._record.values:
            self._record.resumed += 1
            value = self._record.values[self.on, names]
        elif budget.spent:
            if step.why in (Why.FULL, Why.LOW):
                raise OptionError(english("The budget ended before anything could be measured; give more."))
            return False
        else:
            budget.take()
            value = self._measure(step)
            asked = self._noted(step, value)
            if step.keep not in self._mute:  # what did not run is asked again another time
                self._record.add(asked, names, value)
            return True
        self._noted(step, value)
        return True

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
        return tuple(
            english("{units} gave no numbers: {reason}.", units=plural(count, "ask"), reason=said)
            for said, count in self._problems.items()
        )

    def value(self, keep: UnitSet) -> float:
        """The metric with these nodes kept; infinitely bad where there is none."""
        want = self._subject.want
        return want.score(self._scores[keep]) if keep in self._scores else -want.score(inf)

    def shown(self, keep: UnitSet) -> str:
        """The metric with these nodes kept, for people; what did not run is told from what gave NaN."""
        return english("no numbers") if keep in self._mute else self._subject.want.shown(self.value(keep))

    def members(self, found: MinimalSet) -> tuple[Member, ...]:
        """What is known of each node that has to stay."""
        return tuple(self._member(unit, found) for unit in members(found.keep))

    def model_file(self, keep: UnitSet) -> Path | None:
        """The model with these nodes high and all others low; None if it cannot be made."""
        if keep not in self._files:
            self._files[keep] = self._arithmetic.run(self._subject.names(keep))[1]
        file = self._files[keep].with_suffix(".onnx")
        return file if file.is_file() else None

    def _measure(self, ask: KeptSet) -> float:
        """The value of the metric, infinitely bad where there is none."""
        want = self._subject.want
        ran, place = self._arithmetic.run(self._subject.names(ask.keep))
        if ran.problem:
            said = clip(ran.problem, 300)
            if ask.why is Why.FULL:
                raise OptionError(english("The model does not run in full precision: {reason}.", reason=said))
            self._problems[said] = self._problems.get(said, 0) + 1
            self._mute.add(ask.keep)
            return -want.score(inf)
        reference = self._subject.measured.reference
        if broken(reference, ran.outputs):
            return -want.score(inf)
        value = self._scorer.value(reference, ran.outputs, place)
        if want.score(value) >= want.at_least:
            for path in self._files.values():
                path.with_suffix(".onnx").unlink(missing_ok=True)
            self._files = {ask.keep: place}
        else:
            place.with_suffix(".onnx").unlink(missing_ok=True)
        return value

    def _noted(self, ask: KeptSet, value: float) -> Asked:
        want = self._subject.want
        self._scores[ask.keep] = want.score(value)
        number = self._number[ask.keep] = len(self._record.asked) + 1
        shown, kept = self.shown(ask.keep), size(ask.keep)
        asked = Asked(
            number=number,
            on=self.on,
            kept=kept,
            work=self._subject.share(ask.keep),
            value=finite(value),
            shown=shown,
            why=ask.why,
        )
        self._record.asked.append(asked)
        self._tell(f"{number}  {plural(kept, 'node')} kept: {shown} ({ask.why}, {self.on})")
        return asked

    def _member(self, unit: int, found: MinimalSet) -> Member:
        subject, want = self._subject, self._subject.want
        node = subject.nodes[unit]
        without = want.score(found.without[unit]) if unit in found.without else None
        return Member(
            node=node.name,
            op=node.op_type,
            module="/".join(path_of_node(node)),
            without=None if without is None else finite(without),
            shown="" if without is None else self.shown(found.keep & ~(1 << unit)),
            asked=None if without is None else self._number[found.keep & ~(1 << unit)],
            reason=reason(self._as_merged(node), subject.low, subject.measured.seen, subject.measured.weights),
            work=subject.share(1 << unit),
        )

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
