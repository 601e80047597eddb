"""A model for drawing, without tensor contents, with names that are safe to show; its drawing, and its file.

It needs neither onnx nor numpy, so a process that reads no model can draw it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

from onnxbisect.drawing.layout import layout

DRAWING = "onnx-bisect/graph@1"

#: A name and a type such as `float[1,3,8,8]`, which is empty where it is not known.
Tensor = Sequence[str]
#: From a unit, to a unit, by which tensor.
Link = tuple[int, int, int]
#: A tensor of the model's own, and the units that read it or the one that makes it.
End = tuple[int, Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Network:
    """`name` is the graph's name. `names`, `ops`, `read`, `made` and `facts_of` are indexed by unit.

    The first tensors are those of `links`, `inputs` and `outputs`; weights and unread tensors follow. `read` and `made`
    are a unit's tensors in order. `facts` are lists of label and value pairs that many units share; `facts_of` are the
    indices of a unit's list.
    """

    name: str
    names: Sequence[str]
    ops: Sequence[str]
    tensors: Sequence[Tensor]
    links: Sequence[Link]
    inputs: Sequence[End]
    outputs: Sequence[End]
    read: Sequence[Sequence[int]]
    made: Sequence[Sequence[int]]
    facts: Sequence[Sequence[Sequence[str]]]
    facts_of: Sequence[int]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _neighbours(self) -> Sequence[Sequence[int]]:
        beside: list[list[int]] = [[] for _ in self.names]
        for source, target, _ in self.links:
            beside[source].append(target)
            beside[target].append(source)
        return beside

    def around(self, units: Iterable[int], hops: int) -> list[int]:
        """The units, and all within `hops` links in either direction; ascending."""
        reached = set(units)
        rim = reached
        for _ in range(hops):
            rim = {other for unit in rim for other in self._neighbours[unit]} - reached
            if not rim:
                break
            reached = reached | rim
        return sorted(reached)

    def unit(self, unit: int) -> dict[str, Any]:
        """Everything known about a unit: facts, inputs with producers, outputs with consumers."""
        sources = {tensor: source for source, target, tensor in self.links if target == unit}
        targets: dict[int, list[int]] = {}
        for source, target, tensor in self.links:
            if source == unit:
                targets.setdefault(tensor, []).append(target)
        return {
            "unit": unit,
            "name": self.names[unit],
            "op": self.ops[unit],
            "facts": {fact[0]: fact[1] for fact in self.facts[self.facts_of[unit]]},
            "inputs": [self._tensor(tensor) | {"from": sources.get(tensor)} for tensor in self.read[unit]],
            "outputs": [self._tensor(tensor) | {"to": targets.get(tensor, [])} for tensor in self.made[unit]],
        }

    def _tensor(self, tensor: int) -> dict[str, Any]:
        name, kind = self.tensors[tensor]
        return {"tensor": name, "type": kind}


def drawing(network: Network, units: Sequence[int]) -> dict[str, Any]:
    """Layout of some units, given ascending, with the links between them and the graph inputs and outputs they touch.

    `units`, `names`, `ops`, `x`, `y` are by node. `edges` are source node, target node, index into `tensors`, and the
    bends x, y, x, y, …. `inputs` are name, type, consuming nodes, x, y, and the bends of the edge to each consumer;
    `outputs` are the same with the producing node.
    """
    place = {unit: index for index, unit in enumerate(units)}
    links = [
        (place[source], place[target], tensor)
        for source, target, tensor in network.links
        if source in place and target in place
    ]
    inputs, outputs = (
        [(tensor, [place[unit] for unit in those if unit in place]) for tensor, those in ends]
        for ends in (network.inputs, network.outputs)
    )
    if len(units) < len(network):
        inputs, outputs = ([end for end in ends if end[1]] for ends in (inputs, outputs))
    first_output = len(units) + len(inputs)
    into = [(len(units) + number, reader) for number, (_, readers) in enumerate(inputs) for reader in readers]
    out = [(maker, first_output + number) for number, (_, makers) in enumerate(outputs) for maker in makers]
    laid = layout(first_output + len(outputs), [*((source, target) for source, target, _ in links), *into, *out])
    bends = iter(laid.bends)
    numbers: dict[int, int] = {}
    edges = [
        [source, target, numbers.setdefault(tensor, len(numbers)), next(bends)] for source, target, tensor in links
    ]
    ends = [
        [*network.tensors[tensor], those, laid.x[node], laid.y[node], [next(bends) for _ in those]]
        for node, (tensor, those) in enumerate([*inputs, *outputs], len(units))
    ]
    return {
        "format": DRAWING,
        "total": len(network),
        "units": list(units),
        "names": [network.names[unit] for unit in units],
        "ops": [network.ops[unit] for unit in units],
        "x": laid.x[: len(units)],
        "y": laid.y[: len(units)],
        "width": laid.width,
        "height": laid.height,
        "edges": edges,
        "tensors": [network.tensors[tensor] for tensor in numbers],
        "inputs": ends[: len(inputs)],
        "outputs": ends[len(inputs) :],
    }


def network_bytes(network: Network) -> bytes:
    """The file of a network, two lines of JSON; equal networks give equal bytes.

    The first is the drawing of the whole model, which a page is sent as it is. The second has the facts of the units;
    a part of the model, or a unit, needs both.
    """
    rest = {
        name: getattr(network, name)
        for name in ("name", "tensors", "links", "inputs", "outputs", "read", "made", "facts", "facts_of")
    }
    return b"%b\n%b\n" % (dumped(drawing(network, range(len(network)))), dumped(rest))


def dumped(document: object) -> bytes:
    """Compact JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def read_drawing(file: IO[bytes]) -> bytes:
    """The drawing of the whole model from a network's file, as it is."""
    return file.readline().rstrip(b"\n")


def read_network(file: IO[bytes]) -> Network:
    """The network from its file."""
    drawn, rest = json.loads(file.readline()), json.loads(file.readline())
    return Network(names=drawn["names"], ops=drawn["ops"], **rest)
