"""Which module of the user's network a node came from, as far as the exporter left a trace of it.

Sources: the metadata that torch's dynamo exporter writes on nodes (`pkg.torch.onnx.name_scopes`, `namespace`), and
node names that carry the module (`/mask_decoder/transformer/layers.0/Add`), which its TorchScript exporter makes.
"""

import re
from collections.abc import Mapping

import onnx

from onnxbisect.unitset import UnitSet, of

_LIST_ITEM = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
#: More names than this are no modules of a network.
_MOST = 1000

#: The modules around a node, outermost first: `("decoder", "layers.0", "self_attn")`.
ModulePath = tuple[str, ...]


def module_of(node: onnx.NodeProto) -> str | None:
    """The module as the exporter spells it, `decoder.layers.0` or `decoder/layers.0`; None where it says nothing."""
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
    """Of a list that the exporter printed with `str`, the last item but one: the module around the op itself."""
    items = _items(literal)
    return (items[-2] or None) if len(items) > 1 else None


def _items(literal: str) -> list[str]:
    return [single or double for single, double in _LIST_ITEM.findall(literal)]


def path_of_node(node: onnx.NodeProto) -> ModulePath:
    """The modules around a node. The exporter's metadata list them one by one, each by its name in the network, or by
    that in the module before it; names of nodes have them one after the other.
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
    """The modules that a spelling names, `/decoder/layers.0` or `decoder.layers.0`."""
    if "/" in text:
        return tuple(filter(None, text.split("/")))
    found: list[str] = []
    _extend(found, text)
    return tuple(found)


def _extend(path: list[str], dotted: str) -> None:
    """A number belongs to the list that it counts in: `layers.0` is one module."""
    for word in filter(None, dotted.split(".")):
        if word.isdecimal() and path:
            path[-1] += f".{word}"
        else:
            path.append(word)


def spelled(path: ModulePath) -> str:
    """`/decoder/layers.0`, as `path_of` reads it."""
    return "/" + "/".join(path)


def below(paths: Mapping[int, ModulePath], scope: ModulePath) -> UnitSet:
    """The units of this module and of those within it; `paths` has that of each unit."""
    return of(unit for unit, path in paths.items() if path[: len(scope)] == scope)


def parts(paths: Mapping[int, ModulePath]) -> dict[ModulePath, UnitSet]:
    """The largest modules that a network consists of, with their units, in the order of their first ones.

    These are the modules at the first depth at which there are several. Units that stand in none of them, but around
    them, are under the path above. None where nodes do not tell several modules apart.
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
