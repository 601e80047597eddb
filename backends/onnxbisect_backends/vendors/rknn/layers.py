"""RKNN-Toolkit2's table of where every layer runs, which it prints at the end of a conversion."""

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

#: The ends of the model, which are always on the host.
_ENDS = frozenset({"InputOperator", "OutputOperator"})

#: The toolkit's own changes of layout have the name of the tensor that they change.
_LAYOUT = re.compile(r"^(?:Reshape|Transpose):.*[-_](?:rs|tp)$")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A row of the toolkit's `Network Layer Information Table`; `name` is `Op:node`, empty for some of its own."""

    type: str
    dtype: str
    target: str
    output: str
    cycles: str
    name: str

    @property
    def called(self) -> str:
        """Operator and node, for a reader."""
        op, _, node = self.name.partition(":")
        return f"{op} '{node}'"

    @property
    def computes(self) -> bool:
        """Whether it is a part of the model, rather than an end of it or a change of layout."""
        return self.type not in _ENDS and self.name != "" and not _LAYOUT.match(self.name)


def layers(log: str) -> tuple[Layer, ...]:
    """Where every layer runs; empty where the compile did not get as far."""
    names = [field.name for field in fields(Layer)]
    return tuple(Layer(**{name: match[name] for name in names}) for match in _ROW.finditer(plain(log)))


def placement(found: Iterable[Layer]) -> Table:
    """The layers as a table for the report, without the ends of the model."""
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


def pointing_at(found: Iterable[Layer]) -> Hints:
    """Hints at the nodes that layers were made from, under the names that the model may have for them."""
    nodes: dict[str, None] = {}
    ops: dict[str, None] = {}
    for layer in found:
        op, _, node = layer.name.partition(":")
        own = unsuffixed(node)
        nodes |= dict.fromkeys((node, own))
        # a node that was put in another's place has an op of its own
        if node == own:
            ops[op] = None
    return Hints(ops=tuple(ops), nodes=tuple(nodes))
