"""What compilers have said about variants, in all models of one repair together."""

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SeenVariants:
    """Variants (`onnxbisect.model.variants`) that were in a passing probe, and those that were to blame.

    A variant can be both, if it passes in one shape and not in another; then nothing is known about a third shape.
    `passing_ops` and `refused_ops` are the ops of these variants: a guess for variants that were never compiled.
    """

    passing: frozenset[Hashable] = frozenset()
    refused: frozenset[Hashable] = frozenset()
    passing_ops: frozenset[str] = frozenset()
    refused_ops: frozenset[str] = frozenset()

    def passes(self, variant: Hashable) -> bool:
        """Whether it has passed and was never refused."""
        return variant in self.passing and variant not in self.refused

    def refuses(self, variant: Hashable) -> bool:
        """Whether it was to blame and has never passed."""
        return variant in self.refused and variant not in self.passing

    def doubts(self, op: str) -> bool:
        """Whether every variant of this op with a verdict was refused."""
        return op in self.refused_ops and op not in self.passing_ops

    def joined(self, other: "SeenVariants") -> "SeenVariants":
        """What is known from both."""
        return SeenVariants(
            passing=self.passing | other.passing,
            refused=self.refused | other.refused,
            passing_ops=self.passing_ops | other.passing_ops,
            refused_ops=self.refused_ops | other.refused_ops,
        )
