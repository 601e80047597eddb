"""QNN's refusal messages, as patterns; `trace.py` reads its messages for single nodes."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from pydantic import BaseModel, ConfigDict, ValidationError

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.scopes import fed_inputs, qualified
from onnxbisect.verdict import Kind
from onnxbisect_backends.logs import pattern

#: What onnxruntime says of a node that ONNX does not allow, before QNN sees the graph.
INVALID = (
    pattern(r"Node \((?P<node>.*)\) Op \((?P<op>\w+)\) \[\w+\]", Kind.ERROR),
    pattern(r"In Node, \(\"(?P<node>.*?)\", (?P<op>\w+), .*Error Nodes in a graph must be topologically", Kind.ERROR),
)

#: Texts of onnxruntime-qnn 2.7.0, for traces without nodes; the first match gives the kind. `MEM_ALLOC` is misleading:
#: QNN also reports it for plain ops that the chip does not support, so it is no evidence of size.
PATTERNS = (
    pattern(r"Failed to (?:finalize|compose) (?:QNN|Qnn) graph\.(?: Error: .*)?", Kind.ERROR),
    pattern(r"Failed to initialize qnn_model_wrapper\.", Kind.ERROR),
    pattern(r"(?<![\w.])(?P<op>[\w.]+:\w+)\(-?\d+\) is not a registered function/op"),
    pattern(r"No Op registered for (?P<op>\w+) with domain_version of \d+"),
    pattern(r"\{ name: (?P<node>.*?), type: (?P<op>\w+) \}"),
    pattern(r"Node '(?P<node>.*?)' OpType:(?P<op>\w+) with domain:\S+ was inserted using the NHWC format as requested"),
    pattern(r"This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP"),
    *INVALID,
    pattern(r"Failed to generate EP context model since the file .* exists already", Kind.ERROR),
)

#: Unknown chips and full disks, for which there is no verdict.
NO_ANSWER = (
    pattern(r"QNN SetupBackend failed Failed to create device\. Error: \w+", Kind.ERROR),
    pattern(r"Failed to (?:open|write) context cache file\.", Kind.ERROR),
)

#: The prefix of QNN's and onnxruntime's messages.
PREAMBLE = re.compile(
    r"^\w+: \[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:Load model from \S+ failed:)?(?:Fatal error: )?"
    r"|^\[[EW]:[^\]]*\] "
)


#: The trace's file name in the working directory.
TRACE = "qnn_op_trace.json"

#: Begins the line that `support_line` makes and `read_support` reads; names in it are escaped, so it is one line.
_MARK = "onnx-bisect: in QNN's trace: "

#: Most refused nodes that are reported of one compile.
_MOST = 500

#: Suffixes that onnxruntime's optimiser appends to names of replaced or moved nodes.
_APPENDED = re.compile(r"(?:_token_\d+|_new_reshape|/duplicated|/\w+Fusion/?)$")

#: Begins the op of nodes that QNN has compiled already, which it lists once it sees what it inlined of another node.
_COMPILED = "QNNExecutionProvider"

#: The reason given for nodes downstream of a refused one.
_CONSEQUENCE = "Cannot get shape"


class Listed(BaseModel):
    """An entry of the trace's list."""

    node_name: str = ""
    op_type: str = ""
    reason: str = ""


class _Trace(BaseModel):
    unsupported_nodes: tuple[Listed, ...] = ()


class RefusedNode(BaseModel):
    """A node of the model that QNN refuses; `op` is spelled as in hints.

    If onnxruntime's optimiser created it without a model node, `node` is empty and `op` is the new op.
    """

    model_config = ConfigDict(frozen=True)

    node: str
    op: str
    reason: str

    @property
    def is_consequence(self) -> bool:
        """Whether only its shape is missing, because of another node or the model's inputs."""
        return self.reason.startswith(_CONSEQUENCE)


class Support(BaseModel):
    """The trace's refused nodes, and the model's inputs whose shapes QNN could not know."""

    refused: tuple[RefusedNode, ...] = ()
    unbound: tuple[str, ...] = ()


def support_line(workdir: Path, probe: Path) -> str:
    """A log line with the trace in `workdir` for the model `probe`."""
    try:
        listed = _Trace.model_validate_json((workdir / TRACE).read_bytes()).unsupported_nodes
    except (OSError, ValidationError):  # missing or incomplete
        listed = ()
    if not listed:
        return _MARK + Support().model_dump_json()
    graph = onnx.load(probe, load_external_data=False).graph
    ops = {node.name: qualified(node) for node in graph.node if node.name}
    unbound = [value.name for value in fed_inputs(graph) if is_unbound(value.type)]
    line = Support(refused=refused(listed, ops)[:_MOST], unbound=tuple(unbound))
    return _MARK + json.dumps(line.model_dump())


def read_support(log: str) -> Support:
    """The contents of a log's last line, if it is such a line: a hostile model can make QNN print others."""
    line = log.rstrip("\n").rpartition("\n")[2]
    if not line.startswith(_MARK):
        return Support()
    try:
        return Support.model_validate_json(line.removeprefix(_MARK))
    except ValidationError:
        return Support()


def refused(listed: Sequence[Listed], ops: Mapping[str, str]) -> tuple[RefusedNode, ...]:
    """The trace's entries under the model's node names, each node once."""
    found: dict[str, RefusedNode] = {}
    for entry in listed:
        if entry.op_type.startswith(_COMPILED):
            continue
        node = entry.node_name
        while node and node not in ops:
            shorter = _APPENDED.sub("", node)
            node = shorter if shorter != node else ""
        repeated = f"{entry.op_type} node `{entry.node_name}` will not be assigned to QNN EP."
        reason = entry.reason.removesuffix(repeated).strip()
        one = RefusedNode(node=node, op=ops.get(node, entry.op_type), reason=reason)
        found.setdefault(node or entry.node_name, one)
    return tuple(found.values())
