"""Find small inputs whose value alone decides a branch, the rounds of a loop, or a size."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxbisect.language import english
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.external import is_external
from onnxbisect.model.footprint import dims_of, elements
from onnxbisect.model.scopes import bodies, domain_of, is_constant, label, reads
from onnxbisect.model.shapeops import SHAPE_SLOTS, VALUE_FROM_SHAPE

#: Most elements of an input that someone would write on a command line.
_SMALL = 8
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
#: Ops that keep the values of their first input, so that what they make is compared with the same numbers.
_KEEPING = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
#: The inputs that decide what a node does, of control flow.
_CONTROL = {"If": (0,), "Loop": (0, 1)}


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """An input on whose value alone `node` depends: its branch, its number of rounds or its size.

    `compared` are the constants that the graph compares the input with.
    """

    input: onnx.ValueInfoProto
    node: onnx.NodeProto
    compared: tuple[bool | int | float, ...] = ()


def deciding_inputs(graph: onnx.GraphProto, known: Mapping[str, np.ndarray]) -> tuple[Deciding, ...]:
    """The small inputs that decide something, in their order, each with the first node that they decide.

    `known` are values of tensors. Control flow comes before sizes. Inputs that decide something together are all named.
    """
    small = {value.name: value for value in graph.input if _is_small(value.type)}
    if not small:
        return ()
    search = _Search(graph, known, small)
    search.follow(graph.node, {value.name: frozenset([value.name]) for value in graph.input}, {it: it for it in small})
    decided = {**search.sized, **search.steered}
    return tuple(
        Deciding(input=value, node=decided[name], compared=tuple(search.compared.get(name, ())))
        for name, value in small.items()
        if name in decided
    )


def described(found: Deciding) -> str:
    """Such as `If If_0 depends only on the scalar input 'sr', which is compared with 16000: --input-value sr=16000`."""
    name, dims = found.input.name, found.input.type.tensor_type.shape.dim
    values = [str(it).lower() if isinstance(it, bool) else str(it) for it in found.compared]
    noun = english("scalar input") if not dims else english("input")
    boolean = found.input.type.tensor_type.elem_type == onnx.TensorProto.BOOL
    value = values[0] if values else "true" if boolean else ",".join("…" * elements(found.input.type))
    node = f"{found.node.op_type} {label(found.node)}"
    if not values:
        return english(
            "{node} depends only on the {noun} {name}: --input-value {typed}={value}",
            node=node,
            noun=noun,
            name=repr(name),
            typed=name,
            value=value,
        )
    return english(
        "{node} depends only on the {noun} {name}, which is compared with {compared}: --input-value {typed}={value}",
        node=node,
        noun=noun,
        name=repr(name),
        compared=" and ".join(values),
        typed=name,
        value=value,
    )


def compared_values(graph: onnx.GraphProto, known: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A value for each input that decides something and is compared with a constant: that constant.

    Made-up inputs have it because random numbers always take the other branch, which may not run.
    """
    found = {}
    for it in deciding_inputs(graph, known):
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(it.input.type.tensor_type.elem_type))
        if it.compared and dtype.kind in "iuf":
            found[it.input.name] = np.full(dims_of(it.input.type), it.compared[0]).astype(dtype)
    return found


class _Search:
    def __init__(
        self, graph: onnx.GraphProto, known: Mapping[str, np.ndarray], small: Mapping[str, onnx.ValueInfoProto]
    ) -> None:
        self._small = small
        self._known = known
        self._stored = {it.name: it for it in graph.initializer if not is_external(it)}
        self.steered: dict[str, onnx.NodeProto] = {}
        self.sized: dict[str, onnx.NodeProto] = {}
        self.compared: dict[str, dict[bool | int | float, None]] = {}

    def follow(self, nodes: Iterable[onnx.NodeProto], sources: dict[str, frozenset[str]], same: dict[str, str]) -> None:
        """`sources` are the inputs that each tensor depends on, `same` tensors with the values of an input."""
        for node in nodes:
            self._look_at(node, sources, same)
            for body in bodies(node):
                self._stored.update((tensor.name, tensor) for tensor in body.initializer)
                inner = {**sources, **{value.name: frozenset([""]) for value in body.input}}  # differs in each round
                self.follow(body.node, inner, {**same})
            everything = (
                frozenset[str]()
                if node.op_type in VALUE_FROM_SHAPE
                else frozenset().union(*(sources.get(name, frozenset()) for name in reads(node)))
            )
            sources.update(dict.fromkeys(filter(None, node.output), everything))
            if node.op_type in _KEEPING and node.input and node.input[0] in same:
                same[node.output[0]] = same[node.input[0]]
            if is_constant(node):
                self._stored.update((node.output[0], it.t) for it in node.attribute if it.name == "value")

    def _look_at(self, node: onnx.NodeProto, sources: Mapping[str, frozenset[str]], same: Mapping[str, str]) -> None:
        if domain_of(node):
            return
        found = self.steered if node.op_type in _CONTROL else self.sized
        for slot in _CONTROL.get(node.op_type) or SHAPE_SLOTS.get(node.op_type, ()):
            name = node.input[slot] if slot < len(node.input) else ""
            deciding = sources.get(name, frozenset())
            if deciding and deciding <= self._small.keys():
                for each in deciding:
                    found.setdefault(each, node)
        if node.op_type in _COMPARING and len(node.input) == 2:
            for one, other in (node.input, reversed(node.input)):
                if one in same:
                    self.compared.setdefault(same[one], {}).update(dict.fromkeys(self._numbers(other)))

    def _numbers(self, name: str) -> Iterator[bool | int | float]:
        value = self._known.get(name)
        if value is None and name in self._stored:
            value = numpy_helper.to_array(self._stored[name])
        if value is not None and value.size == 1 and value.dtype != np.dtype(object):
            yield value.reshape(-1)[0].item()


def _is_small(kind: onnx.TypeProto) -> bool:
    dtype = kind.tensor_type.elem_type
    return dtype not in (0, onnx.TensorProto.STRING) and not is_unbound(kind) and elements(kind) <= _SMALL
