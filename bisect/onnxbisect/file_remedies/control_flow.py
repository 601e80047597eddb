"""Control flow that is decided before the model runs, written out, and sequences of known length as tensors."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
import onnx

from onnxbisect.cut.rename import rename_tensors, tensor_names, unused_name
from onnxbisect.file_remedies import remedy
from onnxbisect.language import count
from onnxbisect.model.external import constant_tensor
from onnxbisect.model.order import make_unique
from onnxbisect.model.scopes import bodies, constant_names, domain_of, is_constant, reads, walk
from onnxbisect.preflight import ToolLimits
from onnxbisect.rewrites import Exactness, NotApplicable, Rule, Site, apply, pytorch, rewrite, rule
from onnxbisect.rewrites.apply import trace
from onnxbisect.rewrites.families.bodies import if_constant
from onnxbisect.rewrites.site import concat, reshape, slice_axis

#: Most nodes of an unrolled loop.
_MOST_UNROLLED = 512
#: The operator set from which Scan has no batch dimension and no sequence lengths.
_PLAIN_SCAN = 9
#: The operator set from which Unsqueeze has its axes as an input.
_AXES_INPUT = 13


@pytorch("a loop over a Python number of rounds")
@rule("Loop -> *", Exactness.EXACT, rank=14, source="https://onnx.ai/onnx/operators/onnx__Loop.html")
def loop_unroll(at: Site) -> tuple[str, ...]:
    """The nodes of the body, as often as a constant number of rounds says."""
    body = at.known(next((it.g for it in at.node.attribute if it.name == "body"), None), "it has no body")
    if at.has(1) and not at.value(1).all():
        rounds = 0
    else:
        at.demand(_goes_on(at, body), "its condition is computed")
        rounds = max(0, int(at.value(0).item()))
    _demand_small(at, body, rounds)
    state = list(at.node.input[2:])
    carried = len(state)
    collected: list[list[str]] = [[] for _ in body.output[carried + 1 :]]
    at.demand(rounds > 0 or not collected, "it runs zero rounds and collects results")
    constants = _constants(at, body)
    for number in range(rounds):
        outputs = _round(at, body, number, constants | _given(at, body, number, state))
        state = outputs[1 : carried + 1]
        for results, output in zip(collected, outputs[carried + 1 :], strict=True):
            results.append(output)
    return (*state, *(_stacked(at, results) for results in collected))


@pytorch("a loop over the slices of a tensor of fixed length")
@rule("Scan -> *", Exactness.EXACT, rank=14, source="https://onnx.ai/onnx/operators/onnx__Scan.html")
def scan_unroll(at: Site) -> tuple[str, ...]:
    """The nodes of the body, once for each slice of inputs of fixed length."""
    body = at.known(next((it.g for it in at.node.attribute if it.name == "body"), None), "it has no body")
    at.demand(at.opset >= _PLAIN_SCAN, f"Scan of operator set {at.opset} works on batches")
    scanned = int(at.attribute("num_scan_inputs", 0))
    carried = len(at.node.input) - scanned
    for name in ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions"):
        at.demand(not any(at.attribute(name, [0])), f"it has {name}")
    lengths = {at.shape(slot)[0] for slot in range(carried, len(at.node.input))}
    at.demand(len(lengths) == 1, "its inputs have different lengths")
    rounds = lengths.pop()
    _demand_small(at, body, rounds)
    at.demand(rounds > 0, "its inputs are empty")
    state = list(at.node.input[:carried])
    collected: list[list[str]] = [[] for _ in body.output[carried:]]
    constants = _constants(at, body)
    for number in range(rounds):
        slices = []
        for name in at.node.input[carried:]:
            part = slice_axis(at, name, 0, number, number + 1)
            old = at.opset < _AXES_INPUT
            slices.append(at.op("Squeeze", part, axes=[0]) if old else at.op("Squeeze", part, at.integers([0])))
        formal = [value.name for value in body.input]
        outputs = _round(at, body, number, constants | dict(zip(formal, [*state, *slices], strict=True)))
        state = outputs[:carried]
        for results, output in zip(collected, outputs[carried:], strict=True):
            results.append(output)
    return (*state, *(_stacked(at, results) for results in collected))


def _demand_small(at: Site, body: onnx.GraphProto, rounds: int) -> None:
    at.demand(not body.sparse_initializer, "the body has a sparse constant")
    size = max(1, sum(1 for _ in walk(body))) * rounds
    at.demand(size <= _MOST_UNROLLED, f"it would become {size} nodes, more than the limit of {_MOST_NODES}")


def _goes_on(at: Site, body: onnx.GraphProto) -> bool:
    """Whether the condition that the body computes is always true."""
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    stored = {tensor.name: tensor for tensor in body.initializer}
    if name in makers and is_constant(makers[name]):
        held = constant_tensor(makers[name])
        stored |= {name: held} if isinstance(held, onnx.TensorProto) else {}
    value = onnx.numpy_helper.to_array(stored[name]) if name in stored else None
    if value is None and name not in makers:
        value = at.facts.value(name)
    return value is not None and bool(value.all())


def _constants(at: Site, body: onnx.GraphProto) -> dict[str, str]:
    """Add the body's initializers once for all iterations; returns their new names."""
    names = {}
    for tensor in body.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name] = at.fresh(tensor.name)
        at.constant_tensor(copy)
    return names


def _given(at: Site, body: onnx.GraphProto, number: int, state: Sequence[str]) -> dict[str, str]:
    """The inputs of a Loop iteration: its number, the condition, and the outputs of the previous iteration."""
    counter, condition, *carried = (value.name for value in body.input)
    names = dict(zip(carried, state, strict=True))
    ranks = [len(value.type.tensor_type.shape.dim) for value in body.input[:2]]
    read = {name for node in walk(body) for name in node.input} | {value.name for value in body.output}
    if counter in read:
        names[counter] = at.constant(np.full([1] * ranks[0], number, np.int64))
    if condition in read:
        names[condition] = at.constant(np.full([1] * ranks[1], True))
    return names


def _round(at: Site, body: onnx.GraphProto, number: int, given: Mapping[str, str]) -> list[str]:
    """Add one iteration's nodes; `given` are the body's inputs and constants. Returns the names of its outputs."""
    graph = onnx.GraphProto()
    graph.CopyFrom(body)
    made = {name for node in graph.node for name in node.output if name}
    rename_tensors(graph, {name: at.fresh(f"{number}/{name}") for name in made} | dict(given))
    for place, node in enumerate(graph.node):
        node.name = at.fresh(f"{number}/{node.name or f'{node.op_type}_{place}'}")
        at.add(node)
    return [value.name for value in graph.output]


def _stacked(at: Site, tensors: Sequence[str], axis: int = 0) -> str:
    """The tensors, stacked along a new axis."""
    if at.opset < _AXES_INPUT:
        return concat(at, [at.op("Unsqueeze", name, axes=[axis]) for name in tensors], axis)
    axes = at.integers([axis])
    return concat(at, [at.op("Unsqueeze", name, axes) for name in tensors], axis)


_RULES = {"If": if_constant, "Loop": loop_unroll, "Scan": scan_unroll}
#: Most nodes added at a time: nested loops multiply.
_MOST_NODES = 2_000
_ITS_BRANCH = "the branch that it takes"
_DONE = {"If": f"If replaced by {_ITS_BRANCH}", "Loop": "Loop written out", "Scan": "Scan written out"}


def of_several(done: str) -> str:
    """What was done to more than one node, in the words that `resolve_control_flow` has for one."""
    return done.replace(_ITS_BRANCH, "the branches that they take")


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
    sentence = ", ".join(f"{number} {_DONE[op]}" for op, number in sorted(done.items()))
    return remedy.RemediedFile(proto=result, sentence=sentence, structure=True)


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
    return _stacked(site, tensors, axis)


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
