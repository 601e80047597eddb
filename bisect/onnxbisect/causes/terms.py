"""The words that causes are told in. By themselves, since reports name them in processes that load no ONNX."""

from enum import StrEnum


class Aspect(StrEnum):
    """What a feature is about. The order is that of reports, the telling ones first."""

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
    #: The largest number of an attribute of integers.
    LARGEST = "largest"
    #: The value of a small constant input.
    VALUE = "value"
    #: `negative` where a small constant input has a negative number.
    SIGN = "sign"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    DIMENSION = "dimension"
    ELEMENTS = "elements"


class Relation(StrEnum):
    """How a unit's value has to be to that of the condition."""

    IS = "is"
    OTHER = "other"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"


class CauseState(StrEnum):
    """How well it is established that this is why."""

    #: A neighbour of a culprit, made for the question and with only that changed, passed.
    CONFIRMED = "confirmed"
    #: Units of the same ops that do not meet the conditions passed in this model.
    OBSERVED = "observed"
    #: Nothing of these ops passed, so there is nothing to compare with: the ops themselves are refused, it seems.
    NO_CONTRAST = "no_contrast"
    #: No condition on single units tells these culprits from what passed.
    UNEXPLAINED = "unexplained"
