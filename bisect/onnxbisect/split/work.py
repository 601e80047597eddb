"""Estimate how much each unit computes, well enough to tell a few reshapes from the body of a network."""

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from numpy.typing import NDArray

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.footprint import dims_of
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import domain_of
from onnxbisect.unitset import UnitSet, indices

#: Estimated work, indexed by unit.
Work = NDArray[np.float64]
Shapes = Mapping[str, tuple[int, ...]]

#: Matrix products, and convolutions with the number of the input that is their weight.
_PRODUCTS = frozenset({"MatMul", "MatMulInteger", "QLinearMatMul"})
_CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}


def work_of(model: Model) -> Work:
    """For each unit the multiplications of a matrix product or convolution, else the elements of its outputs.

    At least 1, also where shapes are unknown. Subgraphs and local functions are not analysed.
    """
    shapes = {name: dims_of(kind) for name, kind in model.types.items() if _has_shape(kind)}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in model.proto.graph.initializer}
    return np.array([max(_work(model.proto.graph.node[unit.node], shapes), 1) for unit in model.units], np.float64)


def total(work: Work, units: UnitSet) -> float:
    """The sum of these units' work."""
    return float(work[indices(units)].sum())


def _has_shape(kind: onnx.TypeProto) -> bool:
    return kind.HasField("tensor_type") and not is_unbound(kind)


def _work(node: onnx.NodeProto, shapes: Shapes) -> int:
    made = sum(prod(shapes.get(name, ())) for name in node.output if name)
    if domain_of(node):
        return made
    if node.op_type in _PRODUCTS:
        return made * prod(_shape(node, 0, shapes)[-1:])
    if node.op_type == "Gemm":
        transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        return made * prod(_shape(node, 0, shapes)[:1] if transposed else _shape(node, 0, shapes)[1:])
    if node.op_type in _CONVOLUTIONS:
        return made * prod(_shape(node, _CONVOLUTIONS[node.op_type], shapes)[1:])
    if node.op_type == "ConvTranspose":
        return prod(_shape(node, 0, shapes)) * prod(_shape(node, 1, shapes)[1:])
    return made


def _shape(node: onnx.NodeProto, number: int, shapes: Shapes) -> tuple[int, ...]:
    return shapes.get(node.input[number], ()) if number < len(node.input) else ()
