"""The interfaces that a repair needs (a compiler, a prover, changed files), and its result."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import onnx

from onnxbisect.model.facts import TensorFacts
from onnxbisect.remedies.advisor import Left, Struck
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.remedies.found import SearchedModel
from onnxbisect.remedies.proofs import PlaceProof, RepairProof
from onnxbisect.rewrites import Exactness


class Compiler(Protocol):
    """Diagnoses models, and keeps the verdicts."""

    def diagnose(self, model: onnx.ModelProto, refused: Collection[str] = ()) -> SearchedModel:
        """Find which parts of the model fail; these nodes are known to be in some of them."""

    def whole(self, model: onnx.ModelProto) -> SearchedModel:
        """Compile the model as a whole, and nothing else: one call."""

    def ask(self, model: onnx.ModelProto, nodes: Collection[str]) -> SearchedModel:
        """Diagnose these nodes of a model, cut out; names in the result are those of `model`."""

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

    `model` is None if nothing was changed. `stopped` says that the user or the budget ended the repair; then `left` is
    empty, because nothing is known about the rest.
    """

    before: SearchedModel
    after: SearchedModel
    model: onnx.ModelProto | None = None
    changed_file: ChangedFile | None = None
    proof: RepairProof | None = None
    struck: tuple[Struck, ...] = ()
    left: tuple[Left, ...] = ()
    stopped: bool = False

    @property
    def compiles(self) -> bool:
        """Whether the model, repaired if necessary, passed as a whole."""
        return self.after.compiles

    @property
    def places(self) -> tuple[PlaceProof, ...]:
        """Each replacement in the repaired model, with the measured differences."""
        return () if self.proof is None else self.proof.places
