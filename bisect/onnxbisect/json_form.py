"""Values as JSON: the one converter of what goes to files, to the database and to other processes.

Values are frozen dataclasses, whose fields are the keys. A field that is missing gets its default, so a field that a
later version adds needs one; unknown keys are ignored. Sets of units are lists of their members, because integers with
as many bits as a model has units have more digits than Python reads. Bytes are base64, and a number that is infinite or
undefined is null. Typed dictionaries and unions of JSON's own types are JSON already, and are read as they are once
their types are right; an object behind a protocol is one that the reader has put beside the data.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import inf, isfinite
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import is_typeddict

from onnxbisect.unitset import UnitSet, members, of

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

_OF_JSON = (bool, int, float, str, Any, object)
#: More units than a model can have: a set takes memory by its highest member, and data may come from a hostile process.
_UNITS = 1 << 24
_LARGEST = 1 << 63


def to_json(value: object, kind: Any = None) -> Any:
    """The value as JSON data. `kind` is its type where the value does not say it: a set of units, or several values."""
    return _converter().unstructure(value, unstructure_as=kind)


def from_json(data: Any, kind: type[T]) -> T:
    """The value that `to_json` wrote; raises ValueError, TypeError, KeyError or AttributeError for other data."""
    try:
        return _converter().structure(data, kind)
    except OverflowError as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True)
class Where:
    """What holds of data beyond its type: `Annotated[str, Where(is_spelled)]`."""

    holds: Callable[[Any], bool]


def checked(data: Any, kind: type[T]) -> T:
    """JSON data of this typed dictionary; ValueError is the first place that is missing or is not as its type says.

    Members of enumerations and literals may be any text: those of a later version are not known here. Numbers are
    finite, and integers have up to 64 bits.
    """
    if (place := _misfit(cast(Any, kind))(data)) is not None:
        raise ValueError(place.lstrip("."))
    return cast(T, data)


@cache
def _misfit(kind: Any) -> Callable[[Any], str | None]:
    """A function that returns the place at which data is not of this type, None if there is none."""
    if scalars := _scalars(kind):

        def of_scalars(data: Any) -> str | None:
            # beyond the limit is as a number that is undefined
            small = not isinstance(data, int | float) or -_LARGEST <= data <= _LARGEST
            return None if small and isinstance(data, scalars) else ""

        return of_scalars
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (NotRequired, Required):
        return _misfit(parts[0])
    if origin is Annotated:
        kind, conditions = parts[0], [it.holds for it in parts[1:] if isinstance(it, Where)]
        of_kind = _misfit(kind)

        def as_said(data: Any) -> str | None:
            place = of_kind(data)
            return "" if place is None and not all(holds(data) for holds in conditions) else place

        return as_said
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        fields = [(key, _quick(it), _misfit(it), key in kind.__required_keys__) for key, it in hints.items()]

        def of_fields(data: Any) -> str | None:
            if not isinstance(data, dict):
                return ""
            for key, quick, misfit, required in fields:
                if key in data:
                    item = data[key]
                    if type(item) not in quick and (place := misfit(item)) is not None:
                        return f".{key}{place}"
                elif required:
                    return f".{key}"
            return None

        return of_fields
    if origin in (list, dict):
        each, types = _misfit(parts[-1]), _quick(parts[-1])

        def of_items(data: Any) -> str | None:
            if not isinstance(data, origin):
                return ""
            items = data.items() if origin is dict else enumerate(data)
            if types and types.issuperset(map(type, data.values() if origin is dict else data)):
                return None  # most of a report are lists of names
            return next((f"[{key!r}]{place}" for key, item in items if (place := each(item)) is not None), None)

        return of_items
    if origin in (Union, UnionType):
        either = [_misfit(part) for part in parts]
        return lambda data: None if any(misfit(data) is None for misfit in either) else ""
    return lambda _data: None


def _quick(kind: Any) -> frozenset[type]:
    """The types whose data is of this type, whatever it is."""
    return frozenset(_scalars(kind)) - {int, float}


def _scalars(kind: Any) -> tuple[type, ...]:
    """The types of text, numbers and null that are of this type; empty where it has other data."""
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return (str,)
    if get_origin(kind) in (Union, UnionType):
        each = [_scalars(part) for part in get_args(kind)]
        return tuple(it for types in each for it in types) if all(each) else ()
    return (int, float) if kind is float else (kind,) if kind in (bool, int, str, NoneType) else ()


@cache
def _converter() -> "Converter":
    from cattrs import Converter  # as long as it takes, commands without a value to write would wait for it

    converter = Converter(detailed_validation=False, unstruct_collection_overrides={AbstractSet: sorted, tuple: list})
    converter.register_unstructure_hook_func(lambda kind: kind == UnitSet, lambda units: list(members(units)))
    converter.register_structure_hook_func(lambda kind: kind == UnitSet, lambda numbers, _: _units(numbers))
    converter.register_structure_hook_func(lambda kind: kind is str, _text)
    converter.register_unstructure_hook(float, lambda number: number if isfinite(number) else None)
    converter.register_structure_hook(float, lambda number, _: inf if number is None else float(number))
    converter.register_unstructure_hook(bytes, lambda content: b64encode(content).decode())
    converter.register_structure_hook(bytes, lambda text, _: b64decode(text))
    converter.register_unstructure_hook_func(_is_json, lambda data: data)
    converter.register_structure_hook_func(_is_json, lambda data, _: data)
    converter.register_structure_hook_func(is_typeddict, checked)
    return converter


def _text(data: object, _kind: object) -> str:
    if not isinstance(data, str):
        raise TypeError("no text")
    return data


def _units(numbers: list[int]) -> UnitSet:
    if numbers and not 0 <= min(numbers) <= max(numbers) < _UNITS:
        raise ValueError("no set of units")
    return of(numbers)


def _is_json(kind: Any) -> bool:
    """Whether values of this type stay as they are."""
    if is_typeddict(kind) or getattr(kind, "_is_protocol", False):
        return True
    parts = [part for part in get_args(kind) if part is not NoneType]
    if get_origin(kind) not in (Union, UnionType) or len(parts) < 2:
        return False
    return all(part in _OF_JSON or get_origin(part) in (Literal, Sequence, Mapping) or _is_json(part) for part in parts)
