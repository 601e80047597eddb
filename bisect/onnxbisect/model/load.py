"""Read an ONNX file into a `Model`, from the checks to the numbered units."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from onnxbisect.errors import ModelError
from onnxbisect.fingerprint import brief
from onnxbisect.input_value import InputValues
from onnxbisect.language import count, english, some
from onnxbisect.model.binding import bind, forget_shapes, is_unbound, resized, unbound_inputs
from onnxbisect.model.facts import TensorFacts, dims_of, size_of
from onnxbisect.model.gate import complaint, demand_inlinable, written_out
from onnxbisect.model.infer import contradiction, infer
from onnxbisect.model.input_values import bind_values, described
from onnxbisect.model.model import Allowance, Bounded, Established, ExceededError, Model, Unit, directly
from onnxbisect.model.opaque import recorded_tensors
from onnxbisect.model.order import depth_first, is_topological, make_unique
from onnxbisect.model.pools import batch_pools
from onnxbisect.model.read import read
from onnxbisect.model.runnable import Sample
from onnxbisect.model.scopes import constant_names, is_constant, qualified, reads
from onnxbisect.model.shapes import establish
from onnxbisect.model.variants import Variants
from onnxbisect.model.versions import versions_changed
from onnxbisect.unitset import of
from onnxbisect.universe import Universe


def units_of(graph: onnx.GraphProto, order: Sequence[int]) -> tuple[Unit, ...]:
    """One unit for each node that is not a Constant, in this order of the nodes.

    A Constant node belongs to each unit that reads it, also from a subgraph. One that makes a graph output and that no
    unit reads is a unit of its own, because otherwise no probe would have that output. An unused one is in no unit.
    """
    constants = {node.output[0]: index for index, node in enumerate(graph.node) if is_constant(node)}
    units: dict[int, Unit] = {}
    claimed: set[int] = set()
    for index, node in enumerate(graph.node):
        if not is_constant(node):
            own = tuple(sorted(constants[name] for name in reads(node) if name in constants))
            claimed.update(own)
            units[index] = Unit(node=index, constants=own)
    for value in graph.output:
        index = constants.get(value.name, -1)
        if index >= 0 and index not in claimed:
            units[index] = Unit(node=index)
    return tuple(units[index] for index in order if index in units)


def universe_of(
    proto: onnx.ModelProto,
    units: tuple[Unit, ...],
    types: Mapping[str, onnx.TypeProto],
    known: Mapping[str, np.ndarray],
    folder: Path,
) -> Universe:
    """Number variants and solos in order of first appearance, and connect units that share tensors."""
    nodes = proto.graph.node
    variants = Variants(proto, types, known, folder)
    variant_ids: dict[Hashable, int] = {}
    solo_ids: dict[Hashable, int] = {}
    valueless_ids: dict[Hashable, int] = {}
    #: For each variant.
    valueless: list[int] = []
    variant: list[int] = []
    solo: list[int] = []
    producer = {name: number for number, unit in enumerate(units) for name in nodes[unit.node].output if name}
    after: list[list[int]] = [[] for _ in units]
    facts = TensorFacts(proto, types, known, folder)
    weights = []
    for number, unit in enumerate(units):
        node = nodes[unit.node]
        variant.append(variant_ids.setdefault(variants.variant(node), len(variant_ids)))
        if variant[-1] == len(valueless):
            valueless.append(valueless_ids.setdefault(variants.valueless(node), len(valueless_ids)))
        solo.append(solo_ids.setdefault((variant[-1], variants.solo(node)), len(solo_ids)))
        for name in reads(node):
            if name in producer:
                after[producer[name]].append(number)
        stored = {name for name in reads(node) if facts.stored(name)}
        weights.append(sum(size_of(facts.type(name)) or 0 for name in stored))
    return Universe(
        variant=tuple(variant),
        solo=tuple(solo),
        op=tuple(qualified(nodes[unit.node]) for unit in units),
        names=tuple((nodes[unit.node].name, *(nodes[index].name for index in unit.constants)) for unit in units),
        tensors=tuple(tuple(name for name in nodes[unit.node].output if name) for unit in units),
        successors=tuple(of(consumers) for consumers in after),
        valueless=tuple(valueless[it] for it in variant),
        weights=tuple(weights),
    )


#: Bytes of activations and known values that the shape run may hold at one time.
MEMORY_LIMIT = 4 << 30
#: Shares of the allowance's seconds: for running the model (the rest is left for inference), and for inference alone
#: after the first attempt exceeded the allowance.
_RUN_SHARE, _INFER_SHARE = 0.6, 0.4
#: Reads values of a model's inputs, for a model in which some are bound to values; and of tensors that nodes make which
#: onnxruntime does not know, where they were recorded.
ReadSample = Callable[[Sequence[onnx.ValueInfoProto], Mapping[str, np.ndarray], Sequence[onnx.ValueInfoProto]], Sample]
_Work = Callable[[Sequence[str], float], Established]
#: Most nodes where the caller sets no limit; real models have a hundredth of it.
_MOST_NODES = 10_000_000
#: Most nodes of a graph that is run: onnxruntime takes minutes to load more.
_MOST_RUN = 50_000


def load(
    path: Path,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: InputValues | None = None,
    memory_limit: int = MEMORY_LIMIT,
    most_nodes: int | None = None,
    established: Established | None = None,
    sample: ReadSample | None = None,
    bounded: Bounded = directly,
) -> Model:
    """Read an ONNX file, establish everything about it that needs no compiler, and number its units.

    `input_shapes` maps graph inputs to dimensions that replace those of the file. Dimensions left unbound are no error:
    `Model.unbound` names the inputs, and types that depend on them keep their symbols; no number is invented.
    `input_values` replaces graph inputs by constants.
    `memory_limit` is in bytes: a model whose activations would exceed it is inferred instead of run.
    `most_nodes` limits the nodes, counting subgraphs and each call of a function: nodes of few bytes are quick to read
    and slow to analyse. `established` is the result of reading the same file with the same shapes before.
    `sample` reads values of the inputs that are left, on which the model runs instead of made-up ones.
    `bounded` runs the work that can take unlimited time and memory: inference, and running the model.
    Raises ModelError, with one sentence for the user.
    """
    path = Path(path)
    proto, sha256, size = read(path)
    graph = proto.graph
    _demand_few(path, proto, most_nodes if most_nodes is not None else _MOST_NODES)
    notes: list[str] = []
    renamed = make_unique(graph.node)
    if renamed:
        notes.append(english("Nodes without a name of their own were given one: {names}.", names=some(renamed)))
    if note := versions_changed(proto):
        notes.append(note)
    _separate_initializers(proto, notes, input_values or {})
    order = _sorted(graph)
    changed = resized(graph, input_shapes or {})
    disputed = {
        symbol: " and ".join(dict.fromkeys(f"{size} in {name!r}" for name, size in bound))
        for symbol, bound in bind(graph, input_shapes or {}).items()
    }
    notes += [
        english(
            "Several dimensions are {symbol} in the file, and not equal as they are bound: {sizes}.",
            symbol=f"{symbol!r}",
            sizes=sizes,
        )
        for symbol, sizes in disputed.items()
    ]
    values = bind_values(proto, input_values or {})
    notes += described(values)
    batched = 0
    if changed:
        forget_shapes(graph)
        while more := batch_pools(proto, infer(proto, {}, {}).get):
            batched += more
        notes.append(_demand_fitting(proto, changed))
    if batched:
        notes.append(_note_of_batch(batched))
    if established is None:
        allowance = Allowance.of(size, len(graph.node))
        given = {} if sample is None else _recorded(proto, values, sample)
        limit = min(memory_limit, int(allowance.memory * _RUN_SHARE))
        work = partial(_establish, proto, path.parent, limit, given)
        if len(graph.node) > _MOST_RUN:
            notes.append(
                english(
                    "The model has more than {most} nodes, so it was not run: shapes come from shape inference.",
                    most=f"{_MOST_RUN:,}",
                )
            )
            established = _inferred(work, notes, allowance, bounded)
        else:
            established = _established(work, notes, allowance, bounded)
        while more := batch_pools(proto, established.types.get):
            batched += more
            established = _established(work, [*notes, _note_of_batch(batched)], allowance, bounded)
    if batch_pools(proto, established.types.get) or batched:
        order = _sorted(graph)
    if disputed and (said := contradiction(proto, established.known)):
        symbol, sizes = next(iter(disputed.items()))
        raise ModelError(
            english(
                "The model does not work where its dimension {symbol} is {sizes}: {said}.",
                symbol=f"{symbol!r}",
                sizes=sizes,
                said=brief(said),
            )
        )
    _write_types(graph, established.types)
    units = units_of(graph, order)
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
        unbound=unbound_inputs(graph),
        input_shapes={name: tuple(dims) for name, dims in (input_shapes or {}).items()},
        input_values=values,
        data_dependent=established.data_dependent,
        costly=established.costly,
    )


def _note_of_batch(batched: int) -> str:
    return english(
        "ONNX does not allow a pool of a tensor without a batch: {pools} got a batch of one.",
        pools=count(batched, "pool"),
    )


def _recorded(proto: onnx.ModelProto, values: Mapping[str, np.ndarray], sample: ReadSample) -> Sample:
    """The sample; what it has recorded of custom ops declares the type of tensors that the file does not declare."""
    graph = proto.graph
    declared = {value.name: value for value in (*graph.value_info, *graph.output)}
    made = [declared.get(name, onnx.ValueInfoProto(name=name)) for name in recorded_tensors(proto)[0]]
    given = sample(graph.input, values, made)
    for value in made:
        if value.name in given and (is_unbound(value.type) or not value.HasField("type")):
            array = given[value.name]
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            value.type.CopyFrom(helper.make_tensor_type_proto(dtype, array.shape))
            if value.name not in declared:
                graph.value_info.append(value)
    return given


def _established(work: _Work, notes: Sequence[str], allowance: Allowance, bounded: Bounded) -> Established:
    """Establish the model's types and values by running it or, where that exceeds the allowance, by inference alone."""
    try:
        return bounded(partial(work, notes, allowance.seconds * _RUN_SHARE), allowance)
    except ExceededError as error:
        note = english("Running the model {why}, so it was not run: shapes come from shape inference.", why=error)
    less = replace(allowance, seconds=allowance.seconds * _INFER_SHARE)
    return _inferred(work, [*notes, note], less, bounded)


def _inferred(work: _Work, notes: Sequence[str], allowance: Allowance, bounded: Bounded) -> Established:
    try:
        return bounded(partial(work, notes, 0), allowance)
    except ExceededError as error:
        raise ModelError(
            f"Shape inference of the model, by onnx, {error}. Simplify the model, or cut out a part of it."
        ) from error


def _establish(
    proto: onnx.ModelProto, folder: Path, memory_limit: int, sample: Sample, notes: Sequence[str], seconds: float
) -> Established:
    """Establish types and values, running the model for at most `seconds`; the result includes `notes`."""
    graph = proto.graph
    declared = {value.name: value.type for value in [*graph.value_info, *graph.output]}
    facts = establish(proto, folder, declared, memory_limit=memory_limit, seconds=seconds, sample=sample)
    refused = complaint(proto)
    _write_types(graph, facts.types)
    refused = refused and complaint(proto)  # no matter of a type that was found, or that the file only claims
    doubts = [f"onnx.checker refuses the model: {refused}"] if refused else []
    return Established(
        types=facts.types,
        known=facts.known,
        data_dependent=facts.data_dependent,
        notes=(*notes, *doubts, *facts.notes),
        costly=facts.costly,
    )


def _demand_fitting(proto: onnx.ModelProto, changed: Mapping[str, tuple[int, ...]]) -> str:
    """A note that the model has other input shapes than its file; raises ModelError where they contradict the model."""
    kinds = {value.name: value.type for value in proto.graph.input}
    sizes = [f"'{name}' is {_size(dims_of(kinds[name]))} instead of {_size(old)}" for name, old in changed.items()]
    if said := contradiction(proto, {}):
        raise ModelError(
            english("The model does not work where {sizes}: {said}.", sizes=" and ".join(sizes), said=brief(said))
        )
    return english("Not at the size of the file: {sizes}.", sizes=", ".join(sizes))


def _size(dims: Sequence[int]) -> str:
    return "x".join("?" if dim < 0 else str(dim) for dim in dims) or "a scalar"


def _demand_few(path: Path, proto: onnx.ModelProto, most: int) -> None:
    # Check functions and top-level nodes first: these counts need no traversal, however large the file is.
    if len(proto.functions) > most:
        raise ModelError(f"{path} has more than {most:,} functions, which is the limit here.")
    if len(proto.graph.node) <= most:
        count = written_out(proto)
        if count.nodes <= most:
            demand_inlinable(count)
            return
    raise ModelError(f"{path} has more than {most:,} nodes, which is the limit here.")


def _sorted(graph: onnx.GraphProto) -> list[int]:
    """Put the nodes into a topological order where the file's own is none; returns the depth-first order of indices.

    The file's order is kept, because what a compiler makes of a model may depend on it.
    """
    order = depth_first(graph)
    if is_topological(graph):
        return order
    nodes = [onnx.NodeProto.FromString(graph.node[index].SerializeToString()) for index in order]
    del graph.node[:]
    graph.node.extend(nodes)
    return list(range(len(nodes)))


def _separate_initializers(proto: onnx.ModelProto, notes: list[str], given: Collection[str]) -> None:
    """Remove initializers from the list of inputs, where IR 3 demands them and later versions allow them.

    Inputs that are `given` another value stay.
    """
    graph = proto.graph
    if given:
        proto.ir_version = max(proto.ir_version, 4)
    constants = constant_names(graph).difference(given)
    listed = [value for value in graph.input if value.name in constants]
    if not listed:
        return
    kept = [value for value in graph.input if value.name not in constants]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del graph.input[:]
    graph.input.extend(copies)
    names = [value.name for value in listed]
    notes.append(
        english("Initializers that are listed as inputs are treated as constants: {names}.", names=some(names))
    )
    if proto.ir_version < 4:
        proto.ir_version = 4


def _write_types(graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """Replace the types that the file declares by the established ones, where there are any."""
    for value in graph.output:
        if value.name in types:
            value.type.CopyFrom(types[value.name])
    boundary = {value.name for value in [*graph.input, *graph.output]} | constant_names(graph)
    del graph.value_info[:]
    for node in graph.node:
        for name in node.output:
            if name in types and name not in boundary:
                graph.value_info.append(helper.make_value_info(name, types[name]))
