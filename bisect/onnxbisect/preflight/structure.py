"""Checks of the file as a whole: versions and names, which tools read before any op, its graph, its data."""

import re
from collections import Counter

import onnx

from onnxbisect.fingerprint import brief
from onnxbisect.language import count, english, shortened
from onnxbisect.model import Model
from onnxbisect.model.external import byte_size, is_external, tensors
from onnxbisect.model.gate import complaint
from onnxbisect.model.infer import contradiction
from onnxbisect.model.pools import unbatched_pools
from onnxbisect.model.scopes import bodies, captures, domain_of, is_constant, qualified, reads
from onnxbisect.model.versions import newer_ops
from onnxbisect.preflight.subject import CheckResult, InspectedModel, type_text, unique

#: The oldest opset that pulsar2 documents.
_OLDEST = 11
#: The newest opset and IR version that the onnx inside RKNN and TPU-MLIR knows.
NEWEST_OPSET_IN_GENERAL, NEWEST_IR_IN_GENERAL = 19, 9
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_LIMIT = 2 << 30
#: What onnx.checker says of an op that the operator set lacks.
_NO_SUCH_OP = "No Op registered for"
#: How a complaint of onnx's shape inference about a node begins.
_NODE = r"\(op_type:\w+, node name: "


def opset_too_old(subject: InspectedModel) -> CheckResult | None:
    """A default-domain opset below 11."""
    version = subject.opset
    return CheckResult(detail=f"opset {version}") if version is not None and version < _OLDEST else None


def opset_too_new(subject: InspectedModel) -> CheckResult | None:
    """A default-domain opset above 19."""
    version = subject.opset
    return CheckResult(detail=f"opset {version}") if version is not None and version > NEWEST_OPSET_IN_GENERAL else None


def op_newer_than_opset(subject: InspectedModel) -> CheckResult | None:
    """Ops of ONNX that the file's operator set does not have yet."""
    newer = newer_ops(subject.original)
    if not newer:
        return None
    ops = [english("{op} (new in {first})", op=op, first=first) for op, first in newer.items()]
    nodes = tuple(node.name for node in subject.original.graph.node if node.op_type in newer and not domain_of(node))
    return CheckResult(
        nodes=nodes, detail=english("opset {version} lacks {ops}", version=subject.opset, ops=shortened(ops, 3))
    )


def ir_version_too_new(subject: InspectedModel) -> CheckResult | None:
    """An IR version above 9."""
    version = subject.original.ir_version
    return CheckResult(detail=f"IR version {version}") if version > NEWEST_IR_IN_GENERAL else None


def missing_default_domain(subject: InspectedModel) -> CheckResult | None:
    """The model imports no opset for the standard ops."""
    imports = tuple(item.domain for item in subject.original.opset_import)
    return CheckResult(detail=english("imports {some}", some=shortened(imports))) if subject.opset is None else None


def duplicate_node_name(subject: InspectedModel) -> CheckResult | None:
    """Nodes of the file that share a name or have none; `nodes` are the generated names that reports use."""
    given = Counter(node.name for node in subject.original.graph.node)
    twice = unique(name for name, times in given.items() if name and times > 1)
    if not twice and not given[""]:
        return None
    unclear = {n.output[0] for n in subject.original.graph.node if given[n.name] > 1 or not n.name}
    parts = [english("{nodes} without a name", nodes=count(given[""], "node"))] if given[""] else []
    parts += [english("shared: {some}", some=shortened(twice))] if twice else []
    return CheckResult(
        nodes=tuple(n.name for n in subject.graph.node if n.output[0] in unclear), detail="; ".join(parts)
    )


def odd_names(subject: InspectedModel) -> CheckResult | None:
    """Inputs and outputs whose names have characters other than letters, digits, `_`, `.` and `-`."""
    boundary = (*subject.inputs, *(value.name for value in subject.graph.output))
    names = tuple(name for name in boundary if not _PLAIN.fullmatch(name))
    inner = sum(1 for name in subject.activations if not _PLAIN.fullmatch(name))
    texts = tuple(repr(name) for name in names)
    return (
        CheckResult(tensors=names, detail=english("{some}; {inner} tensors in all", some=shortened(texts), inner=inner))
        if names
        else None
    )


def outer_scope_capture(subject: InspectedModel) -> CheckResult | None:
    """Subgraphs that read tensors of the surrounding graph."""
    found = {node.name: captures(node) for node in subject.nodes if bodies(node)}
    nodes = tuple(name for name, names in found.items() if names)
    if not nodes:
        return None
    return CheckResult(
        nodes=nodes,
        tensors=unique(name for names in found.values() for name in names),
        detail=english("{nodes} with bodies that read outer tensors", nodes=count(len(nodes), "node")),
    )


def local_functions(subject: InspectedModel) -> CheckResult | None:
    """Functions that the model defines."""
    functions = {(domain_of(f), f.name, f.overload): f for f in subject.model.proto.functions}
    nodes = subject.holders(
        s for s in subject.sites if (domain_of(s.node), s.node.op_type, s.node.overload) in functions
    )
    names = unique(f"{f.domain}::{f.name}" for f in functions.values())
    return (
        CheckResult(nodes=nodes, detail=f"{count(len(functions), 'function')}: {shortened(names)}")
        if functions
        else None
    )


def initializer_as_input(subject: InspectedModel) -> CheckResult | None:
    """Weights that the file lists among its inputs."""
    weights = {t.name for t in subject.original.graph.initializer}
    names = tuple(value.name for value in subject.original.graph.input if value.name in weights)
    return CheckResult(tensors=names, detail=count(len(names), "initializer")) if names else None


def unused_input(subject: InspectedModel) -> CheckResult | None:
    """Graph inputs that nothing reads."""
    outputs = {value.name for value in subject.graph.output}
    names = tuple(n for n in subject.inputs if n not in subject.consumers and n not in outputs)
    return CheckResult(tensors=names, detail=shortened(names)) if names else None


def input_is_output(subject: InspectedModel) -> CheckResult | None:
    """Graph outputs that are a graph input, itself or through Identity."""
    inputs = set(subject.inputs)
    names = []
    for value in subject.graph.output:
        source = value.name
        while (node := subject.producers.get(source)) is not None and node.op_type == "Identity":
            source = node.input[0]
        if source in inputs:
            names.append(value.name)
    return CheckResult(tensors=tuple(names), detail=shortened(names)) if names else None


def constant_output(subject: InspectedModel) -> CheckResult | None:
    """Graph outputs that do not depend on any input."""
    reached = set(subject.inputs)
    for node in subject.nodes:
        if any(name in reached for name in reads(node)):
            reached.update(node.output)
    names = tuple(v.name for v in subject.graph.output if v.name in subject.constants or v.name not in reached)
    return CheckResult(tensors=names, detail=shortened(names)) if names else None


def no_compute_node(subject: InspectedModel) -> CheckResult | None:
    """Models without a node once constants are folded."""
    if any(name not in subject.constants for node in subject.nodes for name in node.output if name):
        return None
    return CheckResult(detail=english("every node computes a constant"))


def no_input(subject: InspectedModel) -> CheckResult | None:
    """A graph without inputs."""
    return None if subject.inputs else CheckResult(detail=english("the graph has no input"))


def sparse_initializer(subject: InspectedModel) -> CheckResult | None:
    """Sparse weights."""
    names = tuple(t.values.name for t in subject.graph.sparse_initializer)
    return CheckResult(tensors=names, detail=count(len(names), "sparse initializer")) if names else None


def model_over_2gb(subject: InspectedModel) -> CheckResult | None:
    """Models larger than one protobuf message."""
    size = sum(byte_size(t.data_type, t.dims) for t in tensors(subject.model.proto))
    return (
        CheckResult(detail=english("{total} MB of weights", total=f"{size / (1 << 20):.0f}"))
        if size >= _LIMIT
        else None
    )


def external_data(subject: InspectedModel) -> CheckResult | None:
    """Weights in other files."""
    names = tuple(t.name for t in tensors(subject.model.proto) if is_external(t) and t.name)
    return (
        CheckResult(tensors=names, detail=english("{tensors} in other files", tensors=count(len(names), "tensor")))
        if names
        else None
    )


def unbatched_pool(subject: InspectedModel) -> CheckResult | None:
    """Pools whose kernel has one dimension less than their input, where ONNX asks for two less: batch and channels."""
    graph = subject.original.graph
    nodes = [graph.node[index] for index in unbatched_pools(graph, subject.model.types.get)]
    ops = shortened(unique(node.op_type for node in nodes))
    # reading the model put a Squeeze behind each, which makes the tensor that the pool makes in the file
    behind = [subject.producers[name] for node in nodes for name in node.output if name in subject.producers]
    pools = [subject.producers[name] for it in behind for name in it.input[:1] if name in subject.producers]
    return CheckResult(nodes=unique(pool.name for pool in pools), detail=ops) if nodes else None


def invalid_model(subject: InspectedModel) -> CheckResult | None:
    """Complaints of onnx.checker about the file, but for ops that are newer than its operator set."""
    refused = complaint(subject.original)
    newer = newer_ops(subject.original) and refused.startswith(_NO_SUCH_OP)
    return CheckResult(detail=refused) if refused and not newer else None


def invalid_node(subject: InspectedModel) -> CheckResult | None:
    """The first node that onnx's shape inference refuses: what it reads is of another shape than it takes."""
    said = _refusal_of_inference(subject.model)
    return CheckResult(nodes=_refused_in(said), detail=brief(said)) if said else None


def invalid_nodes(model: Model) -> tuple[str, ...]:
    """The node that an `invalid-node` is about."""
    return _refused_in(_refusal_of_inference(model))


def _refused_in(said: str) -> tuple[str, ...]:
    found = re.match(rf"{_NODE}(.*?)\): ", said)
    return () if found is None else (found[1],)


def _refusal_of_inference(model: Model) -> str:
    """The first complaint: those about nodes behind it may follow from it."""
    nodes = (node for node in model.proto.graph.node if not is_constant(node))
    if all(name in model.types for node in nodes for name in node.output if name):
        return ""
    return re.split(rf" (?={_NODE})", contradiction(model.proto, model.known))[0]


def shape_contradiction(subject: InspectedModel) -> CheckResult | None:
    """Types declared in the file that contradict those found by a run or by inference."""
    boundary = {value.name for value in subject.original.graph.input}
    wrong = {
        value.name: english(
            "{name}: declared {type_text}, is {type_text_b}",
            name=value.name,
            type_text=type_text(value.type),
            type_text_b=type_text(real),
        )
        for value in (*subject.original.graph.value_info, *subject.original.graph.output)
        if value.name not in boundary
        and (real := subject.model.types.get(value.name)) is not None
        and contradict(value.type, real)
    }
    return CheckResult(tensors=tuple(wrong), detail=shortened(tuple(wrong.values()), 3)) if wrong else None


def not_topologically_sorted(subject: InspectedModel) -> CheckResult | None:
    """Nodes listed before the producer of their input."""
    graph = subject.original.graph
    position = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    early = [node for index, node in enumerate(graph.node) if any(position.get(n, -1) > index for n in reads(node))]
    names = tuple(subject.producers[node.output[0]].name for node in early if node.output[0] in subject.producers)
    return (
        CheckResult(nodes=names, detail=english("{nodes} before what they read", nodes=count(len(early), "node")))
        if early
        else None
    )


def shape_subgraph_not_folded(subject: InspectedModel) -> CheckResult | None:
    """Nodes with constant results, except for the dequantised weights of a quantised model."""
    nodes = [
        node
        for node in subject.nodes
        if any(node.output)
        and all(name in subject.constants for name in node.output if name)
        and node.op_type not in ("QuantizeLinear", "DequantizeLinear")
    ]
    ops = unique(qualified(node) for node in nodes)
    computing = count(len(nodes), "node")
    detail = english("{nodes} that compute constants: {some}", nodes=computing, some=shortened(ops, 8))
    return CheckResult(nodes=tuple(node.name for node in nodes), detail=detail) if nodes else None


def contradict(declared: onnx.TypeProto, real: onnx.TypeProto) -> bool:
    """Whether a declared type contradicts the one that was found."""
    if declared.WhichOneof("value") is None:
        return False
    if declared.WhichOneof("value") != real.WhichOneof("value"):
        return True
    if not declared.HasField("tensor_type"):
        return False
    said, is_ = declared.tensor_type, real.tensor_type
    if said.elem_type and is_.elem_type and said.elem_type != is_.elem_type:
        return True
    if not said.HasField("shape") or not is_.HasField("shape"):
        return False
    return len(said.shape.dim) != len(is_.shape.dim) or any(
        a.dim_value > 0 and b.HasField("dim_value") and a.dim_value != b.dim_value
        for a, b in zip(said.shape.dim, is_.shape.dim, strict=True)
    )


CHECKS = {
    "opset-too-old": opset_too_old,
    "opset-too-new": opset_too_new,
    "op-newer-than-opset": op_newer_than_opset,
    "ir-version-too-new": ir_version_too_new,
    "missing-default-domain": missing_default_domain,
    "duplicate-node-name": duplicate_node_name,
    "odd-names": odd_names,
    "outer-scope-capture": outer_scope_capture,
    "local-functions": local_functions,
    "initializer-as-input": initializer_as_input,
    "unused-input": unused_input,
    "input-is-output": input_is_output,
    "constant-output": constant_output,
    "no-compute-node": no_compute_node,
    "no-input": no_input,
    "sparse-initializer": sparse_initializer,
    "model-over-2gb": model_over_2gb,
    "external-data": external_data,
    "unbatched-pool": unbatched_pool,
    "invalid-model": invalid_model,
    "invalid-node": invalid_node,
    "shape-contradiction": shape_contradiction,
    "not-topologically-sorted": not_topologically_sorted,
    "shape-subgraph-not-folded": shape_subgraph_not_folded,
}
