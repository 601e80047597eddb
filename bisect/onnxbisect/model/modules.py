"""Which module of the user's network a node came from, as far as the exporter left a trace of it.

Sources: the metadata that torch's dynamo exporter writes on nodes (`pkg.torch.onnx.name_scopes`, `namespace`), and
node names that carry the module (`/mask_decoder/transformer/layers.0/Add`), which its TorchScript exporter makes.
"""

import re
from collections.abc import Mapping

import onnx

from onnxbisect.unitset import UnitSet

_LIST_ITEM = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
#: Modules that are told apart at most before those deeper down are not looked at.
_ENOUGH = 2

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
    items = [single or double for single, double in _LIST_ITEM.findall(literal)]
    return (items[-2] or None) if len(items) > 1 else None


def path_of(text: str) -> ModulePath:
    """The modules that a spelling names. A number belongs to the list that it counts in: `layers.0` is one."""
    if "/" in text:
        return tuple(filter(None, text.split("/")))
    found: list[str] = []
    for word in filter(None, text.split(".")):
        if word.isdecimal() and found:
            found[-1] += f".{word}"
        else:
            found.append(word)
    return tuple(found)


def spelled(path: ModulePath) -> str:
    """`/decoder/layers.0`, as `path_of` reads it."""
    return "/" + "/".join(path)


def below(paths: Mapping[int, ModulePath], scope: ModulePath) -> UnitSet:
    """The units of this module and of those within it; `paths` has that of each unit."""
    found = 0
    for unit, path in paths.items():
        if path[: len(scope)] == scope:
            found |= 1 << unit
    return found


def parts(paths: Mapping[int, ModulePath]) -> dict[ModulePath, UnitSet]:
    """The largest modules that a network consists of, with their units, in the order of their first ones.

    These are the modules at the first depth at which there are several. Units that stand in none of them, but around
    them, are under the path above. None where the network has no several modules.
    """
    depth = 0
    deepest = max(map(len, paths.values()), default=0)
    while depth < deepest:
        depth += 1
        modules = {path[:depth] for path in paths.values() if len(path) >= depth}
        if len(modules) >= _ENOUGH:
            found: dict[ModulePath, UnitSet] = {}
            for unit, path in sorted(paths.items()):
                found[path[:depth]] = found.get(path[:depth], 0) | 1 << unit
            return found
    return {}
