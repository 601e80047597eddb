"""Reads the types of the configuration's fields from their annotations."""

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
    """The message type of a field, single or repeated; None if the field is no message."""
    kind, _ = element(annotation)
    return kind if issubclass(kind, BaseModel) else None


def message_at(root: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """The message type at the end of a path of fields; list indices and fields that are no messages are skipped."""
    for part in path:
        if part in root.model_fields:
            root = message_of(root.model_fields[part].annotation) or root
    return root
