"""Replaces sequences of known length by the tensors that they hold."""

from collections.abc import Callable
from itertools import accumulate, pairwise

import numpy as np
import onnx

from onnxbisect.file_remedies.editing import copied, drop_unread, every_name, set_nodes, trace, unused_prefix
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.scopes import domain_of, reads
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count
from onnxbisect.rewrites import NotApplicable, Site
from onnxbisect.rewrites.forms import concat, reshape, slice_axis

#: Most tensors of one sequence.
_MOST_TENSORS = 1_000

#: The tensors of each sequence, by its name.
Held = dict[str, list[str]]


@file_remedy("sequences-to-tensors", answers="sequence-type")
def sequences_to_tensors(file: File, reader: Reader) -> Change:
    """Sequences of known length become the tensors that they hold, what is done with them Slices and Concats."""
    result = copied(file.proto)
    graph, facts = result.graph, file.facts
    taken = every_name(graph)
    held: Held = {}
    nodes: list[onnx.NodeProto] = []
    written: list[onnx.TensorProto] = []
    suspects: set[str] = set()
    for number, node in enumerate(graph.node):
        make = None if domain_of(node) else _WRITTEN.get(node.op_type)
        if make is None:
            if not held.keys().isdisjoint(reads(node)):
                raise NotApplicable(f"{node.op_type} {node.name} takes a sequence")
            nodes.append(node)
            continue
        site = Site(node, facts, unused_prefix(node.name or f"{node.op_type}_{number}", taken))
        made = make(site, held)
        suspects.update(name for name in node.input if name and name not in held)
        if isinstance(made, list):
            if len(made) > _MOST_TENSORS:
                raise NotApplicable(f"{node.op_type} {node.name} gives more than {_MOST_TENSORS:,} tensors")
            held[node.output[0]] = made
            own, constants = site.written()
        else:
            replacement = site.replacement(made)
            own, constants = replacement.nodes, replacement.initializers
        for new in own:
            trace(node, new)
            nodes.append(new)
        written += constants
    if not held:
        raise NotApplicable("no node of the main graph makes a sequence")
    if not held.keys().isdisjoint(value.name for value in graph.output):
        raise NotApplicable("a sequence is an output of the model")
    set_nodes(graph, nodes)
    graph.initializer.extend(written)
    for index in reversed(range(len(graph.value_info))):
        if graph.value_info[index].name in held:
            del graph.value_info[index]
    drop_unread(graph, suspects | {name for tensors in held.values() for name in tensors})
    return Change(proto=result, sentence=f"{count(len(held), 'sequence')} replaced by tensors", structure=True)


def _of(site: Site, held: Held, slot: int = 0) -> list[str]:
    """The tensors of a sequence that is an input."""
    return site.known(held.get(site.input(slot)), f"{site.node.op_type} takes a sequence from outside")


def _place(site: Site, slot: int, length: int, last: int) -> int:
    """A constant position in a sequence; `last` if it is omitted."""
    place = int(site.value(slot).item()) if site.has(slot) else last
    site.demand(-length <= place <= max(last, 0), f"position {place} does not exist in a sequence of {length}")
    return place + length if place < 0 else place


def _split(site: Site, held: Held) -> list[str]:
    dims = site.shape(0)
    axis = site.axis(len(dims))
    given = site.value(1) if site.has(1) else None
    if given is None or given.ndim == 0:
        size = 1 if given is None else int(given.item())
        site.demand(size > 0, "it splits into parts of no size")
        ends = [*range(size, dims[axis], size), dims[axis]]
    else:
        ends = [int(end) for end in accumulate(given)]
    parts = [slice_axis(site, site.input(0), axis, start, end) for start, end in pairwise([0, *ends])]
    if given is None and not site.attribute("keepdims", 1):
        parts = [reshape(site, part, [*dims[:axis], *dims[axis + 1 :]]) for part in parts]
    return parts


def _insert(site: Site, held: Held) -> list[str]:
    tensors = list(_of(site, held))
    tensors.insert(_place(site, 2, len(tensors), len(tensors)), site.input(1))
    return tensors


def _erase(site: Site, held: Held) -> list[str]:
    tensors = list(_of(site, held))
    site.demand(bool(tensors), "the sequence is empty")
    del tensors[_place(site, 1, len(tensors), len(tensors) - 1)]
    return tensors


def _at(site: Site, held: Held) -> str:
    tensors = _of(site, held)
    site.demand(bool(tensors), "the sequence is empty")
    return tensors[_place(site, 1, len(tensors), len(tensors) - 1)]


def _length(site: Site, held: Held) -> str:
    return site.constant(np.array(len(_of(site, held)), np.int64))


def _joined(site: Site, held: Held) -> str:
    tensors = _of(site, held)
    site.demand(bool(tensors), "the sequence is empty")
    axis = int(site.attribute("axis", 0))
    if not site.attribute("new_axis", 0):
        return concat(site, tensors, axis)
    return concat(site, [_unsqueezed(site, name, axis) for name in tensors], axis)


def _unsqueezed(site: Site, tensor: str, axis: int) -> str:
    if site.opset < 13:
        return site.op("Unsqueeze", tensor, axes=[axis])
    return site.op("Unsqueeze", tensor, site.integers([axis]))


def _listed(site: Site, held: Held) -> list[str]:
    return site.inputs()


_WRITTEN: dict[str, Callable[[Site, Held], list[str] | str]] = {
    "SplitToSequence": _split,
    "SequenceConstruct": _listed,
    "SequenceEmpty": lambda site, held: [],
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceAt": _at,
    "SequenceLength": _length,
    "ConcatFromSequence": _joined,
}
