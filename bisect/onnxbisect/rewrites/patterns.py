"""Patterns of several nodes, which a rule replaces by one, and finding them in a model.

A pattern says how a value is computed. `"x"` stands for any tensor, the same one wherever it occurs, `AnyConstant("c")`
for any constant, a number for a constant of one element, and a tuple for alternatives, the largest first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isclose

import numpy as np
import onnx
from onnx import TensorProto

from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.scopes import qualified

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
#: Relative tolerance for constants: exporters write them as float32, or with as many digits as the paper; in a narrower
#: type, as the nearest number that it has.
_NEAR = 1e-5
_COMMUTATIVE = ("Add", "Mul")


@dataclass(frozen=True)
class PatternNode:
    """A node of this op with these first inputs; a rule checks further properties by its `name`.

    The name stands for one node wherever it occurs.
    """

    op: str
    inputs: "tuple[Pattern, ...]"
    name: str = ""


@dataclass(frozen=True)
class AnyConstant:
    """Any constant."""

    name: str


Pattern = str | float | AnyConstant | PatternNode | tuple["Pattern", ...]


def part(op: str, *inputs: Pattern, name: str = "") -> PatternNode:
    """A node that computes from these inputs."""
    return PatternNode(op, inputs, name)


@dataclass(frozen=True, kw_only=True)
class Match:
    """`nodes` are the pattern's nodes, last one first; `tensors` and `named` are what its names stand for."""

    nodes: tuple[onnx.NodeProto, ...] = ()
    tensors: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, onnx.NodeProto] = field(default_factory=dict)

    @property
    def end(self) -> onnx.NodeProto:
        """The node that computes the value."""
        return self.nodes[0]


def ops_of(pattern: Pattern) -> tuple[str, ...]:
    """The ops of the pattern's nodes."""
    parts = pattern if isinstance(pattern, tuple) else pattern.inputs if isinstance(pattern, PatternNode) else ()
    own = (pattern.op,) if isinstance(pattern, PatternNode) else ()
    return tuple(dict.fromkeys([*own, *(op for one in parts for op in ops_of(one))]))


def matched(pattern: Pattern, node: onnx.NodeProto, facts: TensorFacts) -> Match | str:
    """The match of the pattern that contains this node; the reason if there is none.

    A pattern does not match if a value that would disappear is read elsewhere.
    """
    reason = "it is no part of such a pattern"
    # The node and those that depend on it within fewer than `steps` steps, the furthest last.
    steps = _depth(pattern)
    found, row = {node.output[0]: node}, [node]
    for _ in range(steps - 1):
        row = list({after.output[0]: after for it in row for after in facts.readers(it.output[0])}.values())
        for it in row:
            found.pop(it.output[0], None)
            found[it.output[0]] = it
    for end in reversed(list(found.values())):
        for match in _matches(pattern, end.output[0], facts, Match()):
            own = {it.output[0] for it in match.nodes}
            if node.output[0] not in own:
                continue
            inner = [name for it in match.nodes[1:] for name in it.output]
            if not any(
                facts.is_output(name) or any(it.output[0] not in own for it in facts.readers(name)) for name in inner
            ):
                return match
            reason = "a value within the pattern is read elsewhere"
    return reason


def _matches(pattern: Pattern, tensor: str, facts: TensorFacts, found: Match) -> Iterator[Match]:
    if isinstance(pattern, tuple):
        for one in pattern:
            yield from _matches(one, tensor, facts, found)
    elif isinstance(pattern, str | AnyConstant):
        name = pattern.name if isinstance(pattern, AnyConstant) else pattern
        if found.tensors.get(name, tensor) == tensor and (isinstance(pattern, str) or facts.is_constant(tensor)):
            yield replace(found, tensors={**found.tensors, name: tensor})
    elif isinstance(pattern, PatternNode):
        node = facts.maker(tensor)
        if node is None or qualified(node) != pattern.op or len(node.input) < len(pattern.inputs):
            return
        if found.named.get(pattern.name, node) is node:
            named = {**found.named, pattern.name: node} if pattern.name else found.named
            nodes = found.nodes if node in found.nodes else (*found.nodes, node)
            for order in (pattern.inputs, pattern.inputs[::-1]) if pattern.op in _COMMUTATIVE else (pattern.inputs,):
                rows = [replace(found, nodes=nodes, named=named)]
                for one, each in zip(order, node.input, strict=False):
                    rows = [after for row in rows for after in _matches(one, each, facts, row)]
                yield from rows
    elif _is(pattern, tensor, facts):
        yield found


def _is(number: float, tensor: str, facts: TensorFacts) -> bool:
    """Whether the tensor is a constant of one element with this value."""
    shape = facts.shape(tensor)
    if not facts.is_constant(tensor) or shape is None or any(dim != 1 for dim in shape):
        return False
    value = facts.value(tensor)
    if value is None or facts.dtype(tensor) not in _FLOATS:
        return False
    return isclose(float(value.reshape(())), float(np.array(number, value.dtype)), rel_tol=_NEAR)


def _depth(pattern: Pattern) -> int:
    """The number of nodes on the pattern's longest path."""
    if isinstance(pattern, tuple):
        return max(map(_depth, pattern))
    return 1 + max(map(_depth, pattern.inputs)) if isinstance(pattern, PatternNode) else 0
