"""Find the module of the user's network, and the line of its source, that a node came from, as far as the exporter
recorded them.

Sources: metadata that torch's dynamo exporter writes on nodes (`pkg.torch.onnx.name_scopes`, `namespace`;
`pkg.torch.onnx.stack_trace`, outermost frame first). Its TorchScript exporter writes node names that contain the module
(`/mask_decoder/transformer/layers.0/Add`), and with `verbose=True` frames into doc strings, innermost first.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from onnxbisect.unitset import UnitSet, of

_LIST_ITEM = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
#: Most modules at one depth; more names than this do not stand for modules of a network.
_MOST = 1000

#: The modules around a node, outermost first: `("decoder", "layers.0", "self_attn")`.
ModulePath = tuple[str, ...]

_DYNAMO_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}), in ([^\n]{1,200})(?:\n +([^\n]*))?')
_TORCHSCRIPT_FRAME = re.compile(r"^ *([^\n()]{1,1000})\((\d{1,9})\): ([^\n]{1,200})$", re.MULTILINE)
#: Frames of the framework itself: never what the user has to edit.
_FRAMEWORK = re.compile(
    r"(?:^|[\\/])(?:torch[\\/](?:nn|onnx|fx|export|utils|jit|autograd|_[^\\/]+)|functorch|onnxscript)[\\/]|^<"
)


def module_of(node: onnx.NodeProto) -> str | None:
    """The module as the exporter spells it, `decoder.layers.0` or `decoder/layers.0`; None where it is not recorded."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    scope = item_before_last(metadata.get("pkg.torch.onnx.name_scopes", ""))
    if scope:
        return scope
    levels = metadata.get("namespace", "").split("/")
    if len(levels) > 1 and (level := levels[-2].partition(":")[0].strip()):
        return level
    if "/" in node.name.strip("/"):
        return node.name.strip("/").rpartition("/")[0]
    return None


def item_before_last(literal: str) -> str | None:
    """The last item but one of a list printed with `str`: the module that contains the op itself."""
    items = _items(literal)
    return (items[-2] or None) if len(items) > 1 else None


def _items(literal: str) -> list[str]:
    return [single or double for single, double in _LIST_ITEM.findall(literal)]


def path_of_node(node: onnx.NodeProto) -> ModulePath:
    """The modules around a node, outermost first.

    Exporter metadata lists each module by its full name or by its name relative to the module before; a node's name
    contains the relative names one after the other.
    """
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    scopes = _items(metadata.get("pkg.torch.onnx.name_scopes", ""))
    scopes = scopes or [level.partition(":")[0].strip() for level in metadata.get("namespace", "").split("/")]
    found: list[str] = []
    before = ""
    for scope in filter(None, scopes[:-1]):
        _extend(found, scope[len(before) :] if before and scope.startswith(f"{before}.") else scope)
        before = scope
    return tuple(found) if len(scopes) > 1 else path_of(node.name.strip("/").rpartition("/")[0] + "/")


def path_of(text: str) -> ModulePath:
    """The modules in a spelling such as `/decoder/layers.0` or `decoder.layers.0`."""
    if "/" in text:
        return tuple(filter(None, text.split("/")))
    found: list[str] = []
    _extend(found, text)
    return tuple(found)


def _extend(path: list[str], dotted: str) -> None:
    """Append the modules of a dotted name; a number stays with the list that it indexes: `layers.0` is one module."""
    for word in filter(None, dotted.split(".")):
        if word.isdecimal() and path:
            path[-1] += f".{word}"
        else:
            path.append(word)


def spelled(path: ModulePath) -> str:
    """The spelling that `path_of` reads: `/decoder/layers.0`."""
    return "/" + "/".join(path)


def below(paths: Mapping[int, ModulePath], scope: ModulePath) -> UnitSet:
    """The units of the module `scope` and of the modules inside it; `paths` gives each unit's module."""
    return of(unit for unit, path in paths.items() if path[: len(scope)] == scope)


def parts(paths: Mapping[int, ModulePath]) -> dict[ModulePath, UnitSet]:
    """The largest modules of a network with their units, ordered by their first unit.

    These are the modules at the smallest depth that has several. Units around them, in none of them, are listed under
    the enclosing path. Empty where the nodes do not distinguish several modules.
    """
    depth = 0
    deepest = max(map(len, paths.values()), default=0)
    while depth < deepest:
        depth += 1
        modules = {path[:depth] for path in paths.values() if len(path) >= depth}
        if len(modules) > _MOST:
            break
        if len(modules) > 1:
            found: dict[ModulePath, list[int]] = {}
            for unit, path in sorted(paths.items()):
                found.setdefault(path[:depth], []).append(unit)
            return {path: of(units) for path, units in found.items()}
    return {}


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
    frames = _DYNAMO_FRAME.findall(metadata.get("pkg.torch.onnx.stack_trace", ""))[::-1]
    frames = frames or [(*frame, "") for frame in _TORCHSCRIPT_FRAME.findall(node.doc_string)]
    # the innermost frame that is not the framework's own
    own = next((frame for frame in frames if not _FRAMEWORK.search(frame[0])), None)
    file, line, function, code = own or (None, None, "", "")
    return Origin(
        file=file,
        line=None if line is None else int(line),
        function=function.strip() or None,
        code=code.strip() or None,
        scope=module_of(node),
        module=item_before_last(metadata.get("pkg.torch.onnx.class_hierarchy", "")),
    )
