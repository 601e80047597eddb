"""What a repair asks of others, a compiler, a prover and changed files, and what it comes to."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import onnx

from onnxbisect.remedies.advisor import Left, Struck
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.remedies.found import Found
from onnxbisect.remedies.proofs import PlaceProof, Proof
from onnxbisect.rewrites import Exactness, Facts


class Compiler(Protocol):
    """Answers about models, and keeps what it was asked."""

    def diagnose(self, model: onnx.ModelProto) -> Found:
        """Which parts of the model fail."""

    def whole(self, model: onnx.ModelProto) -> Found:
        """Whether the model passes as a whole, and nothing more: one call."""

    def ask(self, model: onnx.ModelProto, nodes: Collection[str]) -> Found:
        """The same of these nodes of a model, cut out; the names in the answer are those of `model`."""

    def inside(self, model: onnx.ModelProto) -> "Compiler":
        """The same compiler for a model with inputs of its own, such as the body of a Loop."""


class Prover(Protocol):
    """Says whether replacements leave the numbers alone (`proving.Prover`)."""

    def prove(self, chosen: Sequence[Candidate]) -> Proof:
        """All replacements together."""

    def to_blame(self, chosen: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Those after which the model's outputs do not agree."""

    def inside(self, model: onnx.ModelProto, facts: Facts) -> "Prover":
        """The same for a model with inputs of its own."""

    def compared(self, repaired: onnx.ModelProto) -> Proof:
        """A model that was changed in another way than by replacing nodes."""


class ChangedFile(Protocol):
    """A changed copy of the whole file, such as one with a lower IR version; `sentence` says what was changed."""

    @property
    def proto(self) -> onnx.ModelProto:
        """The copy."""

    @property
    def sentence(self) -> str:
        """As `ir_version 10 → 9`."""

    @property
    def exactness(self) -> Exactness:
        """What it promises of the numbers."""

    @property
    def needed(self) -> bool:
        """Whether most compilers refuse the file without it, or it changes what this one named."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Repair:
    """What a repair came to. `before` is the diagnosis of the model as it was, `after` that of the repaired one.

    `model` is None where nothing was changed. `places` are the replacements in it, each with what was measured.
    `stopped` says that the user, or the budget, ended it before its time; then nothing is said of what is left.
    """

    before: Found
    after: Found
    model: onnx.ModelProto | None = None
    changed_file: ChangedFile | None = None
    proof: Proof | None = None
    struck: tuple[Struck, ...] = ()
    left: tuple[Left, ...] = ()
    stopped: bool = False

    @property
    def compiles(self) -> bool:
        """Whether the model, repaired where it had to be, passed as a whole."""
        return self.after.compiles

    @property
    def places(self) -> tuple[PlaceProof, ...]:
        """Each replacement in the repaired model, with what was measured."""
        return () if self.proof is None else self.proof.places
