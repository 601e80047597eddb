"""The interfaces that a repair needs (a compiler, a prover, changed files), what a proof says, and the result."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import onnx
from onnx import TensorProto

from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import bodies
from onnxbisect.proof import OutputDifference, Tolerance
from onnxbisect.remedies.advisor import Left, Struck
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.remedies.found import SearchedModel
from onnxbisect.rewrites import Exactness

BIT_FOR_BIT = Tolerance(absolute=0, relative=0)
_OF_OUTPUT = "the output"
_EPSILON_OF_FLOAT32 = float(np.finfo(np.float32).eps)
_EPSILON_OF_BFLOAT16 = 2.0**-7


@dataclass(frozen=True, kw_only=True)
class PlaceProof:
    """The difference of one replacement at its outputs, and the allowed one; `problem` says what is too large.

    `low` is the same in the low precision that the target computes in, if it does.
    """

    candidate: Candidate
    differences: tuple[OutputDifference, ...]
    allowed: Tolerance
    problem: str = ""
    low: tuple[OutputDifference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RepairProof:
    """The differences over `samples` samples. `problem` is the reason if the model as a whole is not proven and no
    single place is to blame.
    """

    places: tuple[PlaceProof, ...] = ()
    outputs: tuple[OutputDifference, ...] = ()
    allowed: Tolerance = field(default_factory=Tolerance)
    samples: int = 0
    problem: str = ""

    @property
    def failed(self) -> tuple[PlaceProof, ...]:
        """The places whose replacement differs by more than its bound."""
        return tuple(place for place in self.places if place.problem)

    @property
    def disagreement(self) -> str:
        """How the model's outputs differ by more than allowed."""
        worst = max((it for it in self.outputs if not it.agrees), key=lambda it: it.relative, default=None)
        if worst is None:
            return ""
        share = (
            f"{worst.relative:.2g} of its largest magnitude, where {self.allowed.relative:g} is allowed (--relative)"
        )
        unlike = f", and in {worst.unlike} of {worst.elements} numbers by NaN, infinity or sort" if worst.unlike else ""
        return f"the model's output {worst.output} differs by {worst.absolute:.3g}, {share}{unlike}"

    @property
    def holds(self) -> bool:
        """Whether each place is within its bound and the model's outputs agree."""
        return not self.failed and not self.problem and all(it.agrees for it in self.outputs)


def promised(candidate: Candidate, epsilon: float) -> Tolerance:
    """The tolerance for an output of a replacement, whose type has this epsilon (`epsilon_of`).

    A rule's bound is used if it is relative to the output. Other bounds are relative to values that are not computed
    here, and no bound covers a chain of rules or a loop: then it is the default tolerance.
    """
    if candidate.exactness is Exactness.EXACT:
        return BIT_FOR_BIT
    bound = candidate.rules[0].bound
    plain = len(candidate.rules) == 1 and not any(map(bodies, candidate.replacement.nodes))
    if plain and (bound.of == _OF_OUTPUT or not bound.epsilons):
        # a narrow output was computed in float32 and rounded
        share = max(bound.epsilons, 1.0 if epsilon > _EPSILON_OF_FLOAT32 else 0.0) * epsilon
        return Tolerance(absolute=bound.absolute, relative=share)
    return at_least(Tolerance(), epsilon)


def epsilon_of(array: np.ndarray, declared: int | None) -> float:
    """The epsilon of a tensor's type; 0 for integers. Tensors that are `declared` as bfloat16 are float32 here."""
    if declared == TensorProto.BFLOAT16:
        return _EPSILON_OF_BFLOAT16
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0


def at_least(tolerance: Tolerance, epsilon: float) -> Tolerance:
    """The tolerance, but not below the resolution of the element type."""
    return Tolerance(absolute=tolerance.absolute, relative=max(tolerance.relative, 4 * epsilon))


def too_far(found: OutputDifference) -> str:
    """A phrase for a difference that is larger than allowed."""
    if found.form:
        return f"{found.output}: {found.form}"
    if found.unlike:
        return f"{found.unlike} of {found.elements} elements are NaN, infinite or another value on one side only"
    return f"it differs by {found.absolute:.3g}, in {found.beyond} of {found.elements} elements by more than it may"


class Compiler(Protocol):
    """Diagnoses models, and keeps the verdicts."""

    def diagnose(self, model: onnx.ModelProto, refused: Collection[str] = (), *, brief: bool = False) -> SearchedModel:
        """Find which parts of the model fail; the `refused` nodes are known to be in some of them.

        `brief`: the diagnosis is no report, but where a repair goes on.
        """

    def whole(self, model: onnx.ModelProto) -> SearchedModel:
        """Compile the model as a whole, and nothing else: one call."""

    def ask(
        self, model: onnx.ModelProto, nodes: Collection[str], doubted: Collection[str] = (), *, whole: bool = False
    ) -> SearchedModel:
        """Diagnose these nodes of a model, cut out, or compile them once; names in the result are those of `model`.

        The `doubted` nodes are expected to fail.
        """

    def inside(self, model: onnx.ModelProto) -> "Compiler":
        """The same compiler for a model with inputs of its own, such as the body of a Loop."""


class Prover(Protocol):
    """Checks that replacements leave the outputs as they are (`proving.OrtProver`)."""

    def prove(self, chosen: Sequence[Candidate]) -> RepairProof:
        """Prove all replacements together."""

    def to_blame(self, chosen: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """The candidates because of which the model's outputs do not agree."""

    def inside(self, model: onnx.ModelProto, facts: TensorFacts) -> "Prover":
        """A prover for a model with inputs of its own."""

    def on(self, changed: onnx.ModelProto, facts: TensorFacts, chosen: Sequence[Candidate] = ()) -> "Prover":
        """A prover for a changed model, in which these replacements were made: places are compared there, outputs with
        the original.
        """

    def compared(self, repaired: onnx.ModelProto) -> RepairProof:
        """Compare a model that was changed in another way than by replacing nodes."""


class ChangedFile(Protocol):
    """A changed copy of the whole file, such as one with a lower IR version."""

    @property
    def proto(self) -> onnx.ModelProto:
        """The changed copy."""

    @property
    def sentence(self) -> str:
        """The change, such as `ir_version 10 → 9`."""

    @property
    def exactness(self) -> Exactness:
        """How exact the outputs stay."""

    @property
    def needed(self) -> bool:
        """Whether most compilers refuse the file without the change, or it changes nodes that this one named."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Repair:
    """The result of a repair. `before` is the diagnosis of the original model, `after` that of the repaired one.

    A repair may go on in the model of an `earlier` one; then `before` is the diagnosis of that. `model` is None if
    nothing was changed. `stopped` says that the user or the budget ended the repair; then `left` is empty, because
    nothing is known about the rest. `limited`: the repair was given up after many calls, with what was found until
    then.
    """

    before: SearchedModel
    after: SearchedModel
    model: onnx.ModelProto | None = None
    changed_file: ChangedFile | None = None
    proof: RepairProof | None = None
    struck: tuple[Struck, ...] = ()
    left: tuple[Left, ...] = ()
    stopped: bool = False
    limited: bool = False
    earlier: "Repair | None" = None

    @property
    def rounds(self) -> tuple["Repair", ...]:
        """The repairs that led to the model, the first one first."""
        return (*(() if self.earlier is None else self.earlier.rounds), self)

    @property
    def compiles(self) -> bool:
        """Whether the model, repaired if necessary, passed as a whole."""
        return self.after.compiles

    @property
    def places(self) -> tuple[PlaceProof, ...]:
        """Each replacement that led to the repaired model, with the measured differences."""
        return tuple(place for it in self.rounds if it.proof is not None for place in it.proof.places)
