"""How the API has models looked at: it reads none itself."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from onnxbisect_db.tables import Model
from onnxbisect_service.service import Service


class InspectModel(Protocol):
    """Looks at a stored model in a process of its own; empty `backend`: for no target."""

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
