"""The results of the search for causes, as values."""

from dataclasses import dataclass

from onnxbisect.causes.condition import Condition
from onnxbisect.causes.features import Row
from onnxbisect.causes.terms import CauseState
from onnxbisect.unitset import UnitSet


@dataclass(frozen=True, kw_only=True)
class AskedNeighbour:
    """The result of compiling a culprit with one thing changed (`onnxbisect.neighbours`).

    `culprit` is its index in `Diagnosis.culprits`, `text` describes the change and the result, `row` holds the
    features.
    """

    culprit: int
    text: str
    row: Row
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Units that passed although they meet all conditions of a cause except `condition`; `passes` describes them.

    `units` is empty where the evidence is a changed culprit.
    """

    condition: Condition
    passes: str
    units: UnitSet


@dataclass(frozen=True, kw_only=True)
class RefusalConditions:
    """Conditions that some culprits meet and no passing unit meets.

    `culprits` are indices into `Diagnosis.culprits`; each culprit has one cause. `refused` are the units of confirmed
    culprits that meet all `conditions`, `unknown` those that meet them and neither belong to such a culprit nor passed.
    An unexplained cause has no conditions; its culprits are only alike. `established` tells that one of the culprits is
    confirmed, and that what passed differs from it in the condition and not also in what is beside it; otherwise the
    cause is in doubt. Without a confirmed culprit `refused` holds the units of the others. `in_company`: what passed
    did so only beside other ops than those beside the culprits, and they may be what matters. `fits_too` are
    alternative conditions that separate the same culprits from the passing units equally well.
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
    in_company: bool = False

    @property
    def telling(self) -> bool:
        """Whether the cause says more than which ops are refused."""
        return self.state in (CauseState.CONFIRMED, CauseState.OBSERVED) and not self.in_company
