"""The result of planning: questions to ask, and the diagnosis so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.answer import Ask
from onnxbisect.diagnosis import Diagnosis
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Verdict

#: What is known so far: for each probe asked, its verdicts in the order of asking (more than one only where a
#: question was asked again in a fresh process).
Verdicts = Mapping[UnitSet, Sequence[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The questions worth asking now, best first; none when the search is done.

    `diagnosis` is always there: the final one when `asks` is empty, else what is known so far, as if the budget
    ended here. `expected` is how many more calls the search will probably need.
    """

    asks: tuple[Ask, ...]
    diagnosis: Diagnosis
    expected: float
