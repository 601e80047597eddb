"""How large a model is once everything in it is written out: a few bytes can say an astronomical number of nodes."""

from collections import Counter

import onnx

from onnxbisect.model.scopes import domain_of, walk

_Call = tuple[str, str, str]


def written_out(proto: onnx.ModelProto) -> int:
    """Nodes of the graph, its bodies, and of functions as often as they are called, plus those of functions that
    nobody calls. A function that calls itself counts as one node there.
    """
    functions = {(domain_of(function), function.name, function.overload): function for function in proto.functions}
    calls = {name: _calls(function) for name, function in functions.items()}
    size: dict[_Call, int] = {}
    for name in calls:
        _measure(name, calls, size)
    main = _calls(proto.graph)
    uncalled = set(functions) - set(main).union(*calls.values())
    return _total(main, size) + sum(size[name] for name in uncalled)


def _calls(owner: onnx.GraphProto | onnx.FunctionProto) -> Counter[_Call]:
    return Counter((domain_of(node), node.op_type, node.overload) for node in walk(owner))


def _measure(wanted: _Call, calls: dict[_Call, Counter[_Call]], size: dict[_Call, int]) -> None:
    """The sizes of a function and of all that it calls. Not by recursion: a chain of functions can be longer than
    Python's stack.
    """
    path = [(wanted, iter(calls[wanted]))]
    begun = {wanted}
    while path:
        name, callees = path[-1]
        below = next((each for each in callees if each in calls and each not in size and each not in begun), None)
        if below is None:
            size[name] = _total(calls[name], size)
            path.pop()
        else:
            begun.add(below)
            path.append((below, iter(calls[below])))


def _total(calls: Counter[_Call], size: dict[_Call, int]) -> int:
    return sum(count * size.get(name, 1) for name, count in calls.items())
