"""Keeping ops away from the edge of a cut, for targets that trip over them there and nowhere else."""

from collections.abc import Collection

import onnx
from onnx import TensorProto, helper

from onnxbisect.cut.rename import tensor_names
from onnxbisect.model.scopes import domain_of

#: What a Relu of any opset takes.
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})


def cover_outputs(graph: onnx.GraphProto, ops: Collection[str]) -> dict[str, str]:
    """Put a Relu, which nothing folds away, behind every output that an op of these types makes.

    Returns the new name of each such output and the old one. Outputs that are not of floats stay as they are.
    """
    bare = {name for node in graph.node if node.op_type in ops and not domain_of(node) for name in node.output}
    covered = [value for value in graph.output if value.name in bare and value.type.tensor_type.elem_type in _FLOATS]
    if not covered:
        return {}
    taken = tensor_names(graph) | {node.name for node in graph.node}
    new_names = {}
    for value in covered:
        old = value.name
        new = f"{old}_covered"
        while new in taken:
            new += "_"
        taken.add(new)
        graph.value_info.add().CopyFrom(value)
        graph.node.append(helper.make_node("Relu", [old], [new], name=new))
        value.name = new
        new_names[new] = old
    return new_names
