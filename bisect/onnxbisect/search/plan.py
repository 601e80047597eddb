"""The result of planning: the probes to compile, and the diagnosis so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.answer import Ask
from onnxbisect.diagnosis import Diagnosis
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Verdict

#: For each compiled probe its verdicts in order; more than one only if it was compiled again in a new process.
Verdicts = Mapping[UnitSet, Sequence[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The useful probes now, best first; empty when the search is done.

    `diagnosis` is the final one if `asks` is empty, else the one that a search whose budget ended here would report.
    `expected` is the probable number of further calls.
    """

    asks: tuple[Ask, ...]
    diagnosis: Diagnosis
    expected: float
