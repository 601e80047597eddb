"""A float16 or bfloat16 node as a float32 node between Casts, so that rules for float32 hold for it, too.

Targets and runtimes compute such a node in float32 and round its outputs, or in its own type; a replacement between
Casts does the first. The only difference that it can add to the rule's own is one rounding of each output.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.model.declared_types import NARROW
from onnxbisect.model.scopes import bodies
from onnxbisect.rewrites.facts import Facts
from onnxbisect.rewrites.rule import NotApplicable, Replacement


@dataclass(frozen=True, kw_only=True, eq=False)
class Widened:
    """The node in float32, what is known of its tensors, and what leads to its inputs.

    `casts` make computed inputs float32; `constants` are its constant inputs in float32.
    """

    node: onnx.NodeProto
    facts: Facts
    casts: tuple[onnx.NodeProto, ...]
    constants: tuple[TensorProto, ...]


def widened(node: onnx.NodeProto, facts: Facts, prefix: str) -> Widened | None:
    """The node with all tensors of a narrow type in float32; None if it has none, or has bodies or a function's."""
    narrow = {name for name in (*node.input, *node.output) if name and facts.dtype(name) in NARROW}
    if not narrow or bodies(node) or any(function.name == node.op_type for function in facts.functions):
        return None
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    names = {
        name: f"{prefix}float32/{number}" for number, name in enumerate(dict.fromkeys((*node.input, *node.output)))
    }
    casts, constants, types = [], [], {}
    for slot, name in enumerate(node.input):
        if name not in narrow:
            continue
        wide.input[slot] = names[name]
        if names[name] in types:
            continue
        types[names[name]] = _in_float32(facts, name)
        value = facts.value(name) if facts.is_constant(name) else None
        if value is None:
            casts.append(helper.make_node("Cast", [name], [names[name]], name=names[name], to=TensorProto.FLOAT))
        else:
            constants.append(numpy_helper.from_array(np.asarray(value).astype(np.float32), names[name]))
    for slot, name in enumerate(node.output):
        if name in narrow:
            wide.output[slot] = names[name]
            types[names[name]] = _in_float32(facts, name)
    known = facts.extended(types, constants)
    return Widened(node=wide, facts=known, casts=tuple(casts), constants=tuple(constants))


def narrowed(replacement: Replacement, made: Widened, outputs: Sequence[str], facts: Facts) -> Replacement:
    """The replacement of a widened node as one of the node itself, whose `outputs` have their type in `facts` again."""
    read = {name for node in replacement.nodes for name in node.input}
    read |= {name for node in replacement.nodes for body in bodies(node) for it in body.node for name in it.input}
    back = []
    for name, wide in zip(outputs, made.node.output, strict=True):
        dtype = facts.dtype(name) if name != wide else None
        if dtype is not None:
            back.append(helper.make_node("Cast", [wide], [name], name=f"{wide}/narrow", to=dtype))
    return Replacement(
        nodes=(*(cast for cast in made.casts if cast.output[0] in read), *replacement.nodes, *back),
        initializers=(*(it for it in made.constants if it.name in read), *replacement.initializers),
        opsets=replacement.opsets,
        removes=replacement.removes,
    )


def _in_float32(facts: Facts, name: str) -> onnx.TypeProto:
    kind = onnx.TypeProto()
    found = facts.type(name)
    if found is None:
        raise NotApplicable(f"the type of tensor '{name}' is not known")
    kind.CopyFrom(found)
    kind.tensor_type.elem_type = TensorProto.FLOAT
    return kind
