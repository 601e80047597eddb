"""What compilers have said of variants, in all models of one repair together."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Known:
    """Variants (`onnxbisect.model.variants`) that were in a probe that passed, and those that were found to blame.

    A variant can be both: it passes in one shape and not in another. Then nothing is known of it in a third.
    """

    passing: frozenset[Hashable] = frozenset()
    refused: frozenset[Hashable] = frozenset()

    def passes(self, variant: Hashable) -> bool:
        """Whether it was seen to pass, and never to be refused."""
        return variant in self.passing and variant not in self.refused

    def refuses(self, variant: Hashable) -> bool:
        """Whether it was found to blame, and never seen to pass."""
        return variant in self.refused and variant not in self.passing

    def with_passing(self, variants: Collection[Hashable]) -> "Known":
        """The same after these were seen to pass."""
        return Known(passing=self.passing.union(variants), refused=self.refused)

    def joined(self, other: "Known") -> "Known":
        """What is known of two models together."""
        return Known(passing=self.passing | other.passing, refused=self.refused | other.refused)
