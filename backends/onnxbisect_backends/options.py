"""Parses and validates backend options, with errors as one sentence each."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from onnxbisect.errors import OptionError
from onnxbisect.language import english, nearest

Options = TypeVar("Options", bound=BaseModel)


#: Several names in one option, with commas or semicolons, which names of ops and rules lack; reports print commas.
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda text: [it.strip() for it in re.split("[,;]", text) if it.strip()] if isinstance(text, str) else text
    ),
]


@dataclass(frozen=True)
class _Local:
    """The type of `LOCAL`."""


#: Marks an option that names something on the compiler's machine, such as a folder, a program or an image:
#: `home: Annotated[str, LOCAL]`. A client of the service can only choose among its `examples` (`remote`).
LOCAL = _Local()


@dataclass(frozen=True, kw_only=True)
class WorthTrying:
    """Marks an option, such as a precision, of which another value may make the compiler accept a refused model.

    For example `precision: Annotated[Literal["fp16", "bf16"], WorthTrying()]`. `values` are the values to try, or a
    function that returns them; by default the option's choices. `pattern` is for list options: its first group
    finds values in the compiler's message for a culprit, which are added to the list. `instead` limits `values` to
    options that the user has set.
    """

    values: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    pattern: str = ""
    instead: bool = False


@dataclass(frozen=True, kw_only=True)
class OptionHelp:
    """The description of an option. `choices` are its values, empty if any is valid.

    A `local` option names something on the machine where the compiler runs.
    """

    name: str
    default: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    local: bool = False
    worth_trying: WorthTrying | None = None

    @property
    def alternatives(self) -> tuple[str, ...]:
        """The values worth trying; empty for an option without the mark."""
        if self.worth_trying is None:
            return ()
        values = self.worth_trying.values
        found = values() if callable(values) else values
        return found or (() if self.worth_trying.pattern else self.choices)

    def alternatives_in(self, given: str, messages: Iterable[str]) -> str:
        """The list `given` with values that `WorthTrying.pattern` finds in messages; empty if it finds nothing new."""
        if self.worth_trying is None or not self.worth_trying.pattern:
            return ""
        listed = [it.strip() for it in given.split(",") if it.strip()]
        found = (value for message in messages for value in re.findall(self.worth_trying.pattern, message))
        new = [value for value in dict.fromkeys(found) if value not in listed]
        return ",".join([*listed, *new]) if new else ""


class VerifyOptions(BaseModel):
    """The options of a backend that can compute (`contract.compute`)."""

    verify: bool = Field(
        default=False, description="compare the numbers with those of onnxruntime: a model that computes others fails"
    )
    tolerance: float = Field(
        default=0.02,
        gt=0,
        lt=1,
        description="largest difference, as a share of an output's largest number, with verify",
    )

    @property
    def idle(self) -> set[str]:
        """Those that change nothing."""
        return set() if self.verify else {"verify", "tolerance"}

    @property
    def within(self) -> float | None:
        """`contract.verification`."""
        return self.tolerance if self.verify else None


def explained(model: type[BaseModel], prefix: str = "") -> tuple[OptionHelp, ...]:
    """The options of a model: its literals, enums and `examples` are the choices; inner models have dotted names."""
    found: list[OptionHelp] = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += explained(field.annotation, f"{prefix}{name}.")
            continue
        choices = [str(it) for it in field.examples or _choices(field.annotation)]
        default = option_text(field.get_default(call_default_factory=True, validated_data={}))
        found.append(
            OptionHelp(
                name=prefix + name,
                default=default,
                choices=tuple(filter(None, choices)),
                help=field.description or "",
                local=LOCAL in field.metadata,
                worth_trying=next((it for it in field.metadata if isinstance(it, WorthTrying)), None),
            )
        )
    return tuple(found)


def read_options(model: type[Options], given: Mapping[str, str], backend: str) -> Options:
    """Create the options of a backend from `--option key=value` pairs; raises OptionError.

    The model has `extra="forbid"`; its fields must accept strings.
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


def option_text(value: object) -> str:
    """A value in the syntax of `--option`; empty if it is None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    return ",".join(map(option_text, value)) if isinstance(value, list | tuple | set | frozenset) else str(value)


def unknown(what: str, key: str, valid: Iterable[str]) -> str:
    """A sentence about an unknown name, with the nearest valid one and all others."""
    names = sorted(valid)
    if not names:
        return english("'{key}' is no {what}; it has none.", key=key, what=what)
    every = ", ".join(names)
    if near := nearest(key, names):
        return english(
            "'{key}' is no {what}; did you mean '{near}'? Valid: {every}.",
            key=key,
            what=what,
            near=near,
            every=every,
        )
    return english("'{key}' is no {what}; valid: {every}.", key=key, what=what, every=every)


def reason(message: str) -> str:
    """Pydantic's message as the end of a sentence."""
    message = message.removeprefix("Value error, ").rstrip(".").replace("valid tuple", "list")
    return message[:1].lower() + message[1:]


def complaint(error: ValidationError, root: type[BaseModel], noun: str, name: str = "") -> str:
    """What is wrong with a document of type `root`, called `name`, whose parts are called `noun`."""
    # A misspelt key is also reported as missing, and a key that may be a text or a table has an error for each: the
    # misspelling, and the error inside the table, are more specific.
    first = max(error.errors(include_url=False), key=lambda it: (it["type"] == "extra_forbidden", len(it["loc"])))
    where = [str(part) for part in first["loc"] if part not in ("str", "VersionCommand")]
    if first["type"] == "extra_forbidden":
        *path, last = where
        holder = ".".join(path) or name
        return unknown(f"{noun} of {holder}" if holder else noun, last, model_at(root, path).model_fields)
    if first["type"] == "missing":
        return f"the {noun} '{'.'.join(where)}' is missing."
    return f"{': '.join(filter(None, ['.'.join(where), reason(first['msg'])]))}."


def model_at(root: type[BaseModel], path: Iterable[str]) -> type[BaseModel]:
    """The model at the end of a path of fields; list indices and fields that hold no model are skipped."""
    for part in path:
        if part in root.model_fields:
            root = model_in(root.model_fields[part].annotation) or root
    return root


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The first model that an annotation names, also inside `tuple[X, ...]` and `X | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := model_in(part))), None)


def _choices(annotation: Any) -> Iterator[Any]:
    """The values that an annotation lists, also inside `X | None`."""
    if annotation is bool:
        yield from ("true", "false")
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (it.value for it in annotation)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _choices(part)
