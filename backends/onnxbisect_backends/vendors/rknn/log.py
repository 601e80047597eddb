"""RKNN-Toolkit2's failure messages, as patterns.

Texts of 2.3.2, each seen in a real run unless a comment says otherwise. Lines starting with `E RKNN` are no sign of
failure by themselves: `Unkown op target: 0` is in hundreds of successful compiles.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from onnxbisect.fingerprint import plain
from onnxbisect.verdict import Hints, Kind, Table
from onnxbisect_backends.logs import Pattern, compile_pattern, pattern

#: Suffixes that the toolkit appends to names of nodes and tensors that it replaces.
_SUFFIX = r"(?:#\d+|_2[a-z]+\d*|[-_](?:rs|tp|mm|gather))*"

#: The message for a model that was folded completely.
FOLDED = compile_pattern(r"All outputs \[.*\] of model are constants, The model is invalid!")
#: All outputs, or those that it leaves out of the converted model.
_CONSTANT_OUTPUTS = re.compile(r"(?:All|These) outputs \[(?P<names>.*)\] of model are constants, .*!")
#: Added to the log where that is not so: it also folds an If of a constant condition, and products with 0.
FOLDED_TOO_MUCH = "The outputs depend on values of inputs."

#: The first match gives kind and message: exceptions, which end a compile, precede errors that do not.
PATTERNS: tuple[Pattern, ...] = (
    pattern(r"The input \d+ of (?P<op>\w+)\('(?P<node>.*?)'\) need to be constant!"),
    pattern(r"The (?P<op>\w+)\('(?P<node>.*?)'\) will cause the graph to be a dynamic graph!"),
    pattern(r"The Op of '(?P<op>[\w.:]+)' is not supported yet"),
    pattern(r"Unsupport onnx opset \d+, need <= \d+!"),
    pattern(r"Not support input data type '\w+'!"),
    pattern(r"Current target_platform\(\w+\) not support do_quantization = False!"),
    pattern(r"The input shape \[.*\] of '(?P<tensor>.*?)' is not support!", Kind.INVALID),
    pattern(FOLDED.pattern, Kind.INVALID),
    pattern(r"Not Support Dtype: \d+\. please check precision!", Kind.CRASH),
    pattern(rf"Invalid rank for input: (?P<tensor>\S+?){_SUFFIX} Got: \d+ Expected: \d+", Kind.ERROR),
    pattern(rf"Got invalid dimensions for input: (?P<tensor>\S+?){_SUFFIX} for the following indices", Kind.ERROR),
    pattern(r"In Node, \(\"(?P<node>.*?)\", (?P<op>\w+), ", Kind.ERROR),
    # it folds constants by onnxruntime, in a graph of its own ops
    pattern(
        rf"Non-zero status code returned while running \w+ node\. Name:'(?P<node>.*?){_SUFFIX}' Status Message: .*",
        Kind.ERROR,
    ),
    pattern(rf"Node \((?P<node>.*?){_SUFFIX}\) Op \(\w+\) \[\w+\].*", Kind.ERROR),
    pattern(
        rf"Could not find an implementation for (?P<op>\w+)\(\d+\) node with name '(?P<node>.*?){_SUFFIX}'", Kind.ERROR
    ),
    pattern(r"Can not find tensor value info for '(?P<tensor>.*?)'!", Kind.ERROR),
    pattern(r"_UFuncNoLoopError: ufunc '\w+' did not contain a loop", Kind.ERROR),
    pattern(r"inputs or 'outputs' must be set!", Kind.ERROR),
    pattern(r"'IRGraph' object has no attribute '\w+'", Kind.ERROR),
    pattern(r"No lowering found for: (?P<node>.*?), node type = (?P<op>[\w.:]+),", fails=True),
    pattern(r"Meet RKNN unsupport Operator: name = '(?P<node>.*?)', type = (?P<op>[\w.:]+),", fails=True),
    # from reports about older versions
    pattern(r"unsupport Operator|Meet unsupport", fails=True),
)

#: Lines that also occur in successful compiles, and would otherwise count as the failure's message.
_NOISE = re.compile(
    r"^.*(?:Unkown op target: 0|fallback to single core mode|not aligned|WARN\(\d+\)|rknn-toolkit2 version:"
    r"|The config\.(?:mean|std)_values is None).*\n?",
    re.MULTILINE,
)

#: Prefixes of messages: the toolkit's step or time, and onnxruntime's, with which it folds constants.
_PREAMBLE = re.compile(
    r"^E (?:config|load_onnx|build|export_rknn): |^[DIWE] RKNN: \[[\d:.]+\] (?:>+ )?"
    r"|^(?:\w+\.)*\w+: \[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:This is an invalid model\. )?"
    r"|^[\d-]+ [\d:.]+ \[E:onnxruntime:[^\]]*\] ",
    re.MULTILINE,
)

#: A failed fusion: its rule, and its nodes.
_FUSION = re.compile(
    r"Show op fuse match nodes:\s+Rule: (?P<rule>\w+)\s(?P<nodes>.*?)You can add disable_rules=", re.DOTALL
)
_NODE = re.compile(r"^Op name: (.*)$", re.MULTILINE)


def without_noise(log: str) -> str:
    """The log without harmless error lines, and without prefixes."""
    return _PREAMBLE.sub("", _NOISE.sub("", plain(log)))


def constant_outputs(log: str) -> tuple[str, tuple[str, ...]]:
    """What the log says of outputs that became constants, and their names; empty where it says nothing."""
    match = _CONSTANT_OUTPUTS.search(plain(log))
    return (match[0], tuple(re.findall(r"'(.*?)'", match["names"]))) if match else ("", ())


def fusion(log: str) -> tuple[str, Hints]:
    """The rule of the fusion that failed (else empty), and hints at what it would have fused."""
    match = _FUSION.search(plain(log))
    if match is None:
        return "", Hints()
    names: dict[str, None] = {}
    for name in _NODE.findall(match["nodes"]):
        names |= dict.fromkeys((name.strip(), unsuffixed(name.strip())))
    return match["rule"], Hints(nodes=tuple(names), tensors=tuple(names))


def unsuffixed(name: str) -> str:
    """The model's name for a node or tensor of the toolkit."""
    return re.sub(f"{_SUFFIX}$", "", name)


#: A layer of `accuracy_analysis`: cosine and euclidean distance, with the errors before it and alone. A layer that is
#: fused with the next one has no numbers.
_LAYER_ERROR = re.compile(
    r"^\[\w+\] (?P<name>.+?) +(?P<entire>\S+) +\| \S+ +(?P<single>\S+) +\| \S+ *$|^\[\w+\] (?P<fused>.+?) *$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class LayerError:
    """The tensors of a layer, and the cosines of its output: with the errors of all layers before it, and alone."""

    tensors: tuple[str, ...]
    entire: float
    single: float


def _cosine(text: str) -> float:
    """The number; -1, as far apart as can be, where the simulator's numbers are NaN or infinite (`q_nan`, `q_inf`)."""
    return -1.0 if text in ("q_nan", "q_inf") else float(text)


def layer_errors(table: str) -> tuple[LayerError, ...]:
    """The layers of the table that `accuracy_analysis` prints and writes, in its order."""
    found, fused = [], list[str]()
    for match in _LAYER_ERROR.finditer(plain(table)):
        if match["fused"]:
            fused.append(match["fused"])
            continue
        try:
            entire, single = _cosine(match["entire"]), _cosine(match["single"])
        except ValueError:  # no row of the table
            continue
        found.append(LayerError(tensors=(*fused, match["name"]), entire=entire, single=single))
        fused = []
    return tuple(found)


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


#: A number that it writes into too few bits of a register of the NPU. It prints the line and ends as if all were well:
#: owners of boards report files that compute the right numbers all the same, and files that end in SIGSEGV.
_OVERFLOW = re.compile(
    r"REGTASK: The bit width of field value exceeds the limit, target: \S+, offset: (?P<register>0x\w+), "
    r"shift = (?P<shift>\d+), limit: (?P<limit>0x\w+), value: (?P<value>0x\w+)"
)


def overflows(log: str) -> Table | None:
    """The registers whose bits are too few for what the file puts there; None where it says so of none."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for match in _OVERFLOW.finditer(plain(log)):
        found.setdefault((match["register"], match["shift"], match["limit"]), []).append(int(match["value"], 16))
    rows = [(*place, f"{max(values):#x}", str(len(values))) for place, values in sorted(found.items())]
    return (
        Table(
            title="Too large for a register of the NPU, so the file may be wrong on the chip",
            columns=("register", "from bit", "most", "largest value", "times"),
            rows=tuple(rows),
        )
        if rows
        else None
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
