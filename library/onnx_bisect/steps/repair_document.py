"""Reads `repair.json`, which may come from another machine or version."""

from collections.abc import Mapping
from math import inf
from typing import Any

from pydantic import TypeAdapter, ValidationError

from onnxbisect.errors import OnnxBisectError
from onnxbisect.remedies.document import RepairDocument

_DOCUMENT = TypeAdapter(RepairDocument)


def read_document(fields: object) -> RepairDocument:
    """The document that `RepairDocument.to_json` wrote. Raises OnnxBisectError if this version cannot read it."""
    try:
        return _DOCUMENT.validate_python(_with_infinities(fields))
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        raise OnnxBisectError(f"This is no repair that this version of onnx-bisect can read: see '{where}'.") from None


def _with_infinities(value: Any) -> Any:
    """Infinite ratios are null in JSON."""
    if isinstance(value, list):
        return [_with_infinities(it) for it in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: inf if it is None and key in ("absolute", "relative") else _with_infinities(it)
        for key, it in value.items()
    }
