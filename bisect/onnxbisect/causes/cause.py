"""What the search for causes concludes: values only."""

from dataclasses import dataclass

from onnxbisect.causes.condition import Condition
from onnxbisect.causes.features import Row
from onnxbisect.causes.terms import CauseState
from onnxbisect.unitset import UnitSet


@dataclass(frozen=True, kw_only=True)
class AskedNeighbour:
    """What was answered about a culprit with one thing changed (`onnxbisect.neighbours`).

    `culprit` is its place in `Diagnosis.culprits`, `text` says what became of it, `row` has its features.
    """

    culprit: int
    text: str
    row: Row
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Units that passed and that meet all conditions of a cause but `condition`; `passes` says what they are.

    There are no units where a neighbour of a culprit was asked.
    """

    condition: Condition
    passes: str
    units: UnitSet


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What some culprits have in common and nothing that passed has.

    `culprits` are places in `Diagnosis.culprits`; each is explained by one cause. `conditions` all hold for the units
    of `refused`, which belong to confirmed culprits, and for those of `unknown`, which neither do nor passed; there are
    none in an unexplained cause, whose culprits are merely alike. `established` is whether one of the culprits is
    confirmed: where none is, the cause is as doubtful as they are, and `refused` has their units. `fits_too` are other
    conditions that tell the same culprits from what passed: the record does not decide between them.
    """

    state: CauseState
    text: str
    culprits: tuple[int, ...]
    established: bool
    conditions: tuple[Condition, ...] = ()
    refused: UnitSet = 0
    unknown: UnitSet = 0
    contrast: tuple[Contrast, ...] = ()
    fits_too: tuple[str, ...] = ()

    @property
    def telling(self) -> bool:
        """Whether it says more than which ops are refused."""
        return self.state in (CauseState.CONFIRMED, CauseState.OBSERVED)
