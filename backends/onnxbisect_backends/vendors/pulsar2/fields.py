"""What the fields of the configuration's messages hold, read off their annotations."""

from typing import Any, get_args

from pydantic import BaseModel


def element(annotation: Any) -> tuple[type, bool]:
    """The type of a field's values, and whether there may be several: `X`, `X | None`, `tuple[X, ...]`, `dict`."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation, False
    first = get_args(annotation)[0]
    if get_args(annotation)[-1] is Ellipsis:
        return first, True
    return (dict if first is str else first), False


def message_of(annotation: Any) -> type[BaseModel] | None:
    """The message that a field holds, one or several; None for other fields."""
    kind, _ = element(annotation)
    return kind if issubclass(kind, BaseModel) else None


def message_at(root: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """The message in which a dotted path ends; indices of lists, and what is no message, are passed over."""
    for part in path:
        if part in root.model_fields:
            root = message_of(root.model_fields[part].annotation) or root
    return root
