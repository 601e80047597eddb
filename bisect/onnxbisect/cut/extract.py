"""Cut pieces that a user names by nodes, tensors or modules: `onnx-bisect extract`."""

from collections.abc import Callable, Collection, Iterable, Sequence

import onnx

from onnxbisect.cut.cutter import Cutter
from onnxbisect.cut.frame import Wishes
from onnxbisect.cut.wiring import Wiring, read_wiring
from onnxbisect.cut.write import Piece
from onnxbisect.errors import CutError
from onnxbisect.language import did_you_mean
from onnxbisect.model.model import Model
from onnxbisect.model.modules import below, path_of, path_of_node, spelled
from onnxbisect.model.read import original
from onnxbisect.model.scopes import label, named_bodies, reads, walk
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet, members, of

#: Most bytes of one constant that is stored instead of computed, and of all such constants together.
_LARGEST, _MOST = 16 << 20, 256 << 20
#: The outputs of these ops stay computed: stored, a quantised weight would become a float tensor.
_QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


def units_of_nodes(model: Model, names: Sequence[str]) -> UnitSet:
    """The units of the named nodes; a name that several nodes of the file have means all of them.

    Constant nodes may be named but add nothing: they come with the nodes that read them. Raises CutError for an unknown
    name, with the place of a node inside of a body or with similar names, and where only Constant nodes are named.
    """
    graph = model.proto.graph
    constants = {graph.node[index].name for unit in model.units for index in unit.constants}
    unknown = next((name for name in names if name not in model.unit_of_node and name not in constants), None)
    if unknown is not None:
        if held := _holder(graph.node, lambda node: node.name == unknown):
            raise CutError(f"The node '{unknown}' stands inside of {held}")
        raise CutError(f"The model has no node '{unknown}'{did_you_mean(unknown, model.unit_of_node)}")
    chosen = []
    for name in names:
        if name not in model.unit_of_node:
            continue
        chosen.append(model.unit_of_node[name])
        if f"{name}_1" in model.unit_of_node:  # nodes of one name were given others when the file was read
            alike = [node for node in original(model).graph.node if node.name == name]
            made = {output for node in alike for output in node.output if output}
            chosen += [other for other, it in enumerate(model.units) if not made.isdisjoint(graph.node[it.node].output)]
    if not chosen:
        raise CutError("Name at least one node that is not a Constant: Constants come with the nodes they feed.")
    return of(chosen)


def _holder(nodes: Iterable[onnx.NodeProto], wanted: Callable[[onnx.NodeProto], bool]) -> str:
    """The end of a sentence: the node of the main graph in whose bodies a node is, and what to do; empty if in none."""
    for node in nodes:
        for attribute, body in named_bodies(node):
            if any(map(wanted, walk(body))):
                return f"'{label(node)}' ({attribute}): name that node, which is cut out with all its bodies."
    return ""


def units_between(model: Model, inputs: Sequence[str], outputs: Sequence[str]) -> UnitSet:
    """The units that compute `outputs` from `inputs`: those met on the way back from the outputs to the inputs.

    The walk also follows tensors that do not depend on `inputs`, back to the model's own inputs. Without `outputs` it
    starts at the model's. Raises CutError for unknown names, with similar ones, for inputs that no output depends on,
    and for those that the units make themselves.
    """
    wiring = read_wiring(model)
    flowing = {*wiring.maker, *wiring.takers}
    for name in inputs:
        if name not in flowing:
            _refuse(name, wiring, flowing)
    for name in outputs:
        if name not in wiring.maker:
            _refuse(name, wiring, wiring.maker)
    given = set(inputs)
    reached: set[str] = set()
    chosen: set[int] = set()
    # No unit makes an output that is a constant or a weight.
    stack = [name for name in outputs or (v.name for v in model.proto.graph.output) if name in wiring.maker]
    while stack:
        name = stack.pop()
        if name in given:
            reached.add(name)
            continue
        unit = wiring.maker.get(name)
        if unit is not None and unit not in chosen:
            chosen.add(unit)
            stack.extend(wiring.boundary[unit])
    for name in inputs:
        if name not in reached:
            raise CutError(f"None of the outputs depends on the input '{name}'; leave it out or name other outputs.")
        if wiring.maker.get(name) in chosen:
            raise CutError(
                f"'{name}' cannot be an input: the outputs need another result of the node that makes it. "
                "Name all results of that node."
            )
    if not chosen:
        raise CutError("There is no node between these inputs and outputs.")
    return of(chosen)


def units_of_modules(model: Model, scopes: Sequence[str]) -> UnitSet:
    """The units of these modules of the network, such as `/decoder/layers.0`, and of the modules inside them.

    Raises CutError, with similar names, for a module that no node belongs to.
    """
    graph = model.proto.graph
    paths = {number: path_of_node(graph.node[unit.node]) for number, unit in enumerate(model.units)}
    chosen = 0
    for scope in scopes:
        path = path_of(scope)
        units = below(paths, path) if path else 0
        if not units:
            known = {spelled(path[:depth]) for path in paths.values() for depth in range(1, len(path) + 1)}
            raise CutError(
                f"No node of the model says that it came from the module '{scope}'{did_you_mean(scope, known)}"
            )
        chosen |= units
    return chosen


def settled(model: Model, units: UnitSet, outputs: Collection[str]) -> UnitSet:
    """The units that are left when values that do not depend on the model's inputs are stored as constants.

    Keeps units that make one of `outputs`, a constant too large to store, or a dequantised weight. Drops units whose
    results no remaining unit needs. Returns `units` where nothing else would be left.
    """
    graph, universe = model.proto.graph, model.universe
    kept = frozenset(outputs)
    alive = 0
    for unit in reversed(list(members(units & ~_constant(model, kept)))):
        if universe.successors[unit] & alive or not kept.isdisjoint(graph.node[model.units[unit].node].output):
            alive |= 1 << unit
    return alive or units


def _constant(model: Model, kept: Collection[str]) -> UnitSet:
    """The units whose results are all known values, small enough to store, and not in `kept`."""
    of_quantised: set[str] = set()
    left, found = _MOST, 0
    for number, unit in enumerate(model.units):
        node = model.proto.graph.node[unit.node]
        made = [name for name in node.output if name]
        if node.op_type in _QUANTISERS or not of_quantised.isdisjoint(reads(node)):
            of_quantised.update(made)
            continue
        values = [model.known[name] for name in made if name in model.known and name not in kept]
        if not made or len(values) < len(made) or any(value.dtype.hasobject for value in values):
            continue
        size = sum(value.nbytes for value in values)
        if max(value.nbytes for value in values) <= _LARGEST and size <= left:
            left -= size
            found |= 1 << number
    return found


def cut_between(
    model: Model, inputs: Sequence[str], outputs: Sequence[str], probe_format: ProbeFormat | None = None
) -> Piece:
    """`units_between` as a piece with exactly these inputs and outputs, even where an input's value is known.

    Values that do not depend on the model's inputs become constants, unless `inputs` names such a value.
    """
    outputs = outputs or [value.name for value in model.proto.graph.output]
    units = units_between(model, inputs, outputs)
    if model.known.keys().isdisjoint(inputs):
        units = settled(model, units, outputs)
    wishes = Wishes(inputs=tuple(dict.fromkeys(inputs)), outputs=tuple(dict.fromkeys(outputs)))
    return Cutter(model).cut(units, probe_format or ProbeFormat(), wishes)


def cut_modules(model: Model, scopes: Sequence[str]) -> Piece:
    """`units_of_modules` as a piece in which values that do not depend on the model's inputs become constants.

    Its outputs are the model's outputs made here and the tensors that other modules read to compute something that
    depends on the inputs. Tensors of which other modules use only the shape are not outputs.
    """
    units = units_of_modules(model, scopes)
    ends = {value.name for value in model.proto.graph.output}
    others = settled(model, model.universe.everything, ends) & ~units
    made = [name for unit in members(units) for name in model.proto.graph.node[model.units[unit].node].output if name]
    takers = {name: of(taking) for name, taking in read_wiring(model).takers.items()}
    leaving = tuple(name for name in made if name in ends or takers.get(name, 0) & others)
    # those of known value only where no other leaves; where none leaves, the results that no unit of the set reads
    changing = tuple(name for name in leaving if name not in model.known)
    outputs = changing or leaving or tuple(name for name in made if not takers.get(name, 0) & units)
    return Cutter(model).cut(settled(model, units, outputs), wishes=Wishes(inputs=(), outputs=outputs))


def _refuse(name: str, wiring: Wiring, valid: Iterable[str]) -> None:
    if name in wiring.weights or name in wiring.constants:
        raise CutError(f"'{name}' is a constant of the model; name a tensor that a node computes.")
    if name in wiring.takers:
        raise CutError(f"'{name}' is an input of the model, so no node computes it; name another output.")
    if held := _holder(wiring.nodes, lambda node: name in (*node.input, *node.output)):
        raise CutError(f"The tensor '{name}' belongs to a body inside of {held}")
    raise CutError(f"The model has no tensor '{name}'{did_you_mean(name, valid)}")
