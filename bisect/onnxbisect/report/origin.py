"""Where in the user's source a node came from, as far as the exporter left a trace of it.

Sources: the metadata that torch's dynamo exporter writes on nodes (`pkg.torch.onnx.stack_trace`, outermost frame
first; `pkg.torch.onnx.name_scopes`; `namespace`), the doc strings of its TorchScript exporter with `verbose=True`
(innermost frame first), and node names that carry the module scope (`/mask_decoder/transformer/layers.0/Add`).
"""

import re
from dataclasses import dataclass

import onnx

_DYNAMO_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}), in ([^\n]{1,200})(?:\n +([^\n]*))?')
_TORCHSCRIPT_FRAME = re.compile(r"^ *([^\n()]{1,1000})\((\d{1,9})\): ([^\n]{1,200})$", re.MULTILINE)
_LIST_ITEM = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
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
    """What is known of where this node came from; a falsy Origin where the exporter left nothing."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    file, line, function, code = _frame(metadata.get("pkg.torch.onnx.stack_trace", ""), node.doc_string)
    return Origin(
        file=file,
        line=line,
        function=function,
        code=code,
        scope=_scope(metadata, node.name),
        module=_item_before_last(metadata.get("pkg.torch.onnx.class_hierarchy", "")),
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


def _scope(metadata: dict[str, str], name: str) -> str | None:
    scope = _item_before_last(metadata.get("pkg.torch.onnx.name_scopes", ""))
    if scope:
        return scope
    levels = metadata.get("namespace", "").split("/")
    if len(levels) > 1 and (level := levels[-2].partition(":")[0].strip()):
        return level
    if "/" in name.strip("/"):
        return name.strip("/").rpartition("/")[0]
    return None


def _item_before_last(literal: str) -> str | None:
    """Of a list that the exporter printed with `str`, the last item but one: the module around the op itself."""
    items = [single or double for single, double in _LIST_ITEM.findall(literal)]
    return (items[-2] or None) if len(items) > 1 else None
