"""Nodes that stand for others: functions of the model, operators that ONNX defines by a body, and branches of an If."""

from collections.abc import Mapping, Set
from math import prod

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxbisect.cut.rename import rename_tensors
from onnxbisect.exactness import Exactness
from onnxbisect.model.external import constant_tensor
from onnxbisect.model.scopes import bodies, call_of, captures, constant_names, domain_of, is_constant, reads, walk
from onnxbisect.model.shapeops import SHAPE_SLOTS
from onnxbisect.rewrites.rule import Bound, pytorch, rule
from onnxbisect.rewrites.site import FLOATS, Site

#: Operators whose body was compared with the operator. Left out are those that a family of its own does better, and
#: those whose body is wrong or worse: DynamicQuantizeLinear (scale 0 for zeros, not 1), Softplus (infinite from 89 on),
#: MeanVarianceNormalization (0.48 off), Range (a Loop), AffineGrid (an If), and random ones.
_TRUSTED = "Attention CastLike RotaryEmbedding Shrink"
#: The mode in which the fourth output of Attention is the products after the mask.
_MASKED = 2
_BODY_OPS = (
    "Abs Add And Cast CastLike Clip Concat Constant Div Equal Expand Gather Greater Identity Less MatMul Max Min Mul "
    "Neg Pad QuantizeLinear Range ReduceMax ReduceMin Reshape Round Shape Slice Softmax Split Sqrt Squeeze Sub Sum "
    "Tanh Tile Transpose Trilu Unsqueeze Where ConstantOfShape GreaterOrEqual Not Or ReduceMean"
)


def _expanded(at: Site, *, from_schema: bool) -> tuple[str, ...]:
    """The nodes of the body, in place of the call."""
    inlined = _inlined(at, from_schema=from_schema)
    graph = inlined.graph
    at.demand(
        all((node.op_type, node.domain) != (at.node.op_type, at.node.domain) for node in graph.node),
        "onnx cannot inline it here",
    )
    at.demand(
        all(node.attribute for node in graph.node if is_constant(node)),
        "an attribute is left out that a constant of the body needs",
    )
    if from_schema:
        fold(inlined)
    given = {value.name for value in graph.input}
    made = {name for node in graph.node for name in node.output if name} | constant_names(graph)
    fresh = {name: at.fresh(name) for name in made - given}
    rename_tensors(graph, fresh)
    opsets = {entry.domain: entry.version for entry in inlined.opset_import}
    for number, node in enumerate(graph.node):
        node.name = at.fresh(f"{node.op_type}_{number}")
        at.add(node, opsets)
    for tensor in graph.initializer:
        at.constant_tensor(tensor)
    return tuple(fresh.get(name, name) for name in at.node.output)


def _inlined(at: Site, *, from_schema: bool) -> onnx.ModelProto:
    """The node as a model of its own, its call replaced by the body."""
    kinds = {name: at.known(at.facts.type(name), f"the type of '{name}' is not known") for name in at.inputs()}
    outputs = {
        name: at.known(at.facts.type(name), f"the type of '{name}' is not known") for name in at.node.output if name
    }
    graph = helper.make_graph(
        [at.node],
        "call",
        [helper.make_value_info(name, kind) for name, kind in kinds.items()],
        [helper.make_value_info(name, kind) for name, kind in outputs.items()],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in at.facts.opsets.items()],
        functions=at.facts.functions,
        ir_version=10,
    )
    # Give every call of a function the attributes that it leaves to their defaults, which onnx.inliner forgets.
    defaults = {(domain_of(it), it.name, it.overload): it.attribute_proto for it in model.functions}
    for call in (*walk(model.graph), *(inner for function in model.functions for inner in walk(function))):
        given = {attribute.name for attribute in call.attribute}
        call.attribute.extend(it for it in defaults.get(call_of(call), ()) if it.name not in given)
    if from_schema:
        return onnx.inliner.inline_selected_functions(model, [("", at.node.op_type)], inline_schema_functions=True)
    return onnx.inliner.inline_local_functions(model)


@pytorch("torch.onnx.export(…, export_modules_as_functions=False)")
@rule("* -> *", Exactness.EXACT, rank=36, source="https://onnx.ai/ir-py/")
def inline_function(at: Site) -> tuple[str, ...]:
    """A call of one of the model's functions: its body, functions that it calls included."""
    own = any(
        (function.name, domain_of(function), function.overload)
        == (at.node.op_type, domain_of(at.node), at.node.overload)
        for function in at.facts.functions
    )
    at.demand(own, "the op is no function of the model")
    return _expanded(at, from_schema=False)


@pytorch("an older opset_version, at which the exporter writes the parts")
@rule(
    f"{_TRUSTED} -> {_BODY_OPS}",
    Exactness.ROUNDING,
    Bound(epsilons=16, of="the largest magnitude of the output, or 1"),
    rank=37,
    source="https://onnx.ai/onnx/api/inliner.html",
)
def schema_body(at: Site) -> tuple[str, ...]:
    """The body by which ONNX defines the operator."""
    at.demand(not at.node.domain, "the op is not one of ONNX")
    at.demand(all(at.node.input), "an input is left out, and onnx cannot inline that")
    at.demand(
        at.attribute("qk_matmul_output_mode", 0) != _MASKED or not any(at.node.output[3:]),
        "the masked products are in use, which are minus infinity in the body and the lowest number in onnxruntime",
    )
    return _expanded(at, from_schema=True)


def branch(at: Site, name: str) -> tuple[str, ...]:
    """The nodes of a branch, its own tensors under new names; returns its outputs."""
    attribute = next((it for it in at.node.attribute if it.name == name), None)
    graph = onnx.GraphProto()
    graph.CopyFrom(at.known(attribute, f"there is no {name}").g)
    at.demand(not graph.sparse_initializer, "the branch has a sparse constant")
    own = {output for node in graph.node for output in node.output if output} | constant_names(graph)
    rename_tensors(graph, {tensor: at.fresh(f"{name}/{tensor}") for tensor in own})
    for tensor in graph.initializer:
        at.constant_tensor(tensor)
    for number, node in enumerate(graph.node):
        node.name = at.fresh(f"{name}/{number}_{node.op_type}")
        at.add(node)
    return tuple(value.name for value in graph.output)


@pytorch("the branch that is taken, without an if on the values or shapes of tensors")
@rule("If -> *", Exactness.EXACT, rank=14, source="https://github.com/onnx/optimizer")
def if_constant(at: Site) -> tuple[str, ...]:
    """The branch that a constant condition takes."""
    return branch(at, "then_branch" if bool(at.value(0).all()) else "else_branch")


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
        # A branch with what shape inference finds of its tensors, given those that it reads from outside.
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
        graph = onnx.shape_inference.infer_shapes(model).graph
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


def _types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    return {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}


def _shape(kind: onnx.TypeProto | None) -> tuple[int, ...] | None:
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None


def _dtype(kind: onnx.TypeProto | None) -> int:
    return 0 if kind is None else kind.tensor_type.elem_type


#: Most elements of a folded constant.
_LARGEST = 1 << 16
#: Rounds of inference and folding; each finds shapes that the next one folds.
_ROUNDS = 8


def fold(model: onnx.ModelProto) -> None:
    """Compute, in place, what depends on no input, bypass copies, and remove what nothing reads."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for _ in range(_ROUNDS):
        before = len(model.graph.node)
        graph = onnx.shape_inference.infer_shapes(model).graph
        shapes = {}
        for value in [*graph.input, *graph.value_info, *graph.output]:
            kind = value.type.tensor_type
            if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
                shapes[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
        kept = [node for node in model.graph.node if not _computed(node, values, shapes, model)]
        _replace(model.graph, _without_copies(kept, {value.name for value in model.graph.output}))
        del model.graph.initializer[:]
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
        if len(model.graph.node) == before:
            break
    read = {value.name for value in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read.update(reads(node))
    _replace(model.graph, kept[::-1])
    constants = [tensor for tensor in model.graph.initializer if tensor.name in read]
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in constants]
    del model.graph.initializer[:]
    model.graph.initializer.extend(copies)


def _computed(
    node: onnx.NodeProto, values: dict[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], model: onnx.ModelProto
) -> bool:
    """Whether the node's outputs are known; they are added to `values`."""
    if is_constant(node):
        tensor = constant_tensor(node)
        if isinstance(tensor, onnx.TensorProto):
            values[node.output[0]] = numpy_helper.to_array(tensor)
        return isinstance(tensor, onnx.TensorProto)
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        dims = np.array(shapes[node.input[0]], np.int64)
        span = {attribute.name: attribute.i for attribute in node.attribute}
        part = dims[span.get("start", 0) : span.get("end")]
        values[node.output[0]] = part if node.op_type == "Shape" else np.array(dims.prod(), np.int64)
        return True
    if bodies(node) or not all(name in values for name in reads(node)):
        return False
    if any(prod(shapes.get(name, (_LARGEST + 1,))) > _LARGEST for name in node.output if name):
        return False
    graph = onnx.helper.make_graph(
        [node],
        "constant",
        [],
        [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        [numpy_helper.from_array(values[name], name) for name in reads(node)],
    )
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    results = ReferenceEvaluator(alone).run(None, {})
    values.update(zip((name for name in node.output if name), map(np.asarray, results), strict=True))
    return True


def _without_copies(nodes: list[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """The nodes without Identity nodes, except those that produce a graph output."""
    original: dict[str, str] = {}
    kept = []
    for node in nodes:
        node.input[:] = [original.get(name, name) for name in node.input]
        if node.op_type == "Identity" and node.output[0] not in outputs:
            original[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    return kept


def _replace(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
