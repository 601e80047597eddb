"""Node names that are unique, so that a name in a compiler's log or on the command line means one node."""

from collections.abc import Sequence

import onnx


def make_unique(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    """Name the nameless and rename all but the first of each duplicate, in place; returns the new names.

    A generated name is made from what an edit elsewhere in the model leaves alone: the op and its first output.
    Names that the file gave are never given to another node.
    """
    taken = {node.name for node in nodes if node.name}
    seen: set[str] = set()
    given: list[str] = []
    for index, node in enumerate(nodes):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        output = next((name for name in node.output if name), str(index))
        base = node.name or f"{node.op_type}_{output}"
        name, count = base, 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        node.name = name
        taken.add(name)
        seen.add(name)
        given.append(name)
    return given
