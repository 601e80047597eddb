"""The interface for inspecting models. The API's process itself never reads a model, because models are untrusted."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from onnxbisect.input_value import InputValues
from onnxbisect_db.tables import StoredModel
from onnxbisect_service.service import Service


class InspectModel(Protocol):
    """Inspects a stored model in a separate process; an empty `backend` means no target."""

    def __call__(
        self,
        service: Service,
        model: StoredModel,
        *,
        backend: str,
        options: Mapping[str, str],
        shapes: Mapping[str, Sequence[int]],
        values: InputValues,
    ) -> dict[str, Any]:
        """A document `onnx-bisect/inspection@1`; raises OnnxBisectError with a sentence for the user."""
