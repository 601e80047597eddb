"""What RKNN-Toolkit2 prints: the texts of its failures, and the table of where every layer runs.

Texts of 2.3.2, each met in a real run unless a comment says otherwise. Lines that begin with `E RKNN` are no sign of
failure by themselves: `Unkown op target: 0` stands in hundreds of good compiles.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from onnxbisect.fingerprint import plain
from onnxbisect.verdict import Hints, Kind, Table
from onnxbisect_backends.logs import Pattern, compile_pattern


def _pattern(regex: str, kind: Kind = Kind.UNSUPPORTED, *, fails: bool = False) -> Pattern:
    return Pattern(regex=compile_pattern(regex), kind=kind, fails=fails)


#: What is said of a model that was folded to nothing.
FOLDED = compile_pattern(r"All outputs \[.*\] of model are constants, The model is invalid!")

#: The first that matches gives kind and message: exceptions, which end a compile, before what the compiler goes past.
PATTERNS: tuple[Pattern, ...] = (
    _pattern(r"The input \d+ of (?P<op>\w+)\('(?P<node>.*?)'\) need to be constant!"),
    _pattern(r"The (?P<op>\w+)\('(?P<node>.*?)'\) will cause the graph to be a dynamic graph!"),
    _pattern(r"The Op of '(?P<op>[\w.:]+)' is not supported yet"),
    _pattern(r"Unsupport onnx opset \d+, need <= \d+!"),
    _pattern(r"Not support input data type '\w+'!"),
    _pattern(r"Current target_platform\(\w+\) not support do_quantization = False!"),
    _pattern(r"The input shape \[.*\] of '(?P<tensor>.*?)' is not support!", Kind.INVALID),
    _pattern(FOLDED.pattern, Kind.INVALID),
    _pattern(r"inputs or 'outputs' must be set!", Kind.INVALID),
    _pattern(r"Not Support Dtype: \d+\. please check precision!", Kind.CRASH),
    _pattern(r"Invalid rank for input: (?P<tensor>\S+) Got: \d+ Expected: \d+", Kind.ERROR),
    _pattern(r"In Node, \(\"(?P<node>.*?)\", (?P<op>\w+), ", Kind.ERROR),
    _pattern(r"Can not find tensor value info for '(?P<tensor>.*?)'!", Kind.ERROR),
    _pattern(r"_UFuncNoLoopError: ufunc '\w+' did not contain a loop", Kind.ERROR),
    _pattern(r"'IRGraph' object has no attribute '\w+'", Kind.ERROR),
    _pattern(r"No lowering found for: (?P<node>.*?), node type = (?P<op>[\w.:]+),", fails=True),
    _pattern(r"Meet RKNN unsupport Operator: name = '(?P<node>.*?)', type = (?P<op>[\w.:]+),", fails=True),
    # as older versions are said to put it
    _pattern(r"unsupport Operator|Meet unsupport", fails=True),
)

#: Lines that are in good compiles too, and would otherwise be taken for the last words of a bad one.
_NOISE = re.compile(
    r"^.*(?:Unkown op target: 0|fallback to single core mode|not aligned|WARN\(\d+\)|rknn-toolkit2 version:"
    r"|The config\.(?:mean|std)_values is None).*\n?",
    re.MULTILINE,
)

#: What stands before the words that tell: the step of the toolkit, and onnxruntime, with which it folds constants.
_PREAMBLE = re.compile(
    r"^E (?:config|load_onnx|build|export_rknn): "
    r"|^(?:\w+\.)*\w+: \[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:This is an invalid model\. )?",
    re.MULTILINE,
)

_ROW = re.compile(
    r"^D RKNN: \[[\d:.]+\] \d+ +(?P<type>\S+) +(?P<dtype>\S+) +(?P<target>NPU|CPU|GPU) +\S+ +(?P<output>\S+) +"
    r"(?P<cycles>\d+/\d+/\d+) +\d+ +(?P<name>.*?) *$",
    re.MULTILINE,
)

#: The ends of the model, which are always on the host.
_ENDS = frozenset({"InputOperator", "OutputOperator"})

#: What the toolkit appends to the name of a node when it puts others in its place.
_REPLACED = re.compile(r"(?:#\d+|_2[a-z]+\d*)+$")

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


def without_noise(log: str) -> str:
    """The log without the lines that look like complaints and are none, and without what stands before others."""
    return _PREAMBLE.sub("", _NOISE.sub("", plain(log)))


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
        nodes |= dict.fromkeys((node, _REPLACED.sub("", node)))
        # a node that was put in another's place has an op of its own
        if not _REPLACED.search(node):
            ops[op] = None
    return Hints(ops=tuple(ops), nodes=tuple(nodes))
