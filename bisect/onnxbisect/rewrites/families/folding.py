"""Nodes that no input changes, as constants; constants in plain form."""

import numpy as np
import onnx

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import operator, pytorch, rule
from onnxbisect.rewrites.site import Site

_LARGEST = 1 << 24


@pytorch("Python numbers instead of tensors: x.shape[0], math.sin, range")
@rule("* ->", Exactness.EXACT, rank=8, source="https://github.com/onnx/optimizer")
def fold(at: Site) -> tuple[str, ...]:
    """What the node computes whatever the inputs, as constants."""
    found = []
    for name in at.node.output:
        value = at.known(at.facts.value(name), "it depends on an input, or was not computed") if name else np.zeros(0)
        at.demand(value.size <= _LARGEST and value.dtype != np.object_, "the constant would be too large")
        found.append(at.constant(value) if name else "")
    return tuple(found)


@pytorch("weight.to_dense()")
@rule("* -> *", Exactness.EXACT, rank=23, source=operator("Constant"))
def dense_constant(at: Site) -> tuple[str, ...]:
    """The node with its sparse constants in dense form."""
    sparse = {name: isinstance(at.facts.stored(name), onnx.SparseTensorProto) for name in at.inputs()}
    at.demand(any(sparse.values()), "it reads no sparse constant")
    node = onnx.NodeProto()
    node.CopyFrom(at.node)
    node.name = at.fresh(node.op_type)
    node.output[:] = [at.fresh(f"output_{slot}") if name else "" for slot, name in enumerate(node.output)]
    node.input[:] = [
        at.constant(value) if sparse.get(name) and (value := at.facts.value(name)) is not None else name
        for name in node.input
    ]
    at.add(node)
    return tuple(node.output)
