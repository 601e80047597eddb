"""Nodes that can be neither run nor inferred because they use an op without a public schema, and proofs around them.

A proof runs the model without its opaque nodes (`around`): their outputs are inputs, with recorded or made-up values,
and what they read are further outputs, which are compared, too. Where all of these agree, the complete models agree,
whatever the opaque nodes compute.
"""

from collections.abc import Callable, Mapping
from functools import cache

import onnx

from onnxbisect.errors import ModelError
from onnxbisect.language import english, quoted
from onnxbisect.model.facts import size_of
from onnxbisect.model.pools import batch_pools, unbatched_pools
from onnxbisect.model.scopes import constant_names, domain_of, label, opset_versions, qualified, reads, walk
from onnxbisect.model.shapeops import RANDOM

#: Ops that draw random numbers whatever the values of their input: its shape counts.
GENERATORS = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})
_Call = tuple[str, str, str]
#: What onnxruntime's optimiser writes into ONNX's domain, where ONNX has no such operator.
_IN_ONNX_DOMAIN = frozenset({"SimplifiedLayerNormalization"})


def opaque_nodes(proto: onnx.ModelProto) -> dict[int, None]:
    """Indices, in order, of nodes that are, contain or call an op unknown to onnx, onnxruntime and the model itself."""
    functions = {(domain_of(f), f.name, f.overload): f for f in proto.functions}
    verdicts: dict[_Call, bool] = {}
    versions = opset_versions(proto.opset_import)
    return dict.fromkeys(
        index
        for index, node in enumerate(proto.graph.node)
        if any(_is_opaque(inner, versions, functions, verdicts) for inner in walk([node]))
    )


def recorded_tensors(proto: onnx.ModelProto, *, drawn: bool = False) -> tuple[list[str], list[str]]:
    """The tensors that opaque nodes make, and those whose values they read, once each; without constants.

    Samples may have both: an opaque node's recorded outputs, and the inputs on which they were recorded. Nodes that
    draw random numbers are among them if `drawn`.
    """
    nodes = [proto.graph.node[index] for index in [*opaque_nodes(proto), *(drawing(proto) if drawn else ())]]
    stored = constant_names(proto.graph)
    made = dict.fromkeys(name for node in nodes for name in node.output if name)
    reading = (node for node in nodes if node.op_type not in GENERATORS or domain_of(node))
    read = dict.fromkeys(name for node in reading for name in reads(node) if name not in stored)
    return list(made), list(read)


def drawing(proto: onnx.ModelProto) -> list[int]:
    """Indices of nodes that draw random numbers."""
    return [index for index, node in enumerate(proto.graph.node) if node.op_type in RANDOM and not domain_of(node)]


def around(
    proto: onnx.ModelProto,
    type_of: Callable[[str], onnx.TypeProto | None] = lambda name: None,
    *,
    drawn: bool = True,
) -> onnx.ModelProto:
    """The model without its opaque nodes, and with a batch for pools that lack one; the model itself if it has neither.

    Outputs of opaque nodes become inputs, of their type by `type_of` or else the file's. What they read becomes further
    outputs, unless it is an input itself. If `drawn`, nodes that draw random numbers are opaque here, since two runs
    draw other ones. Raises ModelError for an output whose type or shape is not known.
    """
    opaque = sorted({*opaque_nodes(proto), *(drawing(proto) if drawn else ())})
    if not opaque and not unbatched_pools(proto.graph, type_of):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    graph = copy.graph
    declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    made, read = recorded_tensors(proto, drawn=drawn)
    used = {name for node in graph.node for name in reads(node)} | {value.name for value in graph.output}
    for index in opaque:
        for name in (it for it in graph.node[index].output if it in used):
            kind = type_of(name) or declared.get(name)
            if kind is None or size_of(kind) is None:
                raise ModelError(_unknown(graph.node[index], name))
            graph.input.append(onnx.helper.make_value_info(name, kind))
    for index in reversed(opaque):
        del graph.node[index]
    fed = {value.name for value in graph.input}
    wanted = {value.name: value for value in graph.output if value.name not in fed}
    wanted |= {
        name: onnx.helper.make_value_info(name, type_of(name) or declared.get(name, onnx.TypeProto()))
        for name in read
        if name not in fed and name not in wanted
    }
    outputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in wanted.values()]
    del graph.output[:]
    graph.output.extend(outputs)
    kept = [it for it in graph.value_info if it.name not in made]
    kept = [onnx.ValueInfoProto.FromString(it.SerializeToString()) for it in kept]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    batch_pools(copy, type_of)
    return copy


def _unknown(node: onnx.NodeProto, name: str) -> str:
    """Why nothing can be run around a node: the type or shape of this output is not known."""
    if node.op_type in RANDOM and not domain_of(node):
        return english(
            "{op} {node} draws other numbers in each run, and type or shape of its output {tensor} are not known: "
            "make it an input of the model",
            op=node.op_type,
            node=quoted(label(node)),
            tensor=quoted(name),
        )
    return english(
        "{op} {node} is no op of onnxruntime, and type or shape of its output {tensor} are not known: "
        "give samples with its recorded tensors (docs/custom-ops.md)",
        op=qualified(node),
        node=quoted(label(node)),
        tensor=quoted(name),
    )


def _is_opaque(
    node: onnx.NodeProto,
    versions: Mapping[str, int],
    functions: Mapping[_Call, onnx.FunctionProto],
    verdicts: dict[_Call, bool],
) -> bool:
    domain = domain_of(node)
    call = (domain, node.op_type, node.overload)
    if call in functions:
        if call not in verdicts:
            verdicts[call] = True  # a function that calls itself means nothing
            function = functions[call]
            inside = opset_versions(function.opset_import)
            verdicts[call] = any(_is_opaque(inner, inside, functions, verdicts) for inner in walk(function))
        return verdicts[call]
    if is_of_onnxruntime(node):
        return False
    version = versions.get(domain)
    if version is None:
        return True
    later = not domain and onnx.defs.has(node.op_type)  # runs are in an operator set that has it
    return not later and not onnx.defs.has(node.op_type, version, domain)


def is_of_onnxruntime(node: onnx.NodeProto) -> bool:
    """Whether onnxruntime defines the op and ONNX does not, so that only a run tells its shapes."""
    return (domain_of(node), node.op_type) in _ort_operators()


@cache
def _ort_operators() -> frozenset[tuple[str, str]]:
    """Operators of onnxruntime that are not in the ONNX standard; a few of them are in its domain."""
    # Imported here to keep onnxruntime out of the memory of processes that run no model, such as the API.
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    return frozenset(
        (op.domain, op.name)
        for op in get_all_operator_schema()
        if op.domain.startswith("com.microsoft") or (not op.domain and op.name in _IN_ONNX_DOMAIN)
    )
