"""What compilers have said of variants, in all models of one repair together."""

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Known:
    """Variants (`onnxbisect.model.variants`) that were in a probe that passed, and those that were found to blame.

    A variant can be both: it passes in one shape and not in another. Then nothing is known of it in a third.
    `passing_ops` and `refused_ops` are the ops of these variants: a guess for variants that nobody asked about.
    """

    passing: frozenset[Hashable] = frozenset()
    refused: frozenset[Hashable] = frozenset()
    passing_ops: frozenset[str] = frozenset()
    refused_ops: frozenset[str] = frozenset()

    def passes(self, variant: Hashable) -> bool:
        """Whether it was seen to pass, and never to be refused."""
        return variant in self.passing and variant not in self.refused

    def refuses(self, variant: Hashable) -> bool:
        """Whether it was found to blame, and never seen to pass."""
        return variant in self.refused and variant not in self.passing

    def doubts(self, op: str) -> bool:
        """Whether every variant of this op that the compiler answered for was refused."""
        return op in self.refused_ops and op not in self.passing_ops

    def joined(self, other: "Known") -> "Known":
        """What is known of two models together."""
        return Known(
            passing=self.passing | other.passing,
            refused=self.refused | other.refused,
            passing_ops=self.passing_ops | other.passing_ops,
            refused_ops=self.refused_ops | other.refused_ops,
        )
