"""Other spellings of the same: defaults written out or left out, constants in plain form."""

from math import prod

import onnx
from onnx import numpy_helper

from onnxbisect.cut.apply_format import apply_format
from onnxbisect.file_remedies.editing import copied
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.scopes import is_constant, walk
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.rewrites import NotApplicable

_REDUCTIONS = ("ScatterElements.reduction", "ScatterND.reduction")
#: Most bytes of a sparse tensor in dense form.
_LARGEST_DENSE = 64 << 20


@file_remedy("write-defaults", answers="missing-default-attr")
def write_defaults(file: File, reader: Reader) -> Change:
    """Attributes that are left to their default, and kernel shapes, written out."""
    result = copied(file.proto)
    left_out = reader.probe_format.unwritten_defaults or _REDUCTIONS
    apply_format(result, ProbeFormat(explicit_defaults=True, unwritten_defaults=left_out))
    changed = _changed_nodes(file.proto, result)
    if not changed:
        raise NotApplicable("every attribute is written out")
    return Change(proto=result, sentence=f"default attributes written out at {count(changed, 'node')}")


@file_remedy("omit-reduction", answers="explicit-reduction-none")
def omit_reduction(file: File, reader: Reader) -> Change:
    """The attribute `reduction` of ScatterND and ScatterElements left out where it is 'none'."""
    result = copied(file.proto)
    apply_format(result, ProbeFormat(unwritten_defaults=_REDUCTIONS))
    changed = _changed_nodes(file.proto, result)
    if not changed:
        raise NotApplicable("no node has the attribute reduction='none'")
    return Change(proto=result, sentence=f"reduction='none' left out at {count(changed, 'node')}")


@file_remedy("constants-to-initializers", answers="constant-node-not-tensor-value")
def constants_to_initializers(file: File, reader: Reader) -> Change:
    """Constant nodes turned into initializers, in bodies too."""
    constants = sum(1 for node in walk(file.proto.graph) if is_constant(node))
    if not constants:
        raise NotApplicable("the graph has no Constant nodes")
    result = copied(file.proto)
    apply_format(result, ProbeFormat(constants_as_initializers=True))
    return Change(proto=result, sentence=f"{count(constants, 'Constant node')} turned into initializers")


@file_remedy("densify", answers="sparse-initializer")
def densify(file: File, reader: Reader) -> Change:
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
    return Change(proto=result, sentence=f"{count(len(graph.sparse_initializer), 'sparse initializer')} made dense")


def _changed_nodes(before: onnx.ModelProto, after: onnx.ModelProto) -> int:
    old = [*before.graph.node, *(node for function in before.functions for node in function.node)]
    new = [*after.graph.node, *(node for function in after.functions for node in function.node)]
    return sum(one != other for one, other in zip(old, new, strict=True))
