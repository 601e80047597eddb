"""What a compiler's own table of errors says of the order in which nodes are asked about; it decides nothing.

Such a table has the error of each layer, alone or with those before it. People keep the worst layer precise, then the
next, which misleads where two nodes matter together. As a hint it may be as good as our own order or much worse, so
that both take turns.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, zip_longest

import onnx

from onnxbisect.model.scopes import reads


def blamed_first(
    graph: onnx.GraphProto, layers: Iterable[Collection[str]], known: Mapping[str, int]
) -> tuple[int, ...]:
    """The nodes of layers, the worst layer first, and after each those that make what it reads.

    An error may come of the layer or of the numbers that it gets. `known` are the nodes that can be kept, by name; in
    place of others there are the nodes before them.
    """
    nodes = {node.name: node for node in graph.node}
    maker = {name: node.name for node in graph.node for name in node.output if name}

    def before(name: str, seen: set[str]) -> list[str]:
        found: list[str] = []
        for one in dict.fromkeys(maker[tensor] for tensor in reads(nodes[name]) if tensor in maker):
            if one not in seen:
                seen.add(one)
                found += [one] if one in known else before(one, seen)
        return found

    order: dict[str, None] = {}
    for layer in layers:
        own = [name for name in layer if name in nodes]
        order |= dict.fromkeys([*own, *chain.from_iterable(before(name, set(own)) for name in own)])
    return tuple(known[name] for name in order if name in known)


def interleaved(order: Sequence[int], hint: Sequence[int]) -> tuple[int, ...]:
    """The units of `order`, in turns the next of it and the next of the hint."""
    both = chain.from_iterable(zip_longest(order, [unit for unit in hint if unit in order]))
    return tuple(dict.fromkeys(unit for unit in both if unit is not None))
