"""Changed files that a tool's message asks for: fewer dimensions, or weights inside of the bodies that read them."""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from onnxbisect.file_remedies.candidates import ChangedCopy, after_remedies, with_lower_ranks
from onnxbisect.file_remedies.control_flow import weights_into_bodies
from onnxbisect.file_remedies.ranks import USUAL_RANK
from onnxbisect.model import Model
from onnxbisect.model.scopes import bodies, captures, constant_names, is_constant
from onnxbisect.preflight import ToolLimits

#: How messages speak of the number of dimensions, as `rank 6`, `5-D` or `6 dimensions`.
_OF_RANK = re.compile(r"\b(?:ranks?|n?dims?|dimensions?|\d+-?d)\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\d.])\d+(?=-?[dD]?\b)(?!\.\d)")


def as_said(model: Model, limits: ToolLimits, message: str, nodes: Collection[str]) -> Iterator[ChangedCopy]:
    """Files that answer a message, which names these nodes, about the whole model."""
    yield from _within_ranks(model, limits, message, nodes)
    graph = model.proto.graph
    stored = constant_names(graph) | {node.output[0] for node in graph.node if is_constant(node)}
    read = {name for node in graph.node if bodies(node) for name in captures(node)}
    # QNN: If implicit input `w` is produced outside the QNN partition
    if any(re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/.])", message) for name in stored & read):
        changed = after_remedies(model, limits, {weights_into_bodies.id})
        if changed is not None:
            yield changed


def _within_ranks(model: Model, limits: ToolLimits, message: str, nodes: Collection[str]) -> Iterator[ChangedCopy]:
    """The file with fewer dimensions, for a tool whose message speaks of their number, or that names only `nodes` with
    more than four: at most as many as it names, or one less than what it refuses; then at most four.
    """
    ranks = {name: len(kind.tensor_type.shape.dim) for name, kind in model.types.items()}
    highest = max(ranks.values(), default=0)
    limit: int | None = None
    if _OF_RANK.search(message):
        named = {int(number) for number in _NUMBER.findall(message)}
        taken = named.intersection(range(USUAL_RANK, highest))
        limit = max(taken, default=highest - 1 if highest in named else None)
    of_nodes = [
        max((ranks.get(name, 0) for name in (*node.input, *node.output)), default=0)
        for node in model.proto.graph.node
        if node.name in nodes
    ]
    if limit is None and of_nodes:
        limit = min(of_nodes) - 1
    if limit is None or not USUAL_RANK <= limit < highest:
        return
    for most in dict.fromkeys((limit, USUAL_RANK)):
        if (changed := with_lower_ranks(model, limits, most)) is not None:
            yield replace(changed, needed=False)
