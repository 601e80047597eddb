"""What the planner answers with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.diagnosis import Diagnosis
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Verdict

#: What is known so far: for each probe asked, its verdicts in the order of asking (more than one only where a
#: question was asked again in a fresh process).
Verdicts = Mapping[UnitSet, Sequence[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question worth asking: compile these units together. `attempt` counts earlier answers to the same one.

    `why` is a phrase for the progress line, such as "the whole model" or "Erf alone". `speculative` questions are
    worth asking only by a worker that would idle: an answer still outstanding may make them pointless.
    """

    units: UnitSet
    attempt: int
    why: str
    speculative: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The questions worth asking now, best first; none when the search is done.

    `diagnosis` is always there: the final one when `asks` is empty, else what is known so far, as if the budget
    ended here. `expected` is how many more calls the search will probably need.
    """

    asks: tuple[Ask, ...]
    diagnosis: Diagnosis
    expected: float
