"""The form of a file: what a tool may need although the model computes the same without it.

Spellings (defaults, constants, omitted outputs), the version of the format, and what a tool takes between two nodes
and not at the boundary: such files have other inputs and outputs than the model, which the change's sentence says.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from onnxbisect.cut.apply_format import apply_format
from onnxbisect.cut.neutral_boundary import exactness_of
from onnxbisect.cut.rename import rename_tensors, tensor_names, unused_name
from onnxbisect.cut.write import store_inside
from onnxbisect.errors import CutError
from onnxbisect.exactness import Exactness
from onnxbisect.file_remedies.remedy import (
    LARGEST_FILE,
    File,
    RemediedFile,
    copied,
    declared_values,
    file_remedy,
    forget,
)
from onnxbisect.language import BETWEEN, count, english, quoted, shortened
from onnxbisect.model.external import external_tensors, tensors
from onnxbisect.model.scopes import domain_of, every_node, is_constant, walk
from onnxbisect.model.unused import drop_unused, unread_outputs
from onnxbisect.model.versions import newer_ops, raised
from onnxbisect.preflight import NEWEST_IR_IN_GENERAL, ToolLimits, type_text
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.rewrites import NotApplicable
from onnxbisect.rewrites.apply import trace


@file_remedy("leave-out-unused", answers="")
def leave_out_unused(file: File, limits: ToolLimits) -> RemediedFile:
    """Functions, operator sets, constants and declared types that no node uses, left out."""
    result = copied(file.proto)
    gone = drop_unused(result)
    if not gone:
        raise NotApplicable("the file holds nothing that no node uses")
    of_each = {
        count(len(gone.functions), "function"): gone.functions,
        count(len(gone.domains), "operator set"): gone.domains,
        count(len(gone.constants), "constant"): gone.constants,
        count(len(gone.declared), "declared type"): gone.declared,
    }
    counts = english(", ").join(counted for counted, names in of_each.items() if names)
    return RemediedFile(proto=result, sentence=f"{counts} left out that no node uses")


@file_remedy("safe-names", answers="")
def safe_names(file: File, limits: ToolLimits) -> RemediedFile:
    """Names of inputs and outputs that consist of letters, digits and underscores."""
    result = copied(file.proto)
    renamed = apply_format(result, ProbeFormat(safe_names=True))
    if not renamed:
        raise NotApplicable("the names of all inputs and outputs are plain")
    names = shortened(tuple(f"{old} → {new}" for new, old in renamed.items()))
    sentence = (
        english("{number} inputs and outputs renamed: {names_}", number=len(renamed), names_=names)
        if len(renamed) > 1
        else english("1 input or output renamed: {names_}", names_=names)
    )
    return RemediedFile(proto=result, sentence=sentence)


@file_remedy("weights-inside", answers="")
def weights_inside(file: File, limits: ToolLimits) -> RemediedFile:
    """Weights that lie in other files, stored in the model file."""
    external = external_tensors(file.proto)
    if not external:
        raise NotApplicable("no weights lie in other files")
    result = copied(file.proto)
    try:
        store_inside(result, file.folder)
    except CutError as error:
        raise NotApplicable(str(error)) from error
    return RemediedFile(proto=result, sentence=f"{count(len(external), 'weight')} stored in the file")


@file_remedy("drop-empty-outputs", answers="empty-output-name")
def drop_empty_outputs(file: File, limits: ToolLimits) -> RemediedFile:
    """Empty names at the end of a node's outputs removed: an output that is left out there need not be written. Empty
    names before others are replaced by names that nothing reads, but for ops of onnxruntime's own, whose rules want
    them empty.
    """
    result = copied(file.proto)
    taken = tensor_names(result.graph)
    left_out = named = 0
    for node in walk(result.graph):
        kept = list(node.output)
        while len(kept) > 1 and not kept[-1]:
            kept.pop()
        left_out += len(kept) < len(node.output)
        del node.output[len(kept) :]
        before = [place for place, name in enumerate(kept[:-1]) if not name and not domain_of(node)]
        named += bool(before)
        for place in before:
            node.output[place] = unused_name(f"{kept[-1]}_unread", taken)
    if not left_out and not named:
        raise NotApplicable("no node has an output without a name")
    said = [english("empty outputs left out of {nodes}", nodes=count(left_out, "node"))] if left_out else []
    said += [english("empty outputs named at {nodes}", nodes=count(named, "node"))] if named else []
    return RemediedFile(proto=result, sentence=BETWEEN.join(said))


@file_remedy("drop-unread-outputs", answers="unread-output")
def drop_unread_outputs(file: File, limits: ToolLimits) -> RemediedFile:
    """Optional outputs at the end of a node's that nothing reads, left out, as Mean of LayerNormalization."""
    result = copied(file.proto)
    unread = unread_outputs(result)
    for node, names in unread:
        del node.output[-len(names) :]
    if not unread:
        raise NotApplicable("something reads each optional output, or the operator computes otherwise without it")
    forget(result.graph, {name for _, names in unread for name in names})
    left_out = count(sum(len(names) for _, names in unread), "output")
    return RemediedFile(proto=result, sentence=f"{left_out} that nothing reads left out")


#: Attributes that some tools refuse even with their default value, as written.
_UNWRITTEN = {"reduction": "reduction='none'", "layout": "layout=0"}
_REDUCTIONS = ("ScatterElements.reduction", "ScatterND.reduction")
#: Most bytes of a sparse tensor in dense form.
_LARGEST_DENSE = 64 << 20


@file_remedy("write-defaults", answers="missing-default-attr")
def write_defaults(file: File, limits: ToolLimits) -> RemediedFile:
    """Attributes that are left to their default, and kernel shapes, written out."""
    result = copied(file.proto)
    left_out = (*limits.probe_format.unwritten_defaults, *_REDUCTIONS)
    apply_format(result, ProbeFormat(explicit_defaults=True, unwritten_defaults=left_out))
    changed = _changed_nodes(file.proto, result)
    if not changed:
        raise NotApplicable("every attribute is written out")
    return RemediedFile(proto=result, sentence=f"default attributes written out at {count(changed, 'node')}")


@file_remedy("omit-reduction", answers="explicit-reduction-none")
def omit_reduction(file: File, limits: ToolLimits) -> RemediedFile:
    """Attributes that the tool refuses even where they have their default value, left out; without knowledge of the
    tool `reduction` of ScatterND and ScatterElements."""
    result = copied(file.proto)
    named = limits.probe_format.unwritten_defaults or _REDUCTIONS
    apply_format(result, ProbeFormat(unwritten_defaults=named))
    changed = _changed_nodes(file.proto, result)
    attributes = dict.fromkeys(name.partition(".")[2] for name in named)
    bound = " or ".join(_UNWRITTEN.get(attribute, attribute) for attribute in attributes)
    if not changed:
        raise NotApplicable(f"no node has the attribute {bound}")
    return RemediedFile(proto=result, sentence=f"{bound} left out at {count(changed, 'node')}")


@file_remedy("constants-to-initializers", answers="constant-node-not-tensor-value")
def constants_to_initializers(file: File, limits: ToolLimits) -> RemediedFile:
    """Constant nodes turned into initializers, in bodies too."""
    constants = sum(1 for node in walk(file.proto.graph) if is_constant(node))
    if not constants:
        raise NotApplicable("the graph has no Constant nodes")
    result = copied(file.proto)
    apply_format(result, ProbeFormat(constants_as_initializers=True))
    return RemediedFile(proto=result, sentence=f"{count(constants, 'Constant node')} turned into initializers")


#: Element types of shapes, axes and indices, which exporters share and no compiler minds.
_COUNTING = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)


@file_remedy("copy-shared-weights", answers="")
def copy_shared_weights(file: File, limits: ToolLimits) -> RemediedFile:
    """Weights that nodes read more than once, with a copy for each further time; those that bodies read stay."""
    graph = file.proto.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    times = shared_weights(graph)
    size = sum((number - 1) * stored[name].ByteSize() for name, number in times.items())
    if size + file.proto.ByteSize() > LARGEST_FILE:
        raise NotApplicable(f"copies of {size >> 20} MB would make a file that is too large")
    result = copied(file.proto)
    taken, seen = tensor_names(graph), set[str]()
    for node in result.graph.node:
        for slot, name in enumerate(node.input):
            if name not in times:
                continue
            if name in seen:
                copy = result.graph.initializer.add()
                copy.CopyFrom(stored[name])
                copy.name = node.input[slot] = unused_name(name, taken)
                taken.add(copy.name)
            seen.add(name)
    if not times:
        raise NotApplicable("no two nodes read the same weights")
    return RemediedFile(proto=result, sentence=f"{count(len(times), 'shared weight')} copied for each reader")


def shared_weights(graph: onnx.GraphProto) -> dict[str, int]:
    """How often nodes read each initializer that they read more than once, but for shapes and indices."""
    weights = {tensor.name for tensor in graph.initializer if tensor.data_type not in _COUNTING}
    times = Counter(name for node in graph.node for name in node.input if name in weights)
    return {name: number for name, number in times.items() if number > 1}


@file_remedy("densify", answers="sparse-initializer")
def densify(file: File, limits: ToolLimits) -> RemediedFile:
    """Sparse initializers in dense form."""
    graph = file.proto.graph
    if not graph.sparse_initializer:
        raise NotApplicable("the graph has no sparse initializer")
    result = copied(file.proto)
    del result.graph.sparse_initializer[:]
    for sparse in graph.sparse_initializer:
        name, elements = sparse.values.name, prod(sparse.dims)
        value = file.facts.value(name) if elements * 8 <= _LARGEST_DENSE else None
        if value is None:
            raise NotApplicable(f"{name} has {elements} elements, or indices that are out of range")
        result.graph.initializer.append(numpy_helper.from_array(value, name))
    return RemediedFile(
        proto=result, sentence=f"{count(len(graph.sparse_initializer), 'sparse initializer')} made dense"
    )


def _changed_nodes(before: onnx.ModelProto, after: onnx.ModelProto) -> int:
    old = [*before.graph.node, *(node for function in before.functions for node in function.node)]
    new = [*after.graph.node, *(node for function in after.functions for node in function.node)]
    return sum(one != other for one, other in zip(old, new, strict=True))


@file_remedy("neutral-boundary", answers="boundary-rank boundary-dtype")
def neutral_boundary(file: File, limits: ToolLimits) -> RemediedFile:
    """Inputs and outputs of a rank and dtype that the tool takes, under their names, with what restores them inside."""
    wanted = limits.probe_format
    taken = ProbeFormat(
        input_dtypes=wanted.input_dtypes,
        output_dtypes=wanted.output_dtypes,
        min_input_rank=wanted.min_input_rank,
        min_output_rank=wanted.min_output_rank,
        max_input_rank=wanted.max_input_rank,
        max_output_rank=wanted.max_output_rank,
    )
    result = copied(file.proto)
    graph = result.graph
    before = _boundary(graph)
    renamed = apply_format(result, taken)
    after = {renamed[name]: kind for name, kind in _boundary(graph).items() if name in renamed}
    if not after:
        raise NotApplicable(f"{limits.tool} is known to take all inputs and outputs as they are")
    inner = {old: new for new, old in renamed.items() if new in _boundary(graph)}
    rename_tensors(graph, {**inner, **{new: old for old, new in inner.items()}})
    _name_after(graph, {new: old for old, new in inner.items()})
    types = {inner[name]: before[name] for name in after}
    inputs = {value.name for value in graph.input}
    said = [
        english("input {name} made {type_} instead of {before_}", **made)
        if name in inputs
        else english("output {name} made {type_} instead of {before_}", **made)
        for name, kind in after.items()
        for made in [{"name": quoted(name), "type_": type_text(kind), "before_": type_text(before[name])}]
    ]
    return RemediedFile(
        proto=result,
        sentence=shortened(said, separator=BETWEEN),
        exactness=max((exactness_of(before[name], kind) for name, kind in after.items()), key=list(Exactness).index),
        types={**types, **after},
    )


def _name_after(graph: onnx.GraphProto, old_names: Mapping[str, str]) -> None:
    """Give a node without a name the one that reading the file gives it (`make_unique`), by its output's old name."""
    taken = {node.name for node in graph.node}
    for node in graph.node:
        if not node.name and (made := next(filter(None, node.output), "")) in old_names:
            node.name = unused_name(f"{node.op_type}_{old_names[made]}", taken)


@file_remedy("shorten-names", answers="boundary-name-too-long")
def shorten_names(file: File, limits: ToolLimits) -> RemediedFile:
    """Names of inputs and outputs that are no longer than what the tool reads of them."""
    longest = limits.probe_format.longest_name
    result = copied(file.proto)
    renamed = apply_format(result, ProbeFormat(longest_name=longest))
    if not renamed:
        raise NotApplicable("no name of an input or output is too long")
    inputs = {value.name for value in result.graph.input}
    what = english("input and output")
    if renamed.keys() <= inputs or inputs.isdisjoint(renamed):
        what = english("input") if renamed.keys() <= inputs else english("output")
    names = shortened(tuple(map(quoted, renamed)))
    types = {new: file.types[old] for new, old in renamed.items() if old in file.types}
    sentence = english("{what} names shortened to {longest} bytes: {names_}", what=what, longest=longest, names_=names)
    return RemediedFile(proto=result, sentence=sentence, types=types)


def _boundary(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    found = {}
    for value in (*graph.input, *graph.output):
        found[value.name] = onnx.TypeProto()
        found[value.name].CopyFrom(value.type)
    return found


#: The IR version that introduced each newer element type, according to onnx.proto.
_DTYPES = {
    TensorProto.DataType.Value(name): version
    for version, names in {
        4: "BFLOAT16",
        9: "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ",
        10: "UINT4 INT4",
        11: "FLOAT4E2M1",
        12: "FLOAT8E8M0",
        13: "UINT2 INT2",
    }.items()
    for name in names.split()
}
#: Attributes that name an element type.
_NAMING = ("to", "dtype", "output_dtype")


#: The last operator set before reductions got their axes as inputs, which most tools read.
_RAISED_TO = 17


@file_remedy("raise-opset", answers="opset-older-than-tool opset-too-old")
def raise_opset(file: File, limits: ToolLimits) -> RemediedFile:
    """Operator set 17, or the newest that the tool reads: ops in their newer form, by onnx's version converter."""
    now = file.facts.opsets.get("", 0)
    to = max(_RAISED_TO, limits.oldest_opset or 0)
    to = min(to, limits.newest_opset or to)
    if not 0 < now < to:
        raise NotApplicable(f"the operator set is {now}, which is not below {to}")
    return _in_operator_set(file, to)


@file_remedy("declare-opset-of-ops", answers="op-newer-than-opset")
def declare_opset_of_ops(file: File, limits: ToolLimits) -> RemediedFile:
    """The first operator set that has all ops of the file, where its own lacks some of them."""
    newer = newer_ops(file.proto)
    if not newer:
        raise NotApplicable("the operator set of the file has all of its ops")
    to = max(newer.values())
    if limits.newest_opset is not None and limits.newest_opset < to:
        raise NotApplicable(f"the tool reads no operator set above {limits.newest_opset}, and {to} has all of its ops")
    return _in_operator_set(file, to)


def _in_operator_set(file: File, to: int) -> RemediedFile:
    result = raised(file.proto, to, file.types, file.facts.value)
    before = {node.output[0]: node for node in file.proto.graph.node}
    for node in result.graph.node:
        if node.output[0] in before:
            trace(before[node.output[0]], node)
    return RemediedFile(
        proto=result, sentence=english("operator set {now} → {to}", now=file.facts.opsets.get("", 0), to=to)
    )


@file_remedy("lower-ir-version", answers="ir-newer-than-tool ir-version-too-new")
def lower_ir_version(file: File, limits: ToolLimits) -> RemediedFile:
    """The newest version of the format that the tool reads, where nothing in the file needs a newer one."""
    newest = limits.newest_ir or NEWEST_IR_IN_GENERAL
    proto = file.proto
    if proto.ir_version <= newest:
        raise NotApplicable(f"ir_version is {proto.ir_version}, which is not above {newest}")
    for version, what in _needs(proto):
        if version > newest:
            raise NotApplicable(f"the file has {what}, which IR version {version} brought in")
    result = copied(proto)
    result.ir_version = newest
    return RemediedFile(proto=result, sentence=f"ir_version {proto.ir_version} → {newest}")


def _needs(proto: onnx.ModelProto) -> Iterator[tuple[int, str]]:
    """Parts of the file that need a later version. Node metadata are of version 10; older readers skip them."""
    graph = proto.graph
    inputs = {value.name for value in graph.input}
    if any(tensor.name not in inputs for tensor in graph.initializer):
        yield 4, "initializers that are no inputs"
    if graph.quantization_annotation:
        yield 5, "quantization annotations"
    if graph.sparse_initializer:
        yield 6, "sparse initializers"
    if proto.training_info:
        yield 7, "training information"
    if proto.functions:
        yield 8, "local functions"
    if any(function.attribute_proto for function in proto.functions):
        yield 9, "functions whose attributes have defaults"
    if any(function.overload for function in proto.functions):
        yield 10, "overloaded functions"
    if proto.configuration:
        yield 11, "a configuration for several devices"
    dtypes = {tensor.data_type for tensor in tensors(proto)}
    dtypes |= {kind.tensor_type.elem_type for kind in _types(proto) if kind.HasField("tensor_type")}
    named = (it for node in every_node(proto) for it in node.attribute if it.name in _NAMING)
    dtypes |= {it.i for it in named if it.type == AttributeProto.INT}
    for dtype in sorted(dtypes & _DTYPES.keys()):
        yield _DTYPES[dtype], f"the element type {TensorProto.DataType.Name(dtype).lower()}"
    for kind in _types(proto):
        if kind.HasField("optional_type") or kind.HasField("sparse_tensor_type"):
            yield 8, "optional or sparse types"


def _types(proto: onnx.ModelProto) -> Iterator[onnx.TypeProto]:
    """Declared types, including those inside sequences and optionals."""
    for value in declared_values(proto):
        kind = value.type
        yield kind
        while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
            kind = getattr(kind, kind.WhichOneof("value")).elem_type
            yield kind
