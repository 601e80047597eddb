"""What QNN says of each node that it does not take: read from its trace, in the names of the model that it was given.

The list in QNN's log cannot be read safely, since node names stand in it as they are, and it is not printed where no
node at all is supported. The trace, a JSON file, has the same nodes with a reason each, and always.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
from pydantic import BaseModel, ValidationError

from onnxbisect.model.scopes import qualified

#: What QNN calls the file; it writes it into its working directory.
TRACE = "qnn_op_trace.json"

#: Begins the line that `told` writes and `read_told` reads.
_MARK = "onnx-bisect: refused in QNN's trace: "

#: Nodes told of one compile; what is not supported is rarely of more kinds.
_MOST = 500

#: What onnxruntime's optimiser appends to the name of the node that it replaces or moves.
_APPENDED = re.compile(r"(?:_token_\d+|_new_reshape|/duplicated|/\w+Fusion/?)$")

#: The reason for whatever comes behind a node that was refused.
_CONSEQUENCE = "Cannot get shape"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A node that QNN does not take. `node` is empty where no node of the model has given it its name.

    `op` is then what onnxruntime has inserted, else the op of the model's node as hints spell it.
    """

    node: str
    op: str
    reason: str

    @property
    def is_consequence(self) -> bool:
        """Whether it was refused only because it has no shape, which another node's refusal brings about."""
        return self.reason.startswith(_CONSEQUENCE)


class _Listed(BaseModel):
    node_name: str = ""
    op_type: str = ""
    reason: str = ""


class _Trace(BaseModel):
    unsupported_nodes: list[_Listed] = []


def told(workdir: Path, probe: Path) -> str:
    """A line for the log: what the trace in `workdir` says of the nodes of `probe`, one entry each."""
    listed = _listed(workdir / TRACE)
    found = refused(listed, _ops(probe)) if listed else ()
    return _MARK + json.dumps([asdict(one) for one in found[:_MOST]]) + "\n"


def read_told(log: str) -> tuple[Refused, ...]:
    """What the last such line of a log says; a line of a hostile model's comes before it."""
    _, _, line = log.rpartition(_MARK)
    try:
        return tuple(Refused(**fields) for fields in json.loads(line.partition("\n")[0]))
    except (ValueError, TypeError):
        return ()


def refused(listed: Sequence[_Listed], ops: Mapping[str, str]) -> tuple[Refused, ...]:
    """The trace's entries in the names of a model whose nodes have these ops, each once."""
    found: dict[tuple[str, str], Refused] = {}
    for entry in listed:
        node = _own_name(entry.node_name, ops)
        op = ops.get(node, entry.op_type)
        found.setdefault((node or entry.node_name, op), Refused(node=node, op=op, reason=_reason(entry)))
    return tuple(found.values())


def _own_name(name: str, ops: Mapping[str, str]) -> str:
    while name not in ops:
        shorter = _APPENDED.sub("", name)
        if shorter == name:
            return ""
        name = shorter
    return name


def _reason(entry: _Listed) -> str:
    """Why, without the words that only repeat the node's name."""
    name = entry.node_name
    return entry.reason.removesuffix(f"{entry.op_type} node `{name}` will not be assigned to QNN EP.").strip()


def _listed(trace: Path) -> list[_Listed]:
    try:
        return _Trace.model_validate_json(trace.read_bytes()).unsupported_nodes
    except (OSError, ValidationError):  # not written, or not to its end
        return []


def _ops(probe: Path) -> dict[str, str]:
    graph = onnx.load(probe, load_external_data=False).graph
    return {node.name: qualified(node) for node in graph.node if node.name}
