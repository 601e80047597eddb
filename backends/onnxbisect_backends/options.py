"""Backend options as the user types them, validated; what is wrong is said in one sentence."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from onnxbisect.errors import OptionError

Options = TypeVar("Options", bound=BaseModel)


def read_options(model: type[Options], given: Mapping[str, str], backend: str) -> Options:
    """Build the options of a backend from `--option key=value` pairs; raises OptionError.

    The model has `extra="forbid"`; its values are strings, so its fields must accept them.
    """
    for key in given:
        if key not in model.model_fields:
            raise OptionError(unknown(f"option of the backend '{backend}'", key, model.model_fields))
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise OptionError(
            f"The option '{key}' of the backend '{backend}' cannot be {given.get(key)!r}: {reason(first['msg'])}."
        ) from None


def unknown(what: str, key: str, valid: Iterable[str]) -> str:
    """A sentence for a name that does not exist, with the nearest one that does and all the others."""
    names = sorted(valid)
    if not names:
        return f"'{key}' is no {what}; it has none."
    near = get_close_matches(key, names, n=1, cutoff=0.5)
    guess = f"did you mean '{near[0]}'? " if near else ""
    return (
        f"'{key}' is no {what}; {guess}Valid: {', '.join(names)}."
        if guess
        else (f"'{key}' is no {what}; valid: {', '.join(names)}.")
    )


def reason(message: str) -> str:
    """Pydantic's message as the end of a sentence."""
    message = message.removeprefix("Value error, ").rstrip(".").replace("valid tuple", "list")
    return message[:1].lower() + message[1:]
