"""Reads RKNN-Toolkit2's table of where each layer runs, printed at the end of a conversion."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from onnxbisect.fingerprint import plain
from onnxbisect.verdict import Hints, Table
from onnxbisect_backends.vendors.rknn.log import unsuffixed

_ROW = re.compile(
    r"^D RKNN: \[[\d:.]+\] \d+ +(?P<type>\S+) +(?P<dtype>\S+) +(?P<target>NPU|CPU|GPU) +\S+ +(?P<output>\S+) +"
    r"(?P<cycles>\d+/\d+/\d+) +\d+ +(?P<name>.*?) *$",
    re.MULTILINE,
)

#: The ends of the model, which always run on the host.
_ENDS = frozenset({"InputOperator", "OutputOperator"})

#: Layers that the toolkit inserts to change the layout of a tensor; they have its name with a suffix.
_LAYOUT = re.compile(r"^(?:Reshape|Transpose):.*[-_](?:rs|tp)$")


@dataclass(frozen=True, kw_only=True)
class NetworkLayer:
    """A row of the toolkit's `Network Layer Information Table`; `name` is `Op:node`, empty for some internal layers."""

    type: str
    dtype: str
    target: str
    output: str
    cycles: str
    name: str

    @property
    def called(self) -> str:
        """Operator and node, for people."""
        op, _, node = self.name.partition(":")
        return f"{op} '{node}'"

    @property
    def computes(self) -> bool:
        """Whether it is part of the model, not an end of it or a change of layout."""
        return self.type not in _ENDS and self.name != "" and not _LAYOUT.match(self.name)


def layers(log: str) -> tuple[NetworkLayer, ...]:
    """Where each layer runs; empty if the compile did not get that far."""
    names = [field.name for field in fields(NetworkLayer)]
    return tuple(NetworkLayer(**{name: match[name] for name in names}) for match in _ROW.finditer(plain(log)))


def placement(found: Iterable[NetworkLayer]) -> Table:
    """The layers as a report table, without the ends of the model."""
    rows = [
        (layer.name.partition(":")[2], layer.type, layer.target, layer.dtype, layer.output, layer.cycles)
        for layer in found
        if layer.type not in _ENDS
    ]
    return Table(
        title="Where the nodes run",
        columns=("node", "operator", "runs on", "dtype", "output", "cycles (DDR/NPU/total)"),
        rows=tuple(rows),
        counted="runs on",
    )


def pointing_at(found: Iterable[NetworkLayer]) -> Hints:
    """Hints at the nodes that layers were made from, under possible names in the model."""
    nodes: dict[str, None] = {}
    ops: dict[str, None] = {}
    for layer in found:
        op, _, node = layer.name.partition(":")
        own = unsuffixed(node)
        nodes |= dict.fromkeys((node, own))
        # a replacement node has another op
        if node == own:
            ops[op] = None
    return Hints(ops=tuple(ops), nodes=tuple(nodes))
