"""Terms of causes. A separate module, because processes that do not load ONNX use them in reports."""

from enum import StrEnum


class Aspect(StrEnum):
    """What a feature is about; reports sort by this order, most informative first."""

    OP = "op"
    #: Of the op, where it is not ONNX's own. A model has one opset for each domain, so the opset tells no units apart.
    DOMAIN = "domain"
    RANK = "rank"
    DTYPE = "dtype"
    #: `dynamic` or `empty`.
    SHAPE = "shape"
    #: Whether an input is computed, a constant, computed from constants, or omitted.
    SOURCE = "source"
    ATTRIBUTE = "attribute"
    #: The largest number in an integer attribute.
    LARGEST = "largest"
    #: The value of a small constant input.
    VALUE = "value"
    #: `negative` if a small constant input contains a negative number.
    SIGN = "sign"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    DIMENSION = "dimension"
    ELEMENTS = "elements"
    #: The largest power of two that divides a dimension, as of channels.
    ALIGNMENT = "alignment"


class Relation(StrEnum):
    """The required relation of a unit's value to the condition's value."""

    IS = "is"
    OTHER = "other"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"

    def holds(self, mine: int | str, value: int | str) -> bool:
        """Whether a unit's value has this relation to that of a condition; texts are only equal or not."""
        if self is Relation.IS:
            return mine == value
        if self is Relation.OTHER:
            return mine != value
        if isinstance(mine, str) or isinstance(value, str):
            return False
        return mine >= value if self is Relation.AT_LEAST else mine <= value


class CauseState(StrEnum):
    """How well a cause is established."""

    #: A culprit passed after a change of only this condition.
    CONFIRMED = "confirmed"
    #: Units of the same ops that do not meet the conditions passed in this model.
    OBSERVED = "observed"
    #: No unit of these ops passed, so nothing can be compared: apparently the ops themselves are refused.
    NO_CONTRAST = "no_contrast"
    #: No condition on single units separates these culprits from passing units.
    UNEXPLAINED = "unexplained"
