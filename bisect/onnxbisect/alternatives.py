"""Compile the culprits of a diagnosis with other compiler options, and then the whole model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.answer import Ask, Verdicts
from onnxbisect.diagnosis import CertificateStatus, Diagnosis, DiagnosisProof
from onnxbisect.language import shortened
from onnxbisect.search.planner import Plan
from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status, Verdict


@dataclass(frozen=True, kw_only=True)
class CulpritsThenWhole:
    """A planner (`onnxbisect.session.Planner`) for the culprits' files and, if all of them pass, the whole model.

    `called` describes the options for people.
    """

    culprits: Sequence[UnitSet]
    called: str

    def __call__(self, universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        """Plan the compiles that are left."""
        whole = universe.everything
        open_ = [units for units in dict.fromkeys(self.culprits) if units not in verdicts]
        taken = all(verdicts[units][-1].passed for units in self.culprits if units in verdicts)
        if not open_ and taken and whole not in verdicts:
            open_ = [whole]
        asks = []
        for units in open_:
            ops = [universe.op[unit] for unit in members(units)]
            what = "the whole model" if units == whole else shortened(ops, 3, " + ")
            asks.append(Ask(units=units, attempt=0, why=f"{what} with {self.called}"))
        asked = verdicts.get(whole)
        diagnosis = Diagnosis(  # only of whether the model compiles
            verdict=asked[-1].status if asked else Status.UNRESOLVED,
            culprits=(),
            needs_context=(),
            certificate=DiagnosisProof(status=CertificateStatus.BOUNDED),
            remainder=whole,
        )
        return Plan(asks=tuple(asks), diagnosis=diagnosis, expected=len(asks))

    def answers(self, universe: Universe, verdicts: Mapping[UnitSet, Verdict]) -> tuple[Verdict | None, ...]:
        """The verdicts on the culprits, in their order, and the verdict on the whole model."""
        return (*(verdicts.get(units) for units in self.culprits), verdicts.get(universe.everything))
