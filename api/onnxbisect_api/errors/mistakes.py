"""Sentences for validation errors. They replace pydantic's texts, which name Python types."""

from collections.abc import Mapping, Sequence
from typing import Any

from onnxbisect.language import english
from onnxbisect.report.text import clip
from onnxbisect_api.parameters import SHA256_PATTERN, UUID_PATTERN

#: Most characters of a name from the request.
_NAME = 100
#: pydantic's marker for an error of a dictionary's key.
_KEY = "[key]"
_NUMBER = english("This must be a number")
_WHOLE = english("This must be a whole number")
_TEXT = english("This must be a text")
_LIST = english("This must be a list")
_OBJECT = "This must be an object, as in {{}}"
_TRUTH = english("This must be true or false")
_MOMENT = english("This must be a date and a time with their zone, as in 2030-01-31T12:00:00Z")
_SENTENCES = {
    "missing": english("This is missing"),
    "extra_forbidden": english("Nothing of this name is known here"),
    "too_short": english("At least {min_length} must be given"),
    "too_long": english("At most {max_length} may be given"),
    "string_too_short": english("This must have at least {min_length} characters"),
    "string_too_long": english("This may have {max_length} characters at most"),
    "string_pattern_mismatch": english("This must match the pattern {pattern}"),
    "greater_than": english("This must be greater than {gt}"),
    "greater_than_equal": english("This must be greater than or equal to {ge}"),
    "less_than": english("This must be less than {lt}"),
    "less_than_equal": english("This must be less than or equal to {le}"),
    "finite_number": english("This must be a finite number"),
    "literal_error": english("This must be {expected}"),
    "enum": english("This must be {expected}"),
    "json_invalid": english("This is no JSON: {error}"),
    "value_error": "{error}",
    "string_type": _TEXT,
    "string_unicode": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": english("This number is too large"),
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "timezone_aware": _MOMENT,
    "datetime_type": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
}
#: Sentences for patterns that a person may miss, such as with a hash in capitals.
_PATTERNS = {
    SHA256_PATTERN: english("This must be a SHA-256 of 64 digits, 0 to 9 and a to f"),
    UUID_PATTERN: english("This must be an id, as in 01a21b14-ceb7-7cf0-b1d7-113bd06c52ab"),
}


def of_client(errors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The errors that the client made: of a list with wrong items pydantic also says that it is too short."""
    places = [error["loc"] for error in errors]
    return [
        error
        for error in errors
        if error["type"] != "too_short" or not any(place[:-1][: len(error["loc"])] == error["loc"] for place in places)
    ]


def sentence(error: Mapping[str, Any]) -> str:
    """The sentence for an error of pydantic, without a full stop; pydantic's own text for other kinds of errors."""
    known = _SENTENCES.get(error["type"])
    try:
        text = str(error["msg"]) if known is None else known.format_map(error.get("ctx", {}))
    except KeyError:
        text = str(error["msg"])
    text = _PATTERNS.get(error.get("ctx", {}).get("pattern"), text).rstrip(".")
    return f"{text}, at character {_place(error)}" if _place(error) is not None else text


def where(error: Mapping[str, Any]) -> str:
    """The path of the error in the request, such as `body.targets.0.backend`."""
    parts = error["loc"] if _place(error) is None else error["loc"][:1]
    return ".".join(clip(str(part), _NAME) for part in parts if part != _KEY)


def is_untold_json(error: Mapping[str, Any]) -> bool:
    """Whether the error is a JSON body that was not parsed, because its content type is not JSON."""
    return error["loc"] == ("body",) and isinstance(error.get("input"), bytes)


def _place(error: Mapping[str, Any]) -> int | None:
    """The position, from 1, where the body stops being JSON."""
    match error["type"], error["loc"]:
        case "json_invalid", ("body", int(place)):
            return place + 1
    return None
