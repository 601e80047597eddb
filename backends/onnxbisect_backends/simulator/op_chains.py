"""Chains of ops along the dataflow, in the whitelist backend's option syntax: `ReduceMean>BatchNormalization`.

A bare name matches its op type in any domain, `domain::Op` exactly.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx

from onnxbisect.model.scopes import qualified

#: An op type, or `domain::Op`.
_NAME = re.compile(r"[\w.-]+(?:::[\w.-]+)?")

#: Op names, each of whose nodes feeds one of the next.
Chain = tuple[str, ...]


def parse_chain(text: str, mark: str = ">") -> Chain:
    """`"Div>Erf>Add"` as op names; raises ValueError for a missing or invalid name."""
    chain = tuple(name.strip() for name in text.split(mark))
    if not all(chain):
        raise ValueError(f"{text!r} lacks an op name; write it as A{mark}B{mark}C")
    for name in chain:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{text!r}: {name!r} is no op name; write it as A{mark}B{mark}C")
    return chain


def is_named(node: onnx.NodeProto, name: str) -> bool:
    """Whether `name` matches this node's op."""
    return name in (node.op_type, qualified(node))


@dataclass(frozen=True, kw_only=True, eq=False)
class Flow:
    """The dataflow among the nodes of one graph, without outer graphs and subgraphs."""

    nodes: Sequence[onnx.NodeProto]

    def first_match(self, chain: Chain) -> tuple[int, ...] | None:
        """Indices of the first nodes, in node order, that form the chain; None if there are none."""
        for index, node in enumerate(self.nodes):
            if is_named(node, chain[0]) and (found := self._extend(index, chain[1:], self._consumers)) is not None:
                return (index, *found)
        return None

    def is_part_of(self, index: int, chain: Chain) -> bool:
        """Whether the node at `index` is part of nodes that form the chain."""
        return any(
            is_named(self.nodes[index], name)
            and self._extend(index, chain[position + 1 :], self._consumers) is not None
            and self._extend(index, chain[:position][::-1], self._producers) is not None
            for position, name in enumerate(chain)
        )

    def _extend(self, index: int, names: Chain, step: Mapping[int, Iterable[int]]) -> tuple[int, ...] | None:
        if not names:
            return ()
        for other in step.get(index, ()):
            if is_named(self.nodes[other], names[0]) and (rest := self._extend(other, names[1:], step)) is not None:
                return (other, *rest)
        return None

    @cached_property
    def _producers(self) -> dict[int, list[int]]:
        origin = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        return {
            index: list(dict.fromkeys(origin[name] for name in node.input if name in origin))
            for index, node in enumerate(self.nodes)
        }

    @cached_property
    def _consumers(self) -> dict[int, list[int]]:
        after: dict[int, list[int]] = {}
        for index, producers in self._producers.items():
            for producer in producers:
                after.setdefault(producer, []).append(index)
        return after
