"""What a rule guarantees about the values of its replacement."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxbisect.language import english

#: The values of a node's inputs in one sample, by slot; None where an input is omitted or its value is not known. Of a
#: pattern it is the value of its `x` alone.
Values = Sequence[np.ndarray | None]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The largest difference of an output element: `epsilons` times the dtype's machine epsilon times the magnitude of
    `of`, plus `absolute`. NaN and infinity must agree if the difference is bounded.

    `note` is what a reader must know in addition, such as the sign of zero.
    """

    epsilons: float = 0.0
    of: str = "the output"
    absolute: float = 0.0
    note: str = ""

    @property
    def text(self) -> str:
        """The bound in words; empty if the replacement is exact without restriction."""
        if not (self.epsilons or self.absolute):
            return self.note
        factor, absolute, rest = f"{self.epsilons:g}", f"{self.absolute:g}", self.note
        if not self.epsilons:
            if rest:
                return english("within {absolute}; {rest}", absolute=absolute, rest=rest)
            return english("within {absolute}", absolute=absolute)
        if self.absolute and rest:
            return english(
                "within {factor} ε of {subject} + {absolute}; {rest}",
                factor=factor,
                subject=self.of,
                absolute=absolute,
                rest=rest,
            )
        if self.absolute:
            return english(
                "within {factor} ε of {subject} + {absolute}", factor=factor, subject=self.of, absolute=absolute
            )
        if rest:
            return english("within {factor} ε of {subject}; {rest}", factor=factor, subject=self.of, rest=rest)
        return english("within {factor} ε of {subject}", factor=factor, subject=self.of)


@dataclass(frozen=True, kw_only=True)
class Domain:
    """The inputs for which a rule holds: in words, and as a check of the values that occur."""

    text: str
    holds: Callable[[Values], bool]


#: Nothing differs.
NO_DIFFERENCE = Bound()
#: Nothing but the sign of zero differs.
SIGN_OF_ZERO = Bound(note="the sign of zero may differ")
#: Products summed in another order: each can lose an epsilon of the sum.
OF_PRODUCTS = Bound(epsilons=1, of="the sum of the products' magnitudes, times their number plus 2", absolute=1e-37)
#: The first input has no NaN.
NO_NAN = Domain(text="no NaN", holds=lambda values: values[0] is not None and not np.isnan(values[0]).any())
FINITE = Domain(
    text="no NaN or infinity", holds=lambda values: values[0] is not None and bool(np.isfinite(values[0]).all())
)
