"""Sessions of onnxruntime without optimisation, with little memory, and with a time limit for each run.

A model that is newer than onnxruntime is loaded at lower versions, and float16 and bfloat16 nodes are computed in
their own type. The CPU provider has few kernels for these types. It computes other float16 nodes in float32 between
Casts that it inserts, and removes each pair of Casts that meet, so that a chain of nodes is never rounded; it loads no
such bfloat16 nodes at all. Here each node is computed in float32 and its outputs are rounded by Casts of the model's
own, which onnxruntime keeps. What a single node adds up, as MatMul does, is therefore accumulated in float32 and
rounded once.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner

from onnxbisect.model.order import with_unique_names
from onnxbisect.model.scopes import bodies, domain_of, every_node, opset_versions, walk
from onnxbisect.model.versions import loadable

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


def narrow_types(model: onnx.ModelProto) -> set[int]:
    """Which of float16 and bfloat16 a tensor of the model is declared, stored or made as."""
    kinds = {kind for _, kind in _types(model.graph)}
    for node in chain(walk(model.graph), *map(walk, model.functions)):
        for attribute in node.attribute:
            kinds.add(attribute.i if attribute.name in ("to", *_TYPE_ATTRIBUTES) else attribute.t.data_type)
    return kinds.intersection(NARROW)


def in_declared_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model that onnxruntime computes as declared; the model itself if it has no such types.

    Inputs and outputs in bfloat16 become float32 tensors with values of bfloat16, since numpy lacks that type. Nodes
    of which a type is unknown are left to onnxruntime.
    """
    if not narrow_types(model):
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


def _types(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    """The element types of all tensors, as far as known."""
    for inner in (graph, *(body for node in walk(graph) for body in bodies(node))):
        for tensor in inner.initializer:
            yield tensor.name, tensor.data_type
        for sparse in inner.sparse_initializer:
            yield sparse.values.name, sparse.values.data_type
        for value in (*inner.input, *inner.value_info, *inner.output):
            if value.type.WhichOneof("value") is not None:
                is_tensor = value.type.HasField("tensor_type")
                yield value.name, value.type.tensor_type.elem_type if is_tensor else _NO_TENSOR


#: Time limit of a run as measured by `Clock`, because a Loop may be endless.
_SECONDS = 30.0
#: Share of the remaining seconds that one run may take, so that later runs have some left.
_SHARE = 0.5
_TICK = 0.05


class Clock:
    """Counts down seconds that several runs share.

    The smaller of elapsed time and this process's processor time counts, so that results do not depend on how busy the
    machine is.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic(), time.process_time()

    @property
    def left(self) -> float:
        """The remaining seconds; negative when the time is up."""
        wall, processor = self._began
        return self._seconds - min(time.monotonic() - wall, time.process_time() - processor)


class Session:
    """A model loaded for the CPU, with its external data below `folder`. Raises onnxruntime's exceptions.

    Nodes in float16 and bfloat16 are computed in these types (`in_declared_types`). A model that is newer than
    onnxruntime is loaded at lower versions (`loadable`). What would end the process fails (`with_sound_caches`).

    `timed_out` tells whether the clock ended the last run.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        import onnxruntime as ort  # here, since processes that run no models do without it

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Run the nodes that only read a tensor's shape or value as soon as possible, so that the tensor can be freed.
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.log_severity_level = 4
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        model = without_shapes_of_branches(with_sound_caches(loadable(model)))
        content = in_declared_types(with_unique_names(model)).SerializeToString()
        self._session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.timed_out = False

    @property
    def outputs(self) -> dict[str, str]:
        """The type of each output by name, as onnxruntime spells it."""
        return {output.name: output.type for output in self._session.get_outputs()}

    @property
    def shapes(self) -> dict[str, list[int | str | None]]:
        """The shape of each output by name, as onnxruntime infers it; a dimension may have a name, or nothing."""
        return {output.name: list(output.shape) for output in self._session.get_outputs()}

    def run(self, names: Sequence[str], feeds: Mapping[str, np.ndarray], clock: Clock) -> list[Any]:
        """Values of the named outputs, in order; ends the run after a share of the seconds left on the clock."""
        self.timed_out = False
        import onnxruntime as ort

        options = ort.RunOptions()

        own, done = Clock(min(_SECONDS, clock.left * _SHARE)), Event()

        def end() -> None:
            while not done.wait(max(own.left, _TICK)):
                if own.left <= 0:
                    self.timed_out = True
                    options.terminate = True
                    return

        timer = Thread(target=end, daemon=True)
        timer.start()
        try:
            outputs: list[Any] = self._session.run(list(names), dict(feeds), options)
            return outputs
        finally:
            done.set()
            timer.join()


#: The input of MultiHeadAttention from which on a cache is given.
_PAST_KEY = 6
#: The rank of keys that a cache is put before.
_NEW_KEYS = 3
#: How many outputs it has with a cache: its result, the new cached keys and the new cached values.
_OUTPUTS = 3
#: The first operator set with all that `with_sound_caches` adds.
_EXPAND = 8


def without_shapes_of_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy in which no branch of an If declares the shapes of its outputs.

    onnxruntime fails where a branch gives another shape than it declares. PyTorch's older exporter declares the shape
    of the one branch for the other, too, as for a Squeeze or a scatter_reduce of a tensor of any size.
    """
    if not any(_shaped_outputs(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for output in _shaped_outputs(copy):
        output.type.tensor_type.ClearField("shape")
    return copy


def _shaped_outputs(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """The outputs of branches of Ifs that have a shape."""
    for node in every_node(model):
        if node.op_type == "If":
            yield from (it for branch in bodies(node) for it in branch.output if it.type.tensor_type.HasField("shape"))


def with_sound_caches(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy in which onnxruntime's MultiHeadAttention with a cache does no harm: where there are no new
    keys it would end the process, so a Gather fails before; where the new cache is no output, it would compute with
    memory that it never wrote, so it is one.
    """
    versions = opset_versions(model.opset_import)
    if versions.get("", 0) < _EXPAND or not any(map(_has_cache, walk(model.graph))):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graphs = [copy.graph, *(body for node in walk(copy.graph) for body in bodies(node))]
    for graph in reversed(graphs):  # a graph's nodes are copied together with what was changed within them
        ranks = _ranks(copy) if graph is copy.graph else {}
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        del graph.node[:]
        for node in nodes:
            if _has_cache(node):
                if ranks.get(node.input[1]) == _NEW_KEYS:
                    made = [*node.output, *[""] * (_OUTPUTS - len(node.output))]
                    node.output[:] = [name or f"{made[0]}/onnxbisect_cache_{slot}" for slot, name in enumerate(made)]
                # These fail where there is no new key, and else give the keys as they are, which the node then reads.
                keys, said = (
                    node.input[1],
                    f"{node.name or node.output[0]}: onnxruntime would crash, for want of a new key",
                )
                first, axes, node.input[1] = f"{said}/first", f"{said}/shape", f"{said}/keys"
                zero = helper.make_tensor(f"{said}/zero", TensorProto.INT64, [1], [0])
                graph.node.extend(
                    (
                        helper.make_node("Constant", [], [zero.name], value=zero),
                        helper.make_node("Gather", [keys, zero.name], [first], name=said, axis=1),
                        helper.make_node("Shape", [first], [axes]),
                        helper.make_node("Expand", [keys, axes], [node.input[1]]),
                    )
                )
            graph.node.append(node)
    return copy


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    """The ranks of the tensors of the main graph, as far as onnx finds them."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # inference raises several types for contradictory models
        graph = model.graph
    known = {it.name: len(it.dims) for it in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            known[value.name] = len(value.type.tensor_type.shape.dim)
    return known


def _has_cache(node: onnx.NodeProto) -> bool:
    return node.op_type == "MultiHeadAttention" and any(node.input[_PAST_KEY:]) and bool(node.input[1])
