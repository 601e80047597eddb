"""Values that a user binds inputs to, as they are written."""

from collections.abc import Mapping, Sequence

#: A number or truth value that fills an input, or one for each of its elements, row by row.
InputValue = bool | int | float | Sequence[bool | int | float]
InputValues = Mapping[str, InputValue]

_WORDS: Mapping[str, bool] = {"true": True, "false": False}


def read_value(text: str) -> InputValue:
    """Parse `16000`, `0.5`, `true`, or several separated by commas; raises ValueError for anything else."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    values: list[bool | int | float] = []
    for word in words:
        try:
            values.append(_WORDS[word.lower()] if word.lower() in _WORDS else int(word))
        except ValueError:
            values.append(float(word))
    return values[0] if len(values) == 1 else values


def written(value: InputValue) -> str:
    """The text of which `read_value` makes the value."""
    each = value if isinstance(value, Sequence) else [value]
    return ",".join(str(it).lower() if isinstance(it, bool) else repr(it) for it in each)
