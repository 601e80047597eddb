"""Inspects a model for a target, without a search or a compile; nothing is stored."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from onnxbisect.input_value import InputValues
from onnxbisect_db.tables import StoredModel
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service
from onnxbisect_worker.model_processes.pool import ModelPool
from onnxbisect_worker.model_requests.protocol import Case


def inspection(
    service: Service,
    model: StoredModel,
    *,
    backend: str,
    options: Mapping[str, str],
    shapes: Mapping[str, Sequence[int]],
    values: InputValues,
) -> dict[str, Any]:
    """`onnx-bisect/inspection@1` of a stored model, from a process started for it; an empty `backend` means no target.

    Raises OnnxBisectError with a sentence for the user.
    """
    case = Case(
        tenant=model.tenant,
        onnx=model.onnx_file,
        model_name=model.name,
        files=model.files,
        backend=backend,
        options=options,
        spec=SearchSpec(input_shapes={name: tuple(shape) for name, shape in shapes.items()}, input_values=values),
    )
    with closing(ModelPool(service.settings, service.files)) as pool, pool.acquire(case) as process:
        return process.inspect()
