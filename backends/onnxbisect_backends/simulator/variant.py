"""One use of an op as a line of text, such as `mode=cubic (FLOAT[?,?,?,?], -, constant FLOAT[?])`.

Measured profiles list by it what was refused. Attributes at their default are left out, so that it makes no
difference whether an exporter writes them.
"""

import onnx
from onnx import TensorProto

from onnxbisect_backends.simulator.constraints import default_of, value_of
from onnxbisect_backends.simulator.scope import Scope, small_values


def spelled(node: onnx.NodeProto, scope: Scope, *, exact: bool) -> str | None:
    """Attributes, then the inputs with dtype and rank, constant or not; None where the type of an input is not known.

    `exact` gives dimensions for ranks, and the values of small constants.
    """
    inputs = [_input(name, scope, exact=exact) for name in node.input]
    if None in inputs:
        return None
    attributes = sorted(filter(None, (_attribute(attribute, node, scope) for attribute in node.attribute)))
    count = sum(1 for name in node.output if name)
    outputs = f" to {count} outputs" if count != 1 else ""
    return f"{' '.join([*attributes, ''])}({', '.join(map(str, inputs))}){outputs}"


def _attribute(attribute: onnx.AttributeProto, node: onnx.NodeProto, scope: Scope) -> str | None:
    written = scope.attribute(node, attribute.name)
    if written is None:
        return None
    value = value_of(written)
    if value is None:
        return f"{attribute.name}=…"
    if value == default_of(node, attribute.name, scope):
        return None
    text = ",".join(map(_number, value)) if isinstance(value, list) else _number(value)
    return f"{attribute.name}={text}"


def _input(name: str, scope: Scope, *, exact: bool) -> str | None:
    if not name:
        return "-"
    known = scope.type_of(name)
    if known is None or not known.dtype or known.dims is None:
        return None
    dtype = TensorProto.DataType.Name(known.dtype)
    dims = ",".join(str(dim) if exact and dim is not None else "?" for dim in known.dims)
    if not scope.is_constant(name):
        return f"{dtype}[{dims}]"
    tensor = scope.tensor(name) if exact else None
    values = small_values(tensor) if tensor is not None and known.dtype != TensorProto.STRING else None
    shown = f" {','.join(map(_number, values))}" if values else ""
    return f"constant {dtype}[{dims}]{shown}"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
