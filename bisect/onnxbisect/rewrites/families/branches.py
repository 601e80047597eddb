"""An If whose condition is computed, as a choice between the results of both branches."""

from collections.abc import Mapping, Set
from math import prod

import onnx
from onnx import TensorProto, helper

from onnxbisect.cut.functions import call_of
from onnxbisect.exactness import Exactness
from onnxbisect.model.scopes import bodies, captures, constant_names, domain_of, is_constant
from onnxbisect.model.shapeops import SHAPE_SLOTS
from onnxbisect.rewrites.exactness import Bound
from onnxbisect.rewrites.families.bodies import branch
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import FLOATS, Site

#: Ops that stop with an error for some values of the input of this slot, from which the condition may keep them.
#: So do those with inputs that decide a shape.
_DEMANDING = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "MaxUnpool"), 1),
    **dict.fromkeys(("CumSum", "ReverseSequence", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), 1),
    "RoiAlign": 2,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), 4),
}
#: The same, where strings are converted.
_CONVERTING = ("Cast", "CastLike")
#: The same, where the numbers are integers.
_DIVIDING = ("Div", "Mod")
#: Constants of up to this many elements are shown to shape inference as values.
_SMALL = 4096


@pytorch("torch.where(condition, a, b) instead of torch.cond or if")
@rule(
    "If -> *",
    Exactness.ROUNDING,
    Bound(note="both branches are computed; of -0 the Where of onnxruntime may make 0"),
    rank=14,
    source="https://github.com/onnx/optimizer",
)
def if_where(at: Site) -> tuple[str, ...]:
    """Both branches, and Where on their results, of equal and fixed shapes."""
    for body in bodies(at.node):
        graph = _inferred(at, body)
        _demand_total(at, graph, {}, frozenset())
        types = _types(graph)
        for slot, value in enumerate(graph.output):
            shape = _shape(types.get(value.name))
            at.demand(shape == at.output_shape(slot), "the shape of a branch's result is not known, or another one")
    taken, other = branch(at, "then_branch"), branch(at, "else_branch")
    return tuple(at.op("Where", at.input(0), a, b) for a, b in zip(taken, other, strict=True))


def _demand_total(at: Site, graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto], fixed: Set[str]) -> None:
    """Give the node up where computing a branch that is not taken could fail, or not end. `types` and `fixed` are those
    of tensors, and the constants, of the branches around it.
    """
    types = {**types, **_types(graph)}
    functions = {(domain_of(it), it.name, it.overload) for it in at.facts.functions}
    fixed = fixed | constant_names(graph) | {it.output[0] for it in graph.node if is_constant(it)}
    for node in graph.node:
        at.demand(not bodies(node) or (node.op_type == "If" and not domain_of(node)), "a branch has a loop")
        for body in bodies(node):
            _demand_total(at, body, types, fixed)
        free = {name for name in node.input if name and name not in fixed and not at.facts.is_constant(name)}
        at.demand(
            all(_shape(types.get(name)) is not None for name in free),
            f"{node.op_type} in a branch may fail for sizes for which the other branch is taken",
        )
        at.demand(call_of(node) not in functions, "a branch calls a function, in which something may fail")
        slots = {*SHAPE_SLOTS.get(node.op_type, ()), _DEMANDING.get(node.op_type)}
        if node.op_type in _DIVIDING and _dtype(types.get(node.input[0])) not in FLOATS:
            slots.add(1)
        if node.op_type in _CONVERTING and _dtype(types.get(node.input[0])) == TensorProto.STRING:
            slots.add(0)
        at.demand(
            not any(slot in slots and name in free for slot, name in enumerate(node.input)),
            f"{node.op_type} in a branch may fail for values for which the other branch is taken",
        )


def _inferred(at: Site, body: onnx.GraphProto) -> onnx.GraphProto:
    """A branch with what shape inference finds of its tensors, given those that it reads from outside."""
    graph = onnx.GraphProto()
    graph.CopyFrom(body)
    for name in captures(at.node):
        held = at.facts.stored(name)
        if isinstance(held, TensorProto) and prod(held.dims) <= _SMALL and not held.external_data:
            graph.initializer.add().CopyFrom(held)
            graph.initializer[-1].name = name
        elif (kind := at.facts.type(name)) is not None:
            graph.input.append(helper.make_value_info(name, kind))
    opsets = [helper.make_opsetid(domain, version) for domain, version in at.facts.opsets.items()]
    model = helper.make_model(graph, opset_imports=opsets, functions=at.facts.functions)
    return onnx.shape_inference.infer_shapes(model).graph


def _types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    return {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}


def _shape(kind: onnx.TypeProto | None) -> tuple[int, ...] | None:
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None


def _dtype(kind: onnx.TypeProto | None) -> int:
    return 0 if kind is None else kind.tensor_type.elem_type
