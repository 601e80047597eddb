"""How exact a rewrite is. A separate module, because requests use it in processes that do not load ONNX."""

from enum import StrEnum


class Exactness(StrEnum):
    """How close a replacement's outputs are to those of the node that it replaces; best first."""

    #: Bit for bit, including infinity and the sign of zero; NaN stays NaN, with any bits.
    EXACT = "exact"
    #: The same arithmetic in another order: equal within a few machine epsilons.
    ROUNDING = "rounding"
    #: A different function, within a stated bound.
    APPROXIMATE = "approximate"
    #: Holds for the stated inputs only, within the stated bound.
    DOMAIN = "domain"
