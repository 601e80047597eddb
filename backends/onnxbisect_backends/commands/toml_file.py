"""Reads the TOML file of a compiler, with errors as one sentence each."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from onnxbisect.errors import OptionError
from onnxbisect_backends.commands.definition import Definition
from onnxbisect_backends.options import reason, unknown


def load_definition(path: Path) -> Definition:
    """Read a TOML file; raises OptionError with the file, the key and the nearest valid one."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"The backend file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise OptionError(f"The backend file {path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"The backend file {path} is not valid TOML: {reason(str(error))}.") from None
    try:
        return Definition.model_validate(data)
    except ValidationError as error:
        raise OptionError(f"The backend file {path} is wrong: {_complain(error)}") from None


def _complain(error: ValidationError) -> str:
    errors = error.errors(include_url=False)
    # A misspelt key is also reported as missing, and a key that may be a text or a table has an error for each: the
    # misspelling, and the error inside the table, are more specific.
    first = max(errors, key=lambda it: (it["type"] == "extra_forbidden", len(it["loc"])))
    where = [str(part) for part in first["loc"] if part not in ("str", "VersionCommand")]
    key = ".".join(where)
    if first["type"] == "extra_forbidden":
        return unknown("key" if len(where) == 1 else f"key of {'.'.join(where[:-1])}", where[-1], _keys(where[:-1]))
    if first["type"] == "missing":
        return f"the key '{key}' is missing."
    return f"{key}: {reason(first['msg'])}." if key else f"{reason(first['msg'])}."


def _keys(where: list[str]) -> list[str]:
    """The keys of the table at this path, from the models."""
    table: type[BaseModel] = Definition
    for part in where:
        if part in table.model_fields:
            table = _table_of(table.model_fields[part].annotation) or table
    return [*table.model_fields]


def _table_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if found := _table_of(argument):
            return found
    return None
