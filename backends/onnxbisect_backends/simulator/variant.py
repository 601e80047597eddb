"""One use of an op as a line of text, such as `mode=cubic (FLOAT[?,?,?,?], -, constant FLOAT[?])`.

Measured profiles list refused uses in this notation. Attributes at their default are left out, so that it does not
matter whether an exporter writes them.
"""

from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto

from onnxbisect_backends.simulator.constraints import default_of, value_of
from onnxbisect_backends.simulator.profiles import Scalar
from onnxbisect_backends.simulator.scope import GraphScope, small_values

#: An optional input that is left out.
OMITTED = "-"


def spelled(node: onnx.NodeProto, scope: GraphScope, *, exact: bool) -> str | None:
    """Attributes, then the inputs with dtype, rank and whether constant; None if the type of an input is unknown.

    `exact` gives dimensions in place of ranks, and the values of small constants.
    """
    inputs = [_input(name, scope, exact=exact) for name in node.input]
    if None in inputs:
        return None
    attributes = {}
    for attribute in node.attribute:
        written = scope.attribute(node, attribute.name)
        if written is not None:
            value = value_of(written)
            if value is None or value != default_of(node, attribute.name, scope):
                attributes[attribute.name] = value
    return use_text(attributes, list(map(str, inputs)), sum(1 for name in node.output if name))


def use_text(attributes: Mapping[str, Scalar | list[Scalar] | None], inputs: Sequence[str], outputs: int) -> str:
    """The line for a use; an attribute that is a tensor or a graph is None."""
    written = sorted(f"{name}={_value(value)}" for name, value in attributes.items())
    more = f" to {outputs} outputs" if outputs != 1 else ""
    return f"{' '.join([*written, ''])}({', '.join(inputs)}){more}"


def input_text(dtype: str, dims: Sequence[str], *, constant: bool) -> str:
    """One input in the line, without values."""
    return f"{'constant ' if constant else ''}{dtype}[{','.join(dims)}]"


def _value(value: Scalar | list[Scalar] | None) -> str:
    if value is None:
        return "…"
    return ",".join(map(_number, value)) if isinstance(value, list) else _number(value)


def _input(name: str, scope: GraphScope, *, exact: bool) -> str | None:
    if not name:
        return OMITTED
    known = scope.type_of(name)
    if known is None or not known.dtype or known.dims is None:
        return None
    dims = [str(dim) if exact and dim is not None else "?" for dim in known.dims]
    constant = scope.is_constant(name)
    text = input_text(TensorProto.DataType.Name(known.dtype), dims, constant=constant)
    tensor = scope.tensor(name) if exact and constant else None
    values = small_values(tensor) if tensor is not None and known.dtype != TensorProto.STRING else None
    return f"{text} {','.join(map(_number, values))}" if values else text


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
