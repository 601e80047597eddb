"""Intake from end to end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx

from onnxbisect.errors import ModelError
from onnxbisect.model.allowance import Allowance, Bounded, ExceededError, directly
from onnxbisect.model.binding import bind, forget_shapes, resized
from onnxbisect.model.counting import demand_inlinable, written_out
from onnxbisect.model.established import Established
from onnxbisect.model.footprint import dims_of
from onnxbisect.model.infer import contradiction
from onnxbisect.model.model import Model
from onnxbisect.model.names import make_unique
from onnxbisect.model.order import depth_first
from onnxbisect.model.read import read
from onnxbisect.model.scopes import constant_names
from onnxbisect.model.shapes import establish
from onnxbisect.model.structure import complaint
from onnxbisect.model.units import units_of, universe_of
from onnxbisect.model.wording import brief, some

#: Bytes of activations and known values that the shape run may hold at one time.
MEMORY_LIMIT = 4 << 30
#: Of what is allowed in all: for running the model, the rest being for inference; and for inference once that failed.
_RUN_SHARE, _INFER_SHARE = 0.6, 0.4
#: Where the caller sets no limit: real models have a hundredth of it, and made-up ones have no end.
_MOST_NODES = 10_000_000


def load(
    path: Path,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    memory_limit: int = MEMORY_LIMIT,
    most_nodes: int | None = None,
    established: Established | None = None,
    bounded: Bounded = directly,
) -> Model:
    """Read an ONNX file, settle everything about it that needs no compiler, and number its units.

    `input_shapes` gives dimensions to graph inputs by name, in place of those of the file. Dimensions left unbound are
    no error here: `Model.unbound` names the inputs, and the types of tensors that depend on them keep their symbols; no
    number is invented. `memory_limit` is in bytes: a model whose activations would not fit is inferred instead of run.
    `most_nodes`, bodies counted, and functions as often as they are called, are the most that a model may have: a few
    bytes make a node, which takes a thousand times as long to think about as to read. `established` is what an earlier
    intake of the same file, with the same shapes, came to. `bounded` does what can take any time and memory: inference,
    and running the model. Raises ModelError, with one sentence for the user.
    """
    path = Path(path)
    proto, sha256, size = read(path)
    graph = proto.graph
    _demand_few(path, proto, most_nodes if most_nodes is not None else _MOST_NODES)
    notes: list[str] = []
    renamed = make_unique(graph.node)
    if renamed:
        notes.append(f"Nodes without a name of their own were given one: {some(renamed)}.")
    _separate_initializers(proto, notes)
    order = depth_first(graph)
    nodes = [onnx.NodeProto.FromString(graph.node[index].SerializeToString()) for index in order]
    del graph.node[:]
    graph.node.extend(nodes)
    changed = resized(graph, input_shapes or {})
    unbound = bind(graph, input_shapes or {})
    if changed:
        forget_shapes(graph)
        notes.append(_demand_fitting(proto, changed))
    if established is None:
        allowance = Allowance.of(size)
        limit = min(memory_limit, int(allowance.memory * _RUN_SHARE))
        established = _established(partial(_establish, proto, path.parent, limit), notes, allowance, bounded)
    _write_types(graph, established.types)
    units = units_of(graph)
    if not units:
        raise ModelError(f"{path} has only Constant nodes: there is nothing that a compiler could refuse.")
    return Model(
        path=path,
        sha256=sha256,
        proto=proto,
        units=units,
        types=established.types,
        known=established.known,
        notes=established.notes,
        universe=universe_of(proto, units, established.types, established.known, path.parent),
        unbound=unbound,
        data_dependent=established.data_dependent,
        costly=established.costly,
    )


def _established(
    work: Callable[[Sequence[str], float], Established], notes: Sequence[str], allowance: Allowance, bounded: Bounded
) -> Established:
    """What running the model, or else inference alone, tells within the allowance."""
    try:
        return bounded(partial(work, notes, allowance.seconds * _RUN_SHARE), allowance)
    except ExceededError as error:
        note = f"Running the model {error}, so it was not run: shapes are those of shape inference."
    try:
        return bounded(partial(work, [*notes, note], 0), replace(allowance, seconds=allowance.seconds * _INFER_SHARE))
    except ExceededError as error:
        raise ModelError(
            f"Shape inference of the model, by onnx, {error}. Simplify the model, or cut out a part of it."
        ) from error


def _establish(
    proto: onnx.ModelProto, folder: Path, memory_limit: int, notes: Sequence[str], seconds: float
) -> Established:
    """Run the model for at most so many seconds. `notes` are those that there are already."""
    graph = proto.graph
    declared = {value.name: value.type for value in [*graph.value_info, *graph.output]}
    facts = establish(proto, folder, declared, memory_limit=memory_limit, seconds=seconds)
    _write_types(graph, facts.types)
    refused = complaint(proto)
    doubts = [f"onnx.checker refuses the model: {refused}"] if refused else []
    return Established(
        types=facts.types,
        known=facts.known,
        data_dependent=facts.data_dependent,
        notes=(*notes, *doubts, *facts.notes),
        costly=facts.costly,
    )


def _demand_fitting(proto: onnx.ModelProto, changed: Mapping[str, tuple[int, ...]]) -> str:
    """A note that the model has other input shapes than its file; ModelError where it does not work with them."""
    kinds = {value.name: value.type for value in proto.graph.input}
    sizes = [f"'{name}' is {_size(dims_of(kinds[name]))} instead of {_size(old)}" for name, old in changed.items()]
    if said := contradiction(proto):
        raise ModelError(f"The model does not work where {' and '.join(sizes)}: {brief(said)}.")
    return f"Not at the size of the file: {', '.join(sizes)}."


def _size(dims: Sequence[int]) -> str:
    return "x".join("?" if dim < 0 else str(dim) for dim in dims) or "a scalar"


def _demand_few(path: Path, proto: onnx.ModelProto, most: int) -> None:
    # the outermost first: counting them takes no time, however large the file is
    if len(proto.functions) > most:
        raise ModelError(f"{path} has more than {most:,} functions, which is the most that is taken here.")
    if len(proto.graph.node) <= most:
        count = written_out(proto)
        if count.nodes <= most:
            demand_inlinable(count)
            return
    raise ModelError(f"{path} has more than {most:,} nodes, which is the most that is taken here.")


def _separate_initializers(proto: onnx.ModelProto, notes: list[str]) -> None:
    """Initializers leave the list of inputs, which IR 3 demands them to be in and later ones allow."""
    graph = proto.graph
    constants = constant_names(graph)
    listed = [value for value in graph.input if value.name in constants]
    if not listed:
        return
    kept = [value for value in graph.input if value.name not in constants]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del graph.input[:]
    graph.input.extend(copies)
    names = [value.name for value in listed]
    notes.append(f"Initializers that are listed as inputs are treated as constants: {some(names)}.")
    if proto.ir_version < 4:
        proto.ir_version = 4


def _write_types(graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """Replace what the file declares by what was established, where anything was."""
    for value in graph.output:
        if value.name in types:
            value.type.CopyFrom(types[value.name])
    boundary = {value.name for value in [*graph.input, *graph.output]} | constant_names(graph)
    del graph.value_info[:]
    for node in graph.node:
        for name in node.output:
            if name in types and name not in boundary:
                graph.value_info.append(onnx.helper.make_value_info(name, types[name]))
