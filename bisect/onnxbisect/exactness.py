"""How exact a rewrite is. By itself, since requests name it in processes that load no ONNX."""

from enum import StrEnum


class Exactness(StrEnum):
    """How close the outputs of a replacement are to those of the node that it replaces; the best first."""

    #: Bit for bit, NaN, infinity and the sign of zero included. Of a NaN only that it is one.
    EXACT = "exact"
    #: The same arithmetic in another order: within some machine epsilons.
    ROUNDING = "rounding"
    #: Another function, within a stated bound.
    APPROXIMATE = "approximate"
    #: Holds for the stated inputs only, within the stated bound.
    DOMAIN = "domain"
