"""The line of the user's source that a node came from, as far as the exporter recorded it.

Sources: the metadata that torch's dynamo exporter writes on nodes (`pkg.torch.onnx.stack_trace`, outermost frame first;
`pkg.torch.onnx.name_scopes`; `namespace`), the doc strings of its TorchScript exporter with `verbose=True` (innermost
frame first), and node names that carry the module scope (`/mask_decoder/transformer/layers.0/Add`).
"""

import re
from dataclasses import dataclass

import onnx

from onnxbisect.model.modules import item_before_last, module_of

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
