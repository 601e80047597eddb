"""What a compiler with other options says of the culprits of a diagnosis, and in which order it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.answer import Ask
from onnxbisect.diagnosis import Certificate, CertificateStatus, Diagnosis
from onnxbisect.search.plan import Plan, Verdicts
from onnxbisect.unitset import UnitSet, members, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status, Verdict


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """The compiler with `options` changed, asked about what it refused without that change.

    `culprits` are its verdicts on the files of the culprits, in the order of the diagnosis. `whole` is that on the
    whole model, which is asked about only where no culprit is refused. None stands for what was not asked. `problem` is
    a sentence where nothing could be asked. `calls` were made of the compiler, and `cached` answers were known before.
    """

    options: Mapping[str, str]
    tool: str = ""
    version: str = ""
    culprits: tuple[Verdict | None, ...] = ()
    whole: Verdict | None = None
    problem: str = ""
    calls: int = 0
    cached: int = 0

    @property
    def compiles(self) -> bool:
        """Whether it takes the whole model."""
        return self.whole is not None and self.whole.passed


@dataclass(frozen=True, kw_only=True)
class CulpritsThenWhole:
    """A planner (`onnxbisect.session.Planner`) that asks about the files of culprits, and about the whole model where
    all of them pass. `called` says with which options, for people.
    """

    culprits: Sequence[UnitSet]
    called: str

    def __call__(self, universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        """What is left to ask."""
        whole = universe.everything
        open_ = [units for units in dict.fromkeys(self.culprits) if units not in verdicts]
        taken = all(verdicts[units][-1].passed for units in self.culprits if units in verdicts)
        if not open_ and taken and whole not in verdicts:
            open_ = [whole]
        asks = [Ask(units=units, attempt=0, why=self._why(universe, units)) for units in open_]
        return Plan(asks=tuple(asks), diagnosis=_undiagnosed(verdicts, whole), expected=len(asks))

    def answers(self, universe: Universe, verdicts: Mapping[UnitSet, Verdict]) -> tuple[Verdict | None, ...]:
        """The verdicts on the culprits, in their order, and that on the whole model."""
        return (*(verdicts.get(units) for units in self.culprits), verdicts.get(universe.everything))

    def _why(self, universe: Universe, units: UnitSet) -> str:
        if units == universe.everything:
            what = "the whole model"
        else:
            ops = [universe.op[unit] for unit in members(units)]
            what = " + ".join(ops[:3]) + (f" and {size(units) - 3} more" if len(ops) > 3 else "")
        return f"{what} with {self.called}"


def _undiagnosed(verdicts: Verdicts, whole: UnitSet) -> Diagnosis:
    """What is concluded of the model: only whether it compiles."""
    asked = verdicts.get(whole)
    return Diagnosis(
        verdict=asked[-1].status if asked else Status.UNRESOLVED,
        culprits=(),
        needs_context=(),
        certificate=Certificate(status=CertificateStatus.BOUNDED),
        remainder=whole,
    )
