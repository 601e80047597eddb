"""Run the model once in onnxruntime, without optimisation, for the shape of every tensor and the values of some."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from onnxbisect.language import english
from onnxbisect.model.deciding import compared_values
from onnxbisect.model.feeds import Fill, Sample, feed
from onnxbisect.model.runnable import (
    CARRIERS,
    StandIns,
    assemble,
    culprit,
    fed_name,
    probe_shape,
    probe_value,
    refused_probe,
    select,
)
from onnxbisect.model.scopes import domain_of
from onnxbisect.model.session import Clock, Session

#: Runs tried before giving up. The first failures exclude single nodes, later ones all nodes of an op type.
_ATTEMPTS = 24
_ONE_BY_ONE = 6


@dataclass(frozen=True, kw_only=True)
class Run:
    """The result of a run.

    `shapes` holds the shape of each tensor that has one, `values` the requested values that were computed. `dtypes` are
    the ONNX element types, found by onnxruntime, of tensors in `shapes` whose dtype was not given.
    `ran` are the indices of the nodes that ran. `refused` maps each node that onnxruntime could not load or run to its
    error message, without the nodes that were skipped because they depend on such a node.
    `costly` are the nodes that exceeded the limits of time or memory and should not run again.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, np.ndarray]
    dtypes: Mapping[str, int]
    ran: frozenset[int]
    refused: Mapping[int, str]
    costly: frozenset[int] = frozenset()


def run(
    proto: onnx.ModelProto,
    folder: Path,
    *,
    nodes: Collection[int],
    missing: Collection[str],
    given: Mapping[str, np.ndarray],
    values: Collection[str],
    dtypes: Mapping[str, int],
    unshaped: Collection[str],
    substitutes: StandIns,
    sample: Sample,
    clock: Clock,
) -> Run:
    """Run as many of `nodes` as possible.

    `missing` are tensors that cannot be fed. `given` replaces tensors by values. `values` are the tensors whose values
    to return. `dtypes` are the element types known so far. `unshaped` are tensors without a shape (sequences,
    optionals). `substitutes` are nodes that are replaced instead of run (`runnable.assemble`). `sample` has values of
    inputs, which are tried before made-up ones. A run on made-up ones in which tensors are empty is repeated on others:
    a size of 0 is seldom what the model is used at, and compilers refuse it whatever op it stands at.
    """
    wanted = set(nodes)
    refused: dict[int, str] = {}
    skip_probes: set[str] = set(unshaped)
    chosen_values = filter(None, (sample, compared_values(proto.graph, given)))
    fills = [*((Fill.RANDOM, values) for values in chosen_values), *((fill, {}) for fill in Fill)]
    costly: set[int] = set()
    for _ in range(_ATTEMPTS):
        if clock.left <= 0:
            break
        chosen = select(proto.graph, wanted, missing, given, substitutes)
        if not chosen:
            break
        attempt = _Attempt(proto, folder, chosen, given, values, dtypes, skip_probes, substitutes)
        try:
            found = attempt.run(*fills[0], frozenset(chosen), refused, clock)
            if fills[0][1] is not sample and _empty(found):
                found = min(found, *attempt.with_ones(fills[0][1], found, clock), key=_empty)
            return replace(found, costly=frozenset(costly))
        except Exception as error:  # onnxruntime's exceptions share no base class but this
            words = str(error)
        exhausted = (
            english("takes too long here")
            if attempt.timed_out
            else english("takes too much memory")
            if _no_memory(words)
            else ""
        )
        tensor = attempt.refused_probe(words)
        node = culprit(words)
        if tensor is not None:
            skip_probes.add(tensor)
        elif "Non-zero status code" in words and len(fills) > 1 and not exhausted:
            del fills[0]
        elif node is None:
            refused.update(dict.fromkeys(chosen, words))
            break
        else:
            gone = _like(proto.graph, node, wanted) if len(refused) >= _ONE_BY_ONE or exhausted else {node}
            wanted -= gone
            refused[node] = exhausted or words
            if exhausted:
                costly |= gone
    return Run(shapes={}, values={}, dtypes={}, ran=frozenset(), refused=refused, costly=frozenset(costly))


def _empty(found: Run) -> int:
    """How many tensors of a run have no elements."""
    return sum(0 in shape for shape in found.shapes.values())


def types_of_runtime(
    proto: onnx.ModelProto,
    folder: Path,
    nodes: Collection[int],
    given: Mapping[str, np.ndarray],
    tensors: Sequence[str],
) -> dict[str, onnx.TypeProto]:
    """The types of these tensors that onnxruntime finds without a run, by its own schemas; empty where it fails."""
    model, _ = assemble(proto, nodes, given, {})
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in tensors)
    try:
        session = Session(model, folder)
    except Exception:  # onnxruntime's exceptions share no base class but this
        return {}
    return {
        name: helper.make_tensor_type_proto(_dtype(kind), session.shapes[name])
        for name, kind in session.outputs.items()
        if kind.startswith("tensor(")
    }


def _no_memory(words: str) -> bool:
    return "Failed to allocate memory" in words or "bad_alloc" in words or "bad allocation" in words


def _like(graph: onnx.GraphProto, node: int, among: Iterable[int]) -> set[int]:
    op = (domain_of(graph.node[node]), graph.node[node].op_type)
    return {index for index in among if (domain_of(graph.node[index]), graph.node[index].op_type) == op}


class _Attempt:
    def __init__(
        self,
        proto: onnx.ModelProto,
        folder: Path,
        chosen: Collection[int],
        given: Mapping[str, np.ndarray],
        values: Collection[str],
        dtypes: Mapping[str, int],
        skip: Collection[str],
        substitutes: StandIns,
    ) -> None:
        self.timed_out = False
        self._folder = folder
        self._dtypes = dtypes
        self._model, self._inputs = assemble(proto, chosen, given, substitutes)
        self._tensors = [
            name for index in chosen for name in proto.graph.node[index].output if name and name not in skip
        ]
        self._shape_outputs: dict[str, str] = {}
        self._value_outputs: dict[str, str] = {}
        for number, name in enumerate(self._tensors):
            self._shape_outputs[name] = probe_shape(self._model, name, number)
            if name in values:
                self._value_outputs[name] = probe_value(self._model, name, number, dtypes.get(name, 0))

    def refused_probe(self, words: str) -> str | None:
        number = refused_probe(words)
        return None if number is None else self._tensors[number]

    def run(
        self,
        fill: Fill,
        chosen: Mapping[str, np.ndarray],
        ran: frozenset[int],
        refused: Mapping[int, str],
        clock: Clock,
    ) -> Run:
        session = Session(self._model, self._folder)
        names = [*self._shape_outputs.values(), *self._value_outputs.values()]
        feeds = {
            fed_name(value): chosen[value.name] if value.name in chosen else feed(value, fill) for value in self._inputs
        }
        try:
            results = dict(zip(names, session.run(names, feeds, clock), strict=True)) if names else {}
        finally:
            self.timed_out = session.timed_out
        del session
        return Run(
            shapes={name: tuple(results[out].tolist()) for name, out in self._shape_outputs.items()},
            values={name: self._restore(name, results[out]) for name, out in self._value_outputs.items()},
            dtypes=self._missing_dtypes(),
            ran=ran,
            refused=refused,
        )

    def with_ones(self, chosen: Mapping[str, np.ndarray], found: Run, clock: Clock) -> list[Run]:
        """The same run on inputs of ones, as a list of one; empty where it fails."""
        try:
            return [self.run(Fill.ONES, chosen, found.ran, found.refused, clock)]
        except Exception:  # onnxruntime's exceptions share no base class but this
            return []

    def _restore(self, name: str, array: np.ndarray) -> np.ndarray:
        dtype = self._dtypes.get(name, 0)
        return array.astype(helper.tensor_dtype_to_np_dtype(dtype)) if dtype in CARRIERS else array

    def _missing_dtypes(self) -> dict[str, int]:
        """Load a second session to find the element types that inference did not find; runs nothing."""
        names = [name for name in self._tensors if name not in self._dtypes]
        if not names:
            return {}
        del self._model.graph.output[:]
        self._model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        outputs = Session(self._model, self._folder).outputs
        return {name: _dtype(kind) for name, kind in outputs.items() if kind.startswith("tensor(")}


#: onnxruntime's spelling of element types, where it is not the ONNX name in lower case.
_SPELLED = {"float": "FLOAT", "double": "DOUBLE"}


def _dtype(text: str) -> int:
    name = text.removeprefix("tensor(").removesuffix(")")
    return int(onnx.TensorProto.DataType.Value(_SPELLED.get(name, name.upper())))
