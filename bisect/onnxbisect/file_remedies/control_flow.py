"""Control flow that is decided before the model runs, written out, and sequences of known length as tensors."""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise

import numpy as np
import onnx

from onnxbisect.cut.rename import tensor_names, unused_name
from onnxbisect.file_remedies import remedy
from onnxbisect.file_remedies.loops import loop_unroll, scan_unroll, stacked
from onnxbisect.language import BETWEEN, count, english
from onnxbisect.model.external import constant_tensor
from onnxbisect.model.facts import TensorFacts
from onnxbisect.model.order import make_unique
from onnxbisect.model.scopes import bodies, constant_names, domain_of, is_constant, reads, walk
from onnxbisect.preflight import ToolLimits
from onnxbisect.rewrites import Exactness, NotApplicable, Rule, Site, apply, rewrite
from onnxbisect.rewrites.apply import trace
from onnxbisect.rewrites.families.bodies import if_constant
from onnxbisect.rewrites.site import concat, reshape, slice_axis

_RULES = {"If": if_constant, "Loop": loop_unroll, "Scan": scan_unroll}
#: Most nodes added at a time: nested loops multiply.
_MOST_NODES = 2_000


def _done(op: str, number: int) -> str:
    if op == "If":
        return english("{number} If replaced by the branch that it takes", number=number)
    return english("{number} {op} written out", number=number, op=op)


def of_several(sentence: str) -> str:
    """What was done to more than one node, in the words that `resolve_control_flow` has for one."""
    number, _, done = sentence.partition(" ")
    if done != "If replaced by the branch that it takes":
        return sentence
    return english("{number} If replaced by the branches that they take", number=number)


@remedy.file_remedy("resolve-control-flow", answers="control-flow control-flow-constant-condition outer-scope-capture")
def resolve_control_flow(file: remedy.File, limits: ToolLimits) -> remedy.RemediedFile:
    """If with a constant condition becomes its branch; Loop and Scan with a constant number of rounds, the rounds."""
    named = [onnx.NodeProto.FromString(node.SerializeToString()) for node in file.proto.graph.node]
    make_unique(named)
    changes: dict[str, Rule] = {}
    read: set[str] = set()
    done: Counter[str] = Counter()
    left = _MOST_NODES
    reason = "the main graph has no If, Loop or Scan"
    for node in named:
        rule = None if domain_of(node) else _RULES.get(node.op_type)
        if rule is None:
            continue
        try:
            made = sum(1 for _ in walk(list(rewrite(rule, node, file.facts).replacement.nodes)))
        except NotApplicable as why:
            reason = f"{node.op_type} {node.name}: {why}"
            continue
        if made > left:
            reason = f"{node.op_type} {node.name}: more than {_MOST_NODES:,} nodes would be put in"
            break
        left -= made
        changes[node.name] = rule
        read.update(reads(node))
        done[node.op_type] += 1
    if not changes:
        raise NotApplicable(reason)
    result = apply(file.proto, changes, file.facts)
    remedy.drop_unread(result.graph, read)
    sentence = BETWEEN.join(_done(op, number) for op, number in sorted(done.items()))
    return remedy.RemediedFile(proto=result, sentence=sentence, structure=True)


def why_not_written_out(node: onnx.NodeProto, facts: TensorFacts) -> str:
    """Why a Loop or Scan stays; empty for other nodes, and for one that can be written out."""
    if node.op_type not in ("Loop", "Scan") or domain_of(node):
        return ""
    try:
        rewrite(_RULES[node.op_type], node, facts)
    except NotApplicable as why:
        return str(why)
    return ""


#: Most tensors of one sequence.
_MOST_TENSORS = 1_000

#: The tensors of each sequence, by its name.
Held = dict[str, list[str]]
#: Returns the tensors of the sequence that a node makes, or the tensor.
_Write = Callable[[Site, Held], list[str] | str]
_WRITTEN: dict[str, _Write] = {
    "SequenceConstruct": lambda site, held: site.inputs(),
    "SequenceEmpty": lambda site, held: [],
}


def _writes(op: str) -> Callable[[_Write], _Write]:
    def register(write: _Write) -> _Write:
        _WRITTEN[op] = write
        return write

    return register


@remedy.file_remedy("sequences-to-tensors", answers="sequence-type")
def sequences_to_tensors(file: remedy.File, limits: ToolLimits) -> remedy.RemediedFile:
    """Sequences of known length become the tensors that they hold, what is done with them Slices and Concats."""
    result = remedy.copied(file.proto)
    graph, facts = result.graph, file.facts
    taken = remedy.every_name(graph)
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
        site = Site(node, facts, remedy.unused_prefix(node.name or f"{node.op_type}_{number}", taken))
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
    remedy.set_nodes(graph, nodes)
    graph.initializer.extend(written)
    for index in reversed(range(len(graph.value_info))):
        if graph.value_info[index].name in held:
            del graph.value_info[index]
    remedy.drop_unread(graph, suspects | {name for tensors in held.values() for name in tensors})
    return remedy.RemediedFile(
        proto=result, sentence=f"{count(len(held), 'sequence')} replaced by tensors", structure=True
    )


def _of(site: Site, held: Held, slot: int = 0) -> list[str]:
    """The tensors of a sequence that is an input."""
    return site.known(held.get(site.input(slot)), f"{site.node.op_type} takes a sequence from outside")


def _place(site: Site, slot: int, length: int, last: int) -> int:
    """A constant position in a sequence; `last` if it is omitted."""
    place = int(site.value(slot).item()) if site.has(slot) else last
    site.demand(-length <= place <= max(last, 0), f"position {place} does not exist in a sequence of {length}")
    return place + length if place < 0 else place


@_writes("SplitToSequence")
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


@_writes("SequenceInsert")
def _insert(site: Site, held: Held) -> list[str]:
    tensors = list(_of(site, held))
    tensors.insert(_place(site, 2, len(tensors), len(tensors)), site.input(1))
    return tensors


@_writes("SequenceErase")
def _erase(site: Site, held: Held) -> list[str]:
    tensors = list(_of(site, held))
    site.demand(bool(tensors), "the sequence is empty")
    del tensors[_place(site, 1, len(tensors), len(tensors) - 1)]
    return tensors


@_writes("SequenceAt")
def _at(site: Site, held: Held) -> str:
    tensors = _of(site, held)
    site.demand(bool(tensors), "the sequence is empty")
    return tensors[_place(site, 1, len(tensors), len(tensors) - 1)]


@_writes("SequenceLength")
def _length(site: Site, held: Held) -> str:
    return site.constant(np.array(len(_of(site, held)), np.int64))


@_writes("ConcatFromSequence")
def _joined(site: Site, held: Held) -> str:
    tensors = _of(site, held)
    site.demand(bool(tensors), "the sequence is empty")
    axis = int(site.attribute("axis", 0))
    if not site.attribute("new_axis", 0):
        return concat(site, tensors, axis)
    return stacked(site, tensors, axis)


#: Most bytes of a weight that is copied, and the first IR version in which what a body stores need not be its input.
_LARGEST_WEIGHT = 1 << 24
_STORED_APART = 4


@remedy.file_remedy("weights-into-bodies", answers="", exactness=Exactness.EXACT)
def weights_into_bodies(file: remedy.File, limits: ToolLimits) -> remedy.RemediedFile:
    """Weights that bodies of If, Loop and Scan read from outside, copied into each of these bodies."""
    proto = onnx.ModelProto()
    proto.CopyFrom(file.proto)
    copies = 0 if proto.ir_version < _STORED_APART else _copied_inside(proto.graph, {}, tensor_names(proto.graph))
    if not copies:
        raise NotApplicable("no body reads a weight from outside")
    return remedy.RemediedFile(proto=proto, sentence=f"{count(copies, 'weight')} copied into the bodies that read them")


def _copied_inside(graph: onnx.GraphProto, outer: Mapping[str, onnx.TensorProto], taken: set[str]) -> int:
    """Copy, in place, what bodies in the graph read of it and of the graphs around it, whose constants are `outer`."""
    held = {node.output[0]: constant_tensor(node) for node in graph.node if is_constant(node)}
    dense = {name: tensor for name, tensor in held.items() if isinstance(tensor, onnx.TensorProto)}
    visible = {name: it for name, it in outer.items() if name not in _own(graph)}
    visible |= {tensor.name: tensor for tensor in graph.initializer} | dense
    copies = 0
    for body in (body for node in graph.node for body in bodies(node)):
        copies += _copied_inside(body, visible, taken)
        results = [value.name for value in body.output]
        read = dict.fromkeys([*(name for inner in body.node for name in inner.input), *results])
        for name in (name for name in read if name in visible and name not in _own(body)):
            if visible[name].ByteSize() > _LARGEST_WEIGHT:
                continue
            copies += 1
            inside = unused_name(f"{name}_inside", taken)
            body.initializer.add().CopyFrom(visible[name])
            body.initializer[-1].name = inside
            for names in (inner.input for inner in body.node):
                names[:] = [inside if it == name else it for it in names]
            for value in (value for value in body.output if value.name == name):
                value.name = inside
    return copies


def _own(graph: onnx.GraphProto) -> set[str]:
    """The tensors that a graph defines itself, which hide those of the same names around it."""
    made = {name for node in graph.node for name in node.output}
    return made | {value.name for value in graph.input} | constant_names(graph)
