"""Choosing what to cut by name, for people: `onnx-bisect extract`."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from onnxbisect.cut.cutter import Cutter
from onnxbisect.cut.frame import Wishes
from onnxbisect.cut.piece import Piece
from onnxbisect.cut.wiring import Wiring, read_wiring
from onnxbisect.dressing import Dressing
from onnxbisect.errors import CutError
from onnxbisect.model.model import Model
from onnxbisect.unitset import UnitSet, of


def units_of_nodes(model: Model, names: Sequence[str]) -> UnitSet:
    """The units of these nodes.

    Constant nodes may be named too; they add nothing, since they come with the nodes they feed. Raises CutError,
    with the nearest names, for a name that no node has, and where only Constant nodes are named.
    """
    graph = model.proto.graph
    constants = {graph.node[index].name for unit in model.units for index in unit.constants}
    chosen = []
    for name in names:
        unit = model.unit_of_node.get(name)
        if unit is not None:
            chosen.append(unit)
        elif name not in constants:
            raise CutError(f"The model has no node '{name}'{_nearest(name, model.unit_of_node)}.")
    if not chosen:
        raise CutError("Name at least one node that is not a Constant: Constants come with the nodes they feed.")
    return of(chosen)


def units_between(model: Model, inputs: Sequence[str], outputs: Sequence[str]) -> UnitSet:
    """The units that compute `outputs` from `inputs`: all that walking back from the outputs meets before an input.

    What the walk needs beside `inputs` it follows to the model's own inputs. No outputs named means the model's.
    Raises CutError for unknown names, with the nearest ones, and for inputs that no output depends on.
    """
    return _between(read_wiring(model), model, inputs, outputs)


def cut_between(model: Model, inputs: Sequence[str], outputs: Sequence[str], dressing: Dressing | None = None) -> Piece:
    """`units_between` as a piece with exactly these outputs, whose `inputs` stay inputs even of known value."""
    outputs = outputs or [value.name for value in model.proto.graph.output]
    units = units_between(model, inputs, outputs)
    wishes = Wishes(inputs=tuple(dict.fromkeys(inputs)), outputs=tuple(dict.fromkeys(outputs)))
    return Cutter(model).cut(units, dressing or Dressing(), wishes)


def _between(wiring: Wiring, model: Model, inputs: Sequence[str], outputs: Sequence[str]) -> UnitSet:
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
    # Constants and weights that are outputs of the model are made by no unit.
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
    if not chosen:
        raise CutError("There is no node between these inputs and outputs.")
    return of(chosen)


def _refuse(name: str, wiring: Wiring, valid: Iterable[str]) -> None:
    if name in wiring.weights or name in wiring.constants:
        raise CutError(f"'{name}' is a constant of the model; name a tensor that a node computes.")
    if name in wiring.takers:
        raise CutError(f"'{name}' is an input of the model, so no node computes it; name another output.")
    raise CutError(f"The model has no tensor '{name}'{_nearest(name, valid)}.")


def _nearest(name: str, valid: Iterable[str]) -> str:
    close = get_close_matches(name, valid, n=3, cutoff=0.5)
    return f"; the nearest are {', '.join(repr(match) for match in close)}" if close else ""
