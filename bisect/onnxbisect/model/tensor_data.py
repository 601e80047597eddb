"""Check that a stored tensor is consistent: a known element type, possible dimensions, data that fit both."""

from math import prod

import onnx
from onnx import TensorProto, numpy_helper

from onnxbisect.errors import ModelError
from onnxbisect.model.external import byte_size, is_external
from onnxbisect.model.wording import quoted

#: Largest dimension that is accepted.
LARGEST_DIM = 1 << 40
#: Element types that a stored tensor can have.
STORABLE = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
#: Most elements of a tensor that is decoded here as a check, because later code reads such tensors without one.
_SMALL = 1024


def demand_data(tensor: TensorProto) -> None:
    """Raise ModelError where the tensor cannot be read; data in other files is checked by `external.locations`.

    A few bytes can claim any number of elements, so memory is allocated only after the size of the data was checked.
    """
    name = quoted(tensor.name)
    if tensor.data_type not in STORABLE:
        raise ModelError(
            f"Tensor {name} has the element type {tensor.data_type}, which ONNX does not have. Export it again."
        )
    if any(not 0 <= dim <= LARGEST_DIM for dim in tensor.dims):
        raise ModelError(f"Tensor {name} has the impossible shape {list(tensor.dims)[:8]}. Export it again.")
    if is_external(tensor):
        return
    elements = prod(tensor.dims)
    raw = tensor.HasField("raw_data")
    if raw and tensor.data_type != TensorProto.STRING:
        expected = byte_size(tensor.data_type, tensor.dims)
        if len(tensor.raw_data) != expected:
            raise ModelError(
                f"Tensor {name} has {len(tensor.raw_data)} bytes of data, and its type and shape demand {expected}. "
                "Export it again."
            )
    if raw and elements > _SMALL:
        return
    try:
        numpy_helper.to_array(tensor)
    except Exception as error:  # onnx raises whatever numpy does
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ModelError(
            f"The data of tensor {name} do not fit its type and shape: {reason}. Export it again."
        ) from error


def demand_sparse(sparse: onnx.SparseTensorProto) -> None:
    """Raise ModelError where a sparse tensor's shape is impossible; its values and indices are checked as tensors."""
    if any(not 0 <= dim <= LARGEST_DIM for dim in sparse.dims):
        raise ModelError(
            f"Sparse tensor {quoted(sparse.values.name)} has the impossible shape {list(sparse.dims)[:8]}. "
            "Export it again."
        )
