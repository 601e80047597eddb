"""How large a model is once everything in it is written out: a few bytes can say an astronomical number of nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx

from onnxbisect.errors import ModelError
from onnxbisect.model.scopes import domain_of, walk
from onnxbisect.model.wording import quoted

_Call = tuple[str, str, str]

#: Functions that call each other this deep are followed; exporters nest as deep as a network's modules, about ten.
_DEEPEST = 32
#: Nodes of functions, written out wherever they are called, that cost onnxruntime a few seconds. More are taken where
#: the file itself has many nodes: real functions are called a few times, and hostile ones multiply.
_INLINED = 20_000
_INLINED_SHARE = 8


@dataclass(frozen=True, kw_only=True)
class WrittenOut:
    """Nodes of a model. `nodes` are those of the graph, its bodies, and of functions as often as they are called,
    plus those of functions that nothing calls; `inlined` are those of called functions, `written` those in the file.
    """

    nodes: int
    inlined: int
    written: int


def written_out(proto: onnx.ModelProto) -> WrittenOut:
    """Count; ModelError where functions call themselves, or each other too deep."""
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
    """ModelError where writing out the functions, as onnxruntime does, would take minutes."""
    most = max(_INLINED, _INLINED_SHARE * count.written)
    if count.inlined > most:
        raise ModelError(
            f"The model's functions come to {count.inlined:,} nodes where they are called, from {count.written:,} in "
            f"the file, and up to {most:,} are taken here. Export it without functions that multiply."
        )


def _calls(owner: onnx.GraphProto | onnx.FunctionProto) -> Counter[_Call]:
    return Counter((domain_of(node), node.op_type, node.overload) for node in walk(owner))


def _callees_first(wanted: _Call, calls: Mapping[_Call, Counter[_Call]], done: Mapping[_Call, int]) -> Iterator[_Call]:
    """A function behind all that it calls and that is not `done` yet. Not by recursion: a chain of functions can be
    longer than Python's stack.
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
