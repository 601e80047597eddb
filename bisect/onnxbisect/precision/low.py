"""Which nodes of a model a low precision concerns, and in which order they are asked about: the most suspect first.

A compiler's own table of errors, of each layer alone or with those before it, decides nothing. People keep the worst
layer precise, then the next, which misleads where two nodes matter together. As a hint it may be as good as our own
order or much worse, so that both take turns.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, zip_longest

import onnx

from onnxbisect.model.scopes import domain_of, reads
from onnxbisect.precision.tensors import FLOAT16_LARGEST, SampledTensor
from onnxbisect.precision.wanted import Low


@cache
def quantisable() -> frozenset[str]:
    """The op types that onnxruntime's quantiser knows."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry  # half a second

    return frozenset(QDQRegistry) | frozenset(QLinearOpsRegistry)


def can_be_low(node: onnx.NodeProto, low: Low, seen: Mapping[str, SampledTensor]) -> bool:
    """Whether the precision changes anything at this node."""
    if low is Low.INT8 and (domain_of(node) or node.op_type not in quantisable()):
        return False
    return any(name in seen for name in (*node.input, *node.output))


def suspicion(
    node: onnx.NodeProto, low: Low, seen: Mapping[str, SampledTensor], weights: Mapping[str, SampledTensor]
) -> float:
    """How much of what this node reads and makes is lost; larger is more suspect."""
    tensors = [seen[name] for name in dict.fromkeys((*node.input, *node.output)) if name in seen]
    if low is Low.INT8:
        own = [weights[name].eight_bit_weight for name in node.input if name in weights]
        return -min([it.eight_bit for it in tensors] + own, default=200.0)
    beyond = max((it.largest / FLOAT16_LARGEST for it in tensors), default=0.0)
    return beyond if beyond > 1 else max((it.tiny for it in tensors), default=0.0)


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
