"""What QNN says of each node that it does not take: read from its trace, in the names of the model that it was given.

The list in QNN's log cannot be read safely, since node names stand in it as they are, and it is not printed where no
node at all is supported. The trace, a JSON file, has the same nodes with a reason each, and always.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from pydantic import BaseModel, ConfigDict, ValidationError

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.scopes import constant_names, qualified

#: What QNN calls the file; it writes it into its working directory.
TRACE = "qnn_op_trace.json"

#: Begins the line that `support_line` makes and `read_support` reads; names in it are escaped, so it is one line.
_MARK = "onnx-bisect: in QNN's trace: "

#: Refused nodes that are reported of one compile; what is not supported is rarely of more kinds.
_MOST = 500

#: What onnxruntime's optimiser appends to the name of a node that it replaces or moves.
_APPENDED = re.compile(r"(?:_token_\d+|_new_reshape|/duplicated|/\w+Fusion/?)$")

#: The reason for whatever stands behind a node that was refused.
_CONSEQUENCE = "Cannot get shape"


class Listed(BaseModel):
    """An entry of the trace's list."""

    node_name: str = ""
    op_type: str = ""
    reason: str = ""


class _Trace(BaseModel):
    unsupported_nodes: tuple[Listed, ...] = ()


class Refused(BaseModel):
    """A node that QNN does not take: of the model, and `op` is as hints spell it.

    Where onnxruntime's optimiser has made it of no node of the model, `node` is empty and `op` is what it made.
    """

    model_config = ConfigDict(frozen=True)

    node: str
    op: str
    reason: str

    @property
    def is_consequence(self) -> bool:
        """Whether only its shape is missing, for which another node is to blame, or the model's inputs."""
        return self.reason.startswith(_CONSEQUENCE)


class Support(BaseModel):
    """What is in the trace, and which of the model's inputs have no shape that QNN could have known."""

    refused: tuple[Refused, ...] = ()
    unbound: tuple[str, ...] = ()


def support_line(workdir: Path, probe: Path) -> str:
    """A line for the log on what the trace in `workdir` says of the model `probe`."""
    listed = _listed(workdir / TRACE)
    if not listed:
        return _MARK + Support().model_dump_json()
    graph = onnx.load(probe, load_external_data=False).graph
    ops = {node.name: qualified(node) for node in graph.node if node.name}
    constants = constant_names(graph)
    unbound = [value.name for value in graph.input if value.name not in constants and is_unbound(value.type)]
    line = Support(refused=refused(listed, ops)[:_MOST], unbound=tuple(unbound))
    return _MARK + json.dumps(line.model_dump())


def read_support(log: str) -> Support:
    """What the last line of a log says, where it is such a line: a hostile model can make QNN print others."""
    line = log.rstrip("\n").rpartition("\n")[2]
    if not line.startswith(_MARK):
        return Support()
    try:
        return Support.model_validate_json(line.removeprefix(_MARK))
    except ValidationError:
        return Support()


def refused(listed: Sequence[Listed], ops: Mapping[str, str]) -> tuple[Refused, ...]:
    """The trace's entries in the names of a model whose nodes have these ops; each node once."""
    found: dict[str, Refused] = {}
    for entry in listed:
        node = _own_name(entry.node_name, ops)
        one = Refused(node=node, op=ops.get(node, entry.op_type), reason=_reason(entry))
        found.setdefault(node or entry.node_name, one)
    return tuple(found.values())


def _own_name(name: str, ops: Mapping[str, str]) -> str:
    while name not in ops:
        shorter = _APPENDED.sub("", name)
        if shorter == name:
            return ""
        name = shorter
    return name


def _reason(entry: Listed) -> str:
    """Why, without the words that only repeat the node's name."""
    name = entry.node_name
    return entry.reason.removesuffix(f"{entry.op_type} node `{name}` will not be assigned to QNN EP.").strip()


def _listed(trace: Path) -> tuple[Listed, ...]:
    try:
        return _Trace.model_validate_json(trace.read_bytes()).unsupported_nodes
    except (OSError, ValidationError):  # not written, or not to its end
        return ()
