"""Find the model-local functions that a piece needs."""

from collections.abc import Iterable, Iterator

import onnx

from onnxbisect.model.scopes import bodies, domain_of

#: Domain, name and overload of a model-local function or operator.
Call = tuple[str, str, str]


def call_of(node: onnx.NodeProto) -> Call:
    """The function or operator that a node calls."""
    return domain_of(node), node.op_type, node.overload


class Functions:
    """The model-local functions of a model, with the functions that each calls, transitively.

    `onnx.utils.Extractor` identifies functions by name and domain only and does not look into subgraphs, so it loses
    overloads and functions that only a subgraph calls.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._functions: dict[Call, onnx.FunctionProto] = {
            (domain_of(function), function.name, function.overload): function for function in model.functions
        }
        self._reach: dict[Call, tuple[frozenset[Call], frozenset[str]]] = {
            call: self._closure(call) for call in self._functions
        }

    def _closure(self, start: Call) -> tuple[frozenset[Call], frozenset[str]]:
        seen = {start}
        domains = set()
        queue = [start]
        while queue:
            call = queue.pop()
            domains.add(call[0])
            function = self._functions.get(call)
            for called in () if function is None else _calls(function.node):
                if called not in seen:
                    seen.add(called)
                    queue.append(called)
        return frozenset(seen & self._functions.keys()), frozenset(domains)

    def needs_of(self, node: onnx.NodeProto) -> tuple[frozenset[Call], frozenset[str]]:
        """The functions that a node needs, transitively, and the domains of all operators used by it and them."""
        needed: set[Call] = set()
        domains: set[str] = set()
        for call in set(_calls([node])):
            functions, more = self._reach.get(call, (frozenset(), {call[0]}))
            needed |= functions
            domains |= more
        return frozenset(needed), frozenset(domains)

    def pick(self, needed: Iterable[Call]) -> list[onnx.FunctionProto]:
        """The definitions of the needed functions, in the model's order."""
        wanted = set(needed)
        return [function for call, function in self._functions.items() if call in wanted]


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[Call]:
    """All calls made by the nodes and the nodes in their subgraphs, with repeats."""
    for node in nodes:
        yield call_of(node)
        for body in bodies(node):
            yield from _calls(body.node)
