"""Limits of what a compiler takes at a time: inputs, outputs, unconnected pieces, live tensors, bytes of weights.

Such a limit says nothing of an op. A search that joins ops from all over the model meets it at once, and takes each
set of ops that exceeds it for an interaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from onnxbisect.language import english
from onnxbisect.search.pattern import components
from onnxbisect.unitset import UnitSet, members, size, union
from onnxbisect.universe import Universe, remembered

#: In a model of fewer units most pairs may fail for what they are. No limit is said of it: all that fails is listed.
FEWEST_UNITS = 7


class Measure(StrEnum):
    """What of a probe may be limited."""

    INPUTS = "inputs"
    OUTPUTS = "outputs"
    BOTH = "inputs and outputs"
    PIECES = "unconnected pieces"
    LIVE = "live tensors"
    WEIGHTS = "bytes of weights"


@dataclass(frozen=True)
class CutLimit:
    """A compiler that takes at most so many (`most`) of what `measure` counts.

    `refused` is the least that failed for it; what lies between was not asked.
    """

    measure: Measure
    most: int
    refused: int

    def exceeded(self, universe: Universe, units: UnitSet) -> bool:
        """Whether a probe has more."""
        return amount(universe, self.measure, units) > self.most

    @property
    def words(self) -> str:
        """What the compiler takes."""
        most = str(self.most) if self.refused == self.most + 1 else f"{self.most} to {self.refused - 1}"
        match self.measure:
            case Measure.INPUTS:
                return english("at most {most} inputs", most=most)
            case Measure.OUTPUTS:
                return english("at most {most} outputs", most=most)
            case Measure.BOTH:
                return english("at most {most} inputs and outputs", most=most)
            case Measure.PIECES:
                return english("at most {most} unconnected pieces", most=most)
            case Measure.LIVE:
                return english("at most {most} tensors that live together", most=most)
            case Measure.WEIGHTS:
                most, refused = (f"{it / 1e6:.4g}" for it in (self.most, self.refused))
                return english("at most {most} to {refused} MB of weights", most=most, refused=refused)


def sentence(limits: Sequence[CutLimit]) -> str:
    """What a compiler takes whose answers fit each of these limits."""
    return english("the compiler takes {bound} at a time", bound=" or ".join(it.words for it in limits))


@remembered(4096)
def amount(universe: Universe, measure: Measure, units: UnitSet) -> int:
    """How much of it a probe has.

    A unit counts as one output if anything outside reads it or nothing does, and as one input of the model if it reads
    no unit: the search knows units, and not their tensors.
    """
    match measure:
        case Measure.INPUTS:
            return _inputs(universe, units)
        case Measure.OUTPUTS:
            return _outputs(universe, units)
        case Measure.BOTH:
            return _inputs(universe, units) + _outputs(universe, units)
        case Measure.PIECES:
            return len(components(universe, units))
        case Measure.LIVE:
            order = list(members(units))
            read_last: dict[int, int] = {unit: unit for unit in order}
            for unit in order:
                for producer in members(universe.predecessors[unit]):
                    read_last[producer] = unit
            changes: dict[int, int] = {}
            for producer, last in read_last.items():
                changes[producer] = changes.get(producer, 0) + 1
                changes[last + 1] = changes.get(last + 1, 0) - 1
            live = most = 0
            for place in sorted(changes):
                live += changes[place]
                most = max(most, live)
            return most
        case Measure.WEIGHTS:
            return sum(universe.weights[unit] for unit in members(units)) if universe.weights else 0


def _inputs(universe: Universe, units: UnitSet) -> int:
    read = union(universe.predecessors[unit] for unit in members(units)) & ~units
    return size(read) + sum(not universe.predecessors[unit] for unit in members(units))


def _outputs(universe: Universe, units: UnitSet) -> int:
    after = (universe.successors[unit] for unit in members(units))
    return sum(not readers or bool(readers & ~units) for readers in after)
