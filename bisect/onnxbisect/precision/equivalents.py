"""Models that compute the same, and bear low precision where the original does not.

A rewrite is worth trying where a node that has to stay precise is part of its pattern. It is exact in real numbers, and
in floats but for their rounding; scales are powers of two, so that they round nothing. Whether it helps is measured.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import ceil, log2

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxbisect.language import english
from onnxbisect.model.external import array_of
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import reads
from onnxbisect.precision.tensors import FLOAT16_LARGEST, SampledTensor
from onnxbisect.precision.wanted import Low

#: Ops that pass a positive factor of their first input on, also one for each channel.
_HOMOGENEOUS = frozenset({"Relu", "LeakyRelu", "Identity", "MaxPool", "AveragePool", "GlobalAveragePool", "Dropout"})
_SUMS = frozenset({"ReduceMean", "ReduceSum"})
#: What squares may reach at most behind a rewrite: sums of few stay below the end of float16.
_ROOM = 16
#: How many times larger than an ordinary channel one is that is worth a change.
_LARGER = 4
#: The operator set from which ReduceMax reads its axes.
_AXES_AS_INPUT = 18


@dataclass(frozen=True, kw_only=True)
class EquivalentChange:
    """A change of the model: the nodes that it is about, and what it does as a sentence."""

    nodes: frozenset[str]
    sentence: str


def rewritten(
    model: Model, keep: Iterable[str], low: Low, seen: Mapping[str, SampledTensor]
) -> tuple[onnx.ModelProto, tuple[EquivalentChange, ...]]:
    """The model with the rewrites that concern nodes to keep, and these; the same model if there are none."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = _Graph(proto.graph, model)
    done: list[EquivalentChange] = []
    for name in keep:
        if any(name in it.nodes for it in done):
            continue
        made = (rewrite(graph, name, seen) for rewrite in _REWRITES[low])
        done += filter(None, [next(filter(None, made), None)])
    graph.sort()
    return proto, tuple(done)


def _fold_scales(graph: "_Graph", name: str, seen: Mapping[str, SampledTensor]) -> EquivalentChange | None:
    """Scaling up and down again, with ops between that pass a positive factor on, becomes one scale or none."""
    for first in graph.nodes():
        scale = graph.factor(first)
        if scale is None or not np.all(scale[1] > 0):
            continue
        data, up = scale
        between, last = graph.chain(first, partial(_passes_on, graph, up))
        if last is None or (down := graph.factor(last)) is None or down[0] != [first, *between][-1].output[0]:
            continue
        chain = [first, *between, last]
        if name not in {node.name for node in chain}:
            continue
        names = frozenset(node.name for node in chain)
        for node in between:
            if node.op_type in ("Add", "Sub"):
                place = next(it for it in (1, 0) if graph.constant(node.input[it]) is not None)
                value = graph.constant(node.input[place])
                node.input[place] = graph.store(np.asarray(value) / up)
        both, end, result = up * down[1], data, last.output[0]
        if between:
            between[0].input[:] = [data if it == first.output[0] else it for it in between[0].input]
            end = between[-1].output[0]
        graph.remove(first)
        graph.remove(last)
        if not np.allclose(both, 1, rtol=1e-6, atol=0):
            graph.add("Mul", [end, graph.store(both)], result)
        elif between:
            between[-1].output[0] = result
        else:
            graph.add("Identity", [end], result)
        return EquivalentChange(
            nodes=names,
            sentence=english("fold the scale of '{first}' into that of '{last}'", first=first.name, last=last.name),
        )
    return None


def _passes_on(graph: "_Graph", scale: np.ndarray, node: onnx.NodeProto) -> bool:
    if node.op_type in ("Add", "Sub"):
        return any(graph.constant(name) is not None for name in node.input)
    over_images = node.op_type.endswith("Pool")
    return node.op_type in _HOMOGENEOUS and (not over_images or scale.size == 1 or scale.shape[-2:] == (1, 1))


def _equalise_channels(graph: "_Graph", name: str, seen: Mapping[str, SampledTensor]) -> EquivalentChange | None:
    """Channels that are larger than others get smaller weights, and the op that reads them larger ones."""
    for maker in graph.nodes():
        weight = graph.weight(maker)
        if weight is None or maker.output[0] not in seen:
            continue
        between, reader = graph.chain(maker, lambda node: node.op_type in _HOMOGENEOUS)
        read = None if reader is None else graph.weight(reader)
        chain = [maker, *between, *([] if reader is None else [reader])]
        if reader is None or read is None or name not in {node.name for node in chain}:
            continue
        channels = np.array(seen[maker.output[0]].channels)
        made, taken = weight.array.shape[weight.made], read.array.shape[read.read]
        if len(channels) != made or made != taken or not np.median(channels) or reader.input[0] != chain[-2].output[0]:
            continue
        factors = 2.0 ** np.round(np.log2(np.maximum(channels / np.median(channels), 1)))
        if factors.max() < _LARGER:
            continue
        maker.input[1] = graph.store(weight.array / weight.along(factors, weight.made))
        if len(maker.input) > 2 and maker.input[2]:
            bias = graph.constant(maker.input[2])
            if bias is None:
                continue
            maker.input[2] = graph.store(bias / factors)
        reader.input[1] = graph.store(read.array * read.along(factors, read.read))
        return EquivalentChange(
            nodes=frozenset(node.name for node in chain),
            sentence=english(
                "divide the weights of '{maker}' by up to {factor} in its large channels, and multiply those of "
                "'{reader}' there",
                maker=maker.name,
                reader=reader.name,
                factor=f"{factors.max():.0f}",
            ),
        )
    return None


def _scale_squares(graph: "_Graph", name: str, seen: Mapping[str, SampledTensor]) -> EquivalentChange | None:
    """The root of a sum of squares, of numbers divided by a power of two."""
    for square in graph.nodes():
        if not graph.is_square(square):
            continue
        sums, root = graph.chain(square, lambda node: node.op_type in _SUMS or graph.adds_number(node))
        chain = [square, *sums, *([] if root is None else [root])]
        if root is None or root.op_type != "Sqrt" or name not in {node.name for node in chain}:
            continue
        largest = max((seen[it.output[0]].largest for it in chain[:-1] if it.output[0] in seen), default=0.0)
        if largest <= FLOAT16_LARGEST:
            continue
        by = 2.0 ** ceil(log2((largest * _ROOM / FLOAT16_LARGEST) ** 0.5))
        data, result = square.input[0], root.output[0]
        small = graph.add("Mul", [data, graph.store(np.array(1 / by))])
        square.input[:] = [small if it == data else it for it in square.input]
        for node in sums:
            if node.op_type == "Add":
                place = next(it for it in (1, 0) if graph.constant(node.input[it]) is not None)
                node.input[place] = graph.store(np.asarray(graph.constant(node.input[place])) / by**2)
        readers = graph.readers(result)
        root.output[0] = graph.fresh("low_precision_root")
        quotients = [it for it in readers if it.op_type == "Div" and list(it.input) == [data, result]]
        for node in quotients:  # the factor cancels
            node.input[:] = [small, root.output[0]]
        if len(quotients) < len(readers) or graph.is_output(result):
            graph.add("Mul", [root.output[0], graph.store(np.array(by))], result)
        return EquivalentChange(
            nodes=frozenset(node.name for node in chain),
            sentence=english("divide '{tensor}' by {factor} before it is squared", tensor=data, factor=f"{by:.0f}"),
        )
    return None


def _shift_exponential(graph: "_Graph", name: str, seen: Mapping[str, SampledTensor]) -> EquivalentChange | None:
    """Exponentials that are divided by their sum, of numbers of which the largest is 0."""
    for exponential in graph.nodes():
        made = exponential.output[0] if exponential.op_type == "Exp" else ""
        readers = graph.readers(made) if made else []
        sums = [it for it in readers if it.op_type == "ReduceSum"]
        quotient = [
            it for it in readers if sums and it.op_type == "Div" and list(it.input) == [made, sums[0].output[0]]
        ]
        names = frozenset(it.name for it in (exponential, *sums, *quotient))
        if len(sums) != 1 or not quotient or len(readers) != 2 or name not in names:
            continue
        axes = graph.axes(sums[0])
        if axes is None or any(it.name == "keepdims" and it.i == 0 for it in sums[0].attribute):
            continue
        data = exponential.input[0]
        largest = graph.largest(data, axes)
        exponential.input[0] = graph.add("Sub", [data, largest])
        return EquivalentChange(
            nodes=names,
            sentence=english("subtract the largest number from '{tensor}' before its exponential", tensor=data),
        )
    return None


_REWRITES: Mapping[Low, tuple[Callable[["_Graph", str, Mapping[str, SampledTensor]], EquivalentChange | None], ...]] = {
    Low.INT8: (_fold_scales, _equalise_channels),
    Low.FLOAT16: (_scale_squares, _shift_exponential, _fold_scales),
}


@dataclass(frozen=True, kw_only=True)
class _Weight:
    """A constant weight, with the axes of the channels that its op makes and reads."""

    array: np.ndarray
    made: int
    read: int

    def along(self, factors: np.ndarray, axis: int) -> np.ndarray:
        """The factors in the shape of the weight."""
        return factors.reshape([-1 if place == axis else 1 for place in range(self.array.ndim)])


class _Graph:
    """A graph that is changed, with who makes and reads each tensor."""

    def __init__(self, graph: onnx.GraphProto, model: Model) -> None:
        self._graph, self._model = graph, model
        self._stored = {it.name: it for it in graph.initializer}

    def nodes(self) -> list[onnx.NodeProto]:
        return list(self._graph.node)

    def maker(self, tensor: str) -> onnx.NodeProto | None:
        return next((it for it in self._graph.node if tensor in it.output), None)

    def readers(self, tensor: str) -> list[onnx.NodeProto]:
        return [it for it in self._graph.node if tensor in it.input]

    def only_reader(self, tensor: str) -> onnx.NodeProto | None:
        """The one node that reads a tensor which nothing else does."""
        found = self.readers(tensor)
        outer = any(it.name == tensor for it in self._graph.output)
        return found[0] if len(found) == 1 and not outer else None

    def chain(
        self, first: onnx.NodeProto, passes: Callable[[onnx.NodeProto], bool]
    ) -> tuple[list[onnx.NodeProto], onnx.NodeProto | None]:
        """The nodes behind one of which each alone reads the one before and `passes`, and the next one."""
        between: list[onnx.NodeProto] = []
        node = self.only_reader(first.output[0])
        while node is not None and passes(node):
            between.append(node)
            node = self.only_reader(node.output[0])
        return between, node

    def is_output(self, tensor: str) -> bool:
        return any(it.name == tensor for it in self._graph.output)

    def is_square(self, node: onnx.NodeProto) -> bool:
        if node.op_type == "Mul":
            return node.input[0] == node.input[1]
        power = self.constant(node.input[1]) if node.op_type == "Pow" else None
        return power is not None and power.size == 1 and float(power.ravel()[0]) == 2

    def adds_number(self, node: onnx.NodeProto) -> bool:
        found = [self.constant(name) for name in node.input] if node.op_type == "Add" else []
        return any(value is not None and value.size == 1 for value in found)

    def weight(self, node: onnx.NodeProto) -> _Weight | None:
        """The constant weight of a Conv without groups, a Gemm or a MatMul."""
        array = self.constant(node.input[1]) if node.op_type in ("Conv", "Gemm", "MatMul") else None
        given = {it.name: it for it in node.attribute}
        plain = not ("group" in given and given["group"].i != 1) and "transA" not in given
        if array is None or not plain or array.ndim < 2 or (node.op_type == "MatMul" and array.ndim > 2):
            return None
        if node.op_type == "Gemm" and any(it in given and given[it].f != 1 for it in ("alpha", "beta")):
            return None
        turned = node.op_type == "Conv" or ("transB" in given and given["transB"].i)
        return _Weight(array=array, made=0, read=1) if turned else _Weight(array=array, made=1, read=0)

    def axes(self, node: onnx.NodeProto) -> list[int] | None:
        """The axes of a reduction where they are known."""
        given = next((list(it.ints) for it in node.attribute if it.name == "axes"), None)
        if given is None and len(node.input) > 1:
            stored = self._stored.get(node.input[1])
            value = self._model.known.get(node.input[1]) if stored is None else numpy_helper.to_array(stored)
            given = None if value is None else [int(it) for it in value.ravel()]
        return given

    def largest(self, tensor: str, axes: list[int]) -> str:
        """The largest number along axes, which stay."""
        opset = next((it.version for it in self._model.proto.opset_import if it.domain in ("", "ai.onnx")), 0)
        if opset < _AXES_AS_INPUT:
            return self.add("ReduceMax", [tensor], axes=axes, keepdims=1)
        return self.add("ReduceMax", [tensor, self.store(np.array(axes, np.int64))], keepdims=1)

    def constant(self, tensor: str) -> np.ndarray | None:
        """The value of a float constant."""
        stored, node = self._stored.get(tensor), self.maker(tensor)
        if stored is None and node is not None and node.op_type == "Constant":
            stored = next((it.t for it in node.attribute if it.name == "value"), None)
        if stored is None:
            known = self._model.known.get(tensor)
            return known if known is not None and known.dtype == np.float32 else None
        return array_of(stored, self._model.path.parent) if stored.data_type == onnx.TensorProto.FLOAT else None

    def factor(self, node: onnx.NodeProto | None) -> tuple[str, np.ndarray] | None:
        """What a Mul or Div by a constant scales, and the factor."""
        if node is None or node.op_type not in ("Mul", "Div"):
            return None
        for data, by in ((0, 1), (1, 0)) if node.op_type == "Mul" else ((0, 1),):
            value = self.constant(node.input[by])
            if value is not None and self.constant(node.input[data]) is None and np.all(value != 0):
                return node.input[data], value if node.op_type == "Mul" else 1 / value
        return None

    def store(self, value: np.ndarray) -> str:
        """A new constant."""
        name = self.fresh("low_precision_constant")
        self._graph.initializer.append(
            numpy_helper.from_array(value if value.dtype == np.int64 else value.astype(np.float32), name)
        )
        self._stored[name] = self._graph.initializer[-1]
        return name

    def add(self, op: str, inputs: list[str], output: str = "", **attributes: object) -> str:
        """A new node; its output, which gets a name of its own if it is given none."""
        output = output or self.fresh("low_precision_tensor")
        node = self._graph.node.add()
        node.CopyFrom(helper.make_node(op, inputs, [output], name=self.fresh(f"low_precision_{op}")))
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        return output

    def remove(self, node: onnx.NodeProto) -> None:
        self._graph.node.remove(node)

    def sort(self) -> None:
        """Order the nodes again."""
        made = {name for node in self._graph.node for name in node.output}
        rest, ordered = [onnx.NodeProto.FromString(it.SerializeToString()) for it in self._graph.node], []
        there: set[str] = set()
        while rest:
            waiting = []
            for node in rest:
                if all(name in there or name not in made for name in reads(node)):
                    ordered.append(node)
                    there.update(node.output)
                else:
                    waiting.append(node)
            rest = waiting
        del self._graph.node[:]
        self._graph.node.extend(ordered)

    def fresh(self, name: str) -> str:
        """A name that nothing has yet."""
        taken = {it for node in self._graph.node for it in (node.name, *node.input, *node.output)} | set(self._stored)
        taken |= {it.name for it in self._graph.input}
        return next(found for it in count() if (found := f"{name}_{it}") not in taken)
