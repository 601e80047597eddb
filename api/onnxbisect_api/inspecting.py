"""The interface for inspecting models, which the API itself never reads."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from onnxbisect_db.tables import Model
from onnxbisect_service.service import Service


class InspectModel(Protocol):
    """Inspects a stored model in a process of its own; an empty `backend` means no target."""

    def __call__(
        self,
        service: Service,
        model: Model,
        *,
        backend: str,
        options: Mapping[str, str],
        shapes: Mapping[str, Sequence[int]],
    ) -> dict[str, Any]:
        """`onnx-bisect/inspection@1`; raises OnnxBisectError with a sentence for the user."""
