"""The lines of the user's source that culprits come from: `model.py:112  x[:, i, :]`, each line once."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx

from onnxbisect.language import _
from onnxbisect.model.modules import item_before_last, module_of
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CulpritEntry, NeedsContextEntry, OriginEntry
from onnxbisect.report.text import plural

_DYNAMO_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}), in ([^\n]{1,200})(?:\n +([^\n]*))?')
_TORCHSCRIPT_FRAME = re.compile(r"^ *([^\n()]{1,1000})\((\d{1,9})\): ([^\n]{1,200})$", re.MULTILINE)
#: Frames of the framework itself: never what the user has to edit.
_FRAMEWORK = re.compile(
    r"(?:^|[\\/])(?:torch[\\/](?:nn|onnx|fx|export|utils|jit|autograd|_[^\\/]+)|functorch|onnxscript)[\\/]|^<"
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A place in the user's source. `scope` is the path of the module, `module` its class; None where unknown."""

    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    scope: str | None = None
    module: str | None = None

    def __bool__(self) -> bool:
        return self.file is not None or self.scope is not None


def origin(node: onnx.NodeProto) -> Origin:
    """Where this node came from; a falsy Origin if the exporter recorded nothing."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    file, line, function, code = _frame(metadata.get("pkg.torch.onnx.stack_trace", ""), node.doc_string)
    return Origin(
        file=file,
        line=line,
        function=function,
        code=code,
        scope=module_of(node),
        module=item_before_last(metadata.get("pkg.torch.onnx.class_hierarchy", "")),
    )


def _frame(trace: str, doc_string: str) -> tuple[str | None, int | None, str | None, str | None]:
    """The innermost frame that is not the framework's own."""
    frames = [(file, line, function, code) for file, line, function, code in _DYNAMO_FRAME.findall(trace)][::-1]
    frames = frames or [(file, line, function, "") for file, line, function in _TORCHSCRIPT_FRAME.findall(doc_string)]
    own = next((frame for frame in frames if not _FRAMEWORK.search(frame[0])), None)
    if own is None:
        return None, None, None, None
    file, line, function, code = own
    return file, int(line), function.strip() or None, code.strip() or None


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line, or the module where that is all that is known; `nodes` counts the nodes that come from it.

    `modules` are those around it that the nodes' names do not contain.
    """

    where: str
    code: str
    nodes: int
    file: str | None = None
    modules: str = ""

    @property
    def text(self) -> str:
        """`model.py:112 (layers.0)  x[:, i, :]`."""
        return f"{self.place}  {self.code}" if self.code else self.place

    @property
    def place(self) -> str:
        """`model.py:112 (layers.0)`."""
        return f"{self.where} ({self.modules})" if self.modules else self.where

    @property
    def counted(self) -> str:
        """`model.py:112 (4 nodes)  x[:, i, :]`, the text with the number of nodes where there are several."""
        return counted(self.text, self.nodes)


def of(*entries: CulpritEntry | NeedsContextEntry) -> list[SourceLine]:
    """The lines of these culprits that say more than their node names, those of a culprit's first node first."""
    told = [
        it for entry in entries for it in entry["origin"] if it["file"] or (it["scope"] or "") not in str(it["node"])
    ]
    found: dict[tuple[object, ...], list[OriginEntry]] = {}
    for it in told:
        found.setdefault((it["file"], it["line"]) if it["file"] else (it["scope"],), []).append(it)
    return [_line(group) for group in found.values()]


def of_place(place: "Origin") -> str:
    """`model.py:112  x[:, i, :]` of one node; empty where the exporter recorded no line."""
    if place.file is None:
        return ""
    where = f"{_name(place.file)}:{place.line}"
    return f"{where}  {place.code}" if place.code else where


def counted(text: str, nodes: int) -> str:
    """The text of a line with the number of nodes that come from it, where there are several."""
    where, between, code = text.partition("  ")
    return text if nodes == 1 else f"{where} ({plural(nodes, 'node')}){between}{code}"


def missing(document: Report) -> str:
    """How to export so that culprits have lines, where a file of PyTorch has none; else empty."""
    culprits = document["culprits"]
    if not culprits or not str(document["model"]["producer"]).startswith("pytorch"):
        return ""
    if any(it["file"] for culprit in culprits for it in culprit["origin"]):
        return ""
    return _(
        "The file has no lines of your source. It has them after torch.onnx.export(…, dynamo=True), or with "
        "verbose=True from the older exporter."
    )


def _line(group: Sequence[OriginEntry]) -> SourceLine:
    first = group[0]
    nodes = sum(it.get("nodes", 1) for it in group)
    scopes = _scopes(group)
    if first["file"] is None:
        return SourceLine(where=str(first["scope"]), code="", nodes=nodes)
    where = f"{_name(first['file'])}:{first['line']}"
    if not first["code"] and first["function"]:
        where += f" in {first['function']}"
    more = f" {_('and {more} more', more=len(scopes) - 1)}" if len(scopes) > 1 else ""
    modules = f"{scopes[0]}{more}" if scopes else ""
    return SourceLine(where=where, code=first["code"] or "", nodes=nodes, file=first["file"], modules=modules)


def _scopes(group: Iterable[OriginEntry]) -> list[str]:
    """Modules that the nodes' names do not contain."""
    return list(dict.fromkeys(str(it["scope"]) for it in group if it["scope"] and it["scope"] not in it["node"]))


def _name(file: str) -> str:
    return str(file).replace("\\", "/").rpartition("/")[2]
