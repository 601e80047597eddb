"""Make onnxruntime compute float16 and bfloat16 nodes in their own type.

Its CPU provider has few kernels for these types. It computes other float16 nodes in float32 between Casts that it
inserts, and removes each pair of Casts that meet, so that a chain of nodes is never rounded; it loads no such bfloat16
nodes at all. Here each node is computed in float32 and its outputs are rounded by Casts of the model's own, which
onnxruntime keeps. What a single node adds up, as MatMul does, is therefore accumulated in float32 and rounded once.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count

import onnx
from onnx import TensorProto, helper, inliner

from onnxbisect.model.scopes import bodies, domain_of, walk

#: The types that are computed in float32 and rounded.
NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Element types that numpy, and so onnxruntime's Python API, lacks.
_NOT_FED = TensorProto.BFLOAT16
#: Ops that move tensors as they are, or whose output type is an attribute.
_KEPT = frozenset(
    {"Cast", "CastLike", "Constant", "ConstantOfShape", "EyeLike", "Identity", "If", "Loop", "Scan", "SequenceMap"}
)
#: Attributes with the element type of an output.
_TYPE_ATTRIBUTES = ("dtype", "output_dtype")
#: Stands for what is no tensor among element types.
_NO_TENSOR = -1


def rounding(exact: str, low: str, name: str, dtype: int) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """Nodes that round the float32 tensor `exact` to `dtype` (`low`), and make float32 of that again (`name`)."""
    return (
        helper.make_node("Cast", [exact], [low], to=dtype),
        helper.make_node("Cast", [low], [name], to=TensorProto.FLOAT),
    )


def has_narrow_types(model: onnx.ModelProto) -> bool:
    """Whether a tensor of the model is declared, stored or made as float16 or bfloat16."""
    nodes = chain(walk(model.graph), *map(walk, model.functions))
    return any(kind in NARROW for _, kind in _types(model.graph)) or any(map(_makes, nodes))


def in_declared_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model that onnxruntime computes as declared; the model itself if it has no such types.

    Inputs and outputs in bfloat16 become float32 tensors with values of bfloat16, since numpy lacks that type. Nodes
    of which a type is unknown are left to onnxruntime.
    """
    if not has_narrow_types(model):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if copy.functions:
        copy = inliner.inline_local_functions(copy)
    try:
        inferred = onnx.shape_inference.infer_shapes(copy)
    except Exception:  # inference raises several types for contradictory models, which may run nonetheless
        inferred = copy
    types = {name: kind for name, kind in _types(inferred.graph) if kind}
    _Rewriting(types).rewrite_main(copy.graph)
    return copy


class _Rewriting:
    """Rewrites the graphs of one model; `types` are the element types of its tensors."""

    def __init__(self, types: dict[str, int]) -> None:
        self._types = types
        self._numbers = count()

    def rewrite_main(self, graph: onnx.GraphProto) -> None:
        """Rewrite the main graph, and take inputs and outputs that cannot be fed or fetched as float32."""
        stored = {tensor.name for tensor in graph.initializer}
        fed = [it for it in graph.input if it.name not in stored and self._types.get(it.name) == _NOT_FED]
        fetched = [it for it in graph.output if self._types.get(it.name) == _NOT_FED]
        names = {it.name: self._new(it.name) for it in (*fed, *fetched)}
        self._types |= dict.fromkeys(names.values(), _NOT_FED)
        for value in (*fed, *fetched):
            value.type.tensor_type.elem_type = TensorProto.FLOAT
        for tensor in graph.initializer:
            tensor.name = names.get(tensor.name, tensor.name)
        inputs = {it.name for it in fed}
        casts = [helper.make_node("Cast", [it], [names[it]], to=_NOT_FED) for it in inputs]
        nodes = self._rewritten(graph.node, names)
        made = [
            helper.make_node("Cast", [names[it.name]], [it.name], to=TensorProto.FLOAT)
            for it in fetched
            if it.name not in inputs
        ]
        _replace(graph, [*casts, *nodes, *made])

    def _rewritten(self, nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> list[onnx.NodeProto]:
        """The nodes of one graph; `names` are new names of tensors."""
        done: list[onnx.NodeProto] = []
        wide: dict[str, str] = {}
        for node in nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
            for body in bodies(node):
                _replace(body, self._rewritten(body.node, names))
            done += self._rounded(node, wide) if self._computes(node) else [node]
        return done

    def _computes(self, node: onnx.NodeProto) -> bool:
        if node.op_type in _KEPT and not domain_of(node):
            return False
        made = [self._types.get(name) for name in node.output if name]
        read = [self._types.get(name) for name in node.input if name]
        if None in made or _NO_TENSOR in (*made, *read):
            return False
        return any(kind in NARROW for kind in read)

    def _rounded(self, node: onnx.NodeProto, wide: dict[str, str]) -> Iterator[onnx.NodeProto]:
        """The node in float32, with Casts before and behind it; `wide` has the tensors that were cast already."""
        for slot, name in enumerate(node.input):
            if self._types.get(name) not in NARROW:
                continue
            if name not in wide:
                wide[name] = self._new(name)
                yield helper.make_node("Cast", [name], [wide[name]], to=TensorProto.FLOAT)
            node.input[slot] = wide[name]
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in NARROW:
                attribute.i = TensorProto.FLOAT
        casts = []
        for slot, name in enumerate(node.output):
            kind = self._types.get(name)
            if kind in NARROW:
                node.output[slot] = self._new(name)
                casts.append(helper.make_node("Cast", [node.output[slot]], [name], to=kind))
        yield node
        yield from casts

    def _new(self, name: str) -> str:
        return f"{name}/onnxbisect_{next(self._numbers)}"


def _replace(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Set the nodes of a graph; types declared within are dropped, since some are others now."""
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    del graph.value_info[:]
    graph.node.extend(kept)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all bodies in it."""
    yield graph
    for node in walk(graph):
        yield from bodies(node)


def _types(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    """The element types of all tensors, as far as known."""
    for inner in _graphs(graph):
        for tensor in inner.initializer:
            yield tensor.name, tensor.data_type
        for sparse in inner.sparse_initializer:
            yield sparse.values.name, sparse.values.data_type
        for value in (*inner.input, *inner.value_info, *inner.output):
            if value.type.WhichOneof("value") is not None:
                is_tensor = value.type.HasField("tensor_type")
                yield value.name, value.type.tensor_type.elem_type if is_tensor else _NO_TENSOR


def _makes(node: onnx.NodeProto) -> bool:
    """Whether an attribute of the node is of these types, or makes its output of these."""
    return any(
        attribute.t.data_type in NARROW or (attribute.name in ("to", *_TYPE_ATTRIBUTES) and attribute.i in NARROW)
        for attribute in node.attribute
    )
