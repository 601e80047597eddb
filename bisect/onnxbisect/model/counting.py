"""Count the nodes of a model with all function calls expanded, which a few bytes can make astronomically many."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx

from onnxbisect.errors import ModelError
from onnxbisect.model.scopes import domain_of, walk
from onnxbisect.model.wording import quoted

_Call = tuple[str, str, str]

#: Deepest nesting of function calls that is accepted; exporters nest as deep as a network's modules, about ten.
_DEEPEST = 32
#: Number of inlined function nodes that cost onnxruntime a few seconds. Files that have many nodes themselves may have
#: more: real functions are called a few times, while hostile ones multiply.
_INLINED = 20_000
_INLINED_SHARE = 8


@dataclass(frozen=True, kw_only=True)
class WrittenOut:
    """Node counts of a model.

    `nodes`: nodes of the graph and its subgraphs with calls expanded, plus those of functions that nothing calls.
    `inlined`: the part of them that comes from expanded calls. `written`: nodes as stored in the file.
    """

    nodes: int
    inlined: int
    written: int


def written_out(proto: onnx.ModelProto) -> WrittenOut:
    """Count the nodes; raises ModelError where functions call themselves or are nested too deep."""
    functions = {(domain_of(function), function.name, function.overload): function for function in proto.functions}
    calls = {name: _calls(function) for name, function in functions.items()}
    size: dict[_Call, int] = {}
    depth: dict[_Call, int] = {}
    for name in calls:
        for done in _callees_first(name, calls, size):
            size[done] = _total(calls[done], size)
            depth[done] = 1 + max((depth.get(each, 0) for each in calls[done]), default=0)
            if depth[done] > _DEEPEST:
                raise ModelError(
                    f"Function {quoted(done[1])} calls others more than {_DEEPEST} levels deep. Inline the model's "
                    "functions before, as onnx.inliner does."
                )
    main = _calls(proto.graph)
    uncalled = set(functions) - set(main).union(*calls.values())
    nodes = _total(main, size)
    return WrittenOut(
        nodes=nodes + sum(size[name] for name in uncalled),
        inlined=nodes - sum(count for name, count in main.items() if name not in size),
        written=sum(sum(each.values()) for each in (main, *calls.values())),
    )


def demand_inlinable(count: WrittenOut) -> None:
    """Raise ModelError where inlining the functions, as onnxruntime does, would take minutes."""
    most = max(_INLINED, _INLINED_SHARE * count.written)
    if count.inlined > most:
        raise ModelError(
            f"The model's functions become {count.inlined:,} nodes when they are inlined, from {count.written:,} in "
            f"the file; the limit is {most:,}. Export it with fewer functions that call others."
        )


def _calls(owner: onnx.GraphProto | onnx.FunctionProto) -> Counter[_Call]:
    return Counter((domain_of(node), node.op_type, node.overload) for node in walk(owner))


def _callees_first(wanted: _Call, calls: Mapping[_Call, Counter[_Call]], done: Mapping[_Call, int]) -> Iterator[_Call]:
    """The functions that `wanted` calls, transitively, and itself, callees first, without those in `done`.

    Iterative, because a chain of calls can exceed Python's recursion limit.
    """
    path = [] if wanted in done else [(wanted, iter(calls[wanted]))]
    begun = {wanted}
    while path:
        name, callees = path[-1]
        below = next((each for each in callees if each in calls and each not in done), None)
        if below is None:
            yield name
            begun.discard(name)
            path.pop()
            continue
        if below in begun:
            raise ModelError(f"Function {quoted(below[1])} calls itself, which ONNX forbids. Export the model again.")
        begun.add(below)
        path.append((below, iter(calls[below])))


def _total(calls: Counter[_Call], size: Mapping[_Call, int]) -> int:
    return sum(count * size.get(name, 1) for name, count in calls.items())
