"""Values of a model's tensors for samples of its inputs, as input data for the pieces cut from it.

They are computed in onnxruntime, which runs only the nodes that they depend on.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf

import numpy as np
import onnx

from onnxbisect.fingerprint import brief
from onnxbisect.language import english, some
from onnxbisect.model import runnable
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.facts import dims_of, peak, size_of
from onnxbisect.model.input_values import compared_values
from onnxbisect.model.load import MEMORY_LIMIT
from onnxbisect.model.model import Model
from onnxbisect.model.opaque import opaque_nodes
from onnxbisect.model.scopes import is_constant, qualified, reads
from onnxbisect.model.session import Clock, Session

#: The values of one tensor, one array for each sample.
Values = list[np.ndarray]

#: Runs tried before giving up. The first failures exclude single nodes, later ones all nodes of an op type.
_ATTEMPTS = 24
_ONE_BY_ONE = 6


class Inputs:
    """The values of the model's inputs in each sample: `given`, or else `count` generated samples.

    Generated samples have the values of `compared`, as long as the model runs with these.
    """

    def __init__(
        self, graph: onnx.GraphProto, given: Sequence[runnable.Sample], count: int, compared: Mapping[str, np.ndarray]
    ) -> None:
        self.values = {value.name: value for value in graph.input}
        self._compared = compared
        self.count = len(given) or count
        self._given = given
        self._fills = list(runnable.Fill)

    def of(self, name: str, number: int) -> np.ndarray | None:
        """One input in one sample; None where it is neither given nor can be generated."""
        if self._given:
            return self._given[number].get(name)
        value = self.values[name]
        if not value.type.HasField("tensor_type") or is_unbound(value.type):
            return None
        return self._compared[name] if name in self._compared else runnable.feed(value, self._fills[0], number)

    def weaken(self) -> bool:
        """Generate simpler numbers from now on; returns False for given inputs and where none are simpler."""
        if self._given or (len(self._fills) == 1 and not self._compared):
            return False
        if self._compared:
            self._compared = {}
            return True
        del self._fills[0]
        return True


class Computation:
    """Runs parts of one model. `refused` maps each node that onnxruntime cannot run to its error message."""

    def __init__(self, model: Model, inputs: Inputs, memory_limit: int) -> None:
        self._model = model
        self._graph = model.proto.graph
        costly = (index for index, node in enumerate(self._graph.node) if node.name in set(model.costly))
        self.refused: dict[int, str] = dict.fromkeys([*opaque_nodes(model.proto), *costly], "")
        self._inputs = inputs
        self._memory_limit = memory_limit
        self._has_run = False

    def run(self, wanted: Sequence[str], kept: Mapping[str, Values]) -> dict[str, Values] | None:
        """The values, per sample, of each wanted tensor that can be computed; None where memory does not suffice.

        `kept` are tensors that were computed before; the run starts from them.
        """
        missing = {name for name in self._inputs.values if self._inputs.of(name, 0) is None}
        # without the results of a node of which another result may have to be computed
        whole = [node for node in self._graph.node if all(name in kept for name in node.output if name)]
        kept = {name: kept[name] for node in whole for name in node.output if name}
        there = {**self._model.known, **kept}
        for _ in range(_ATTEMPTS):
            # The nodes that must run to compute `tensors` when the tensors in `there` are available.
            needed = {name for name in wanted if name not in there}
            nodes = set()
            for index in reversed(range(len(self._graph.node))):
                node = self._graph.node[index]
                if not needed.isdisjoint(node.output):
                    nodes.add(index)
                    needed.update(name for name in reads(node) if name not in there)
            nodes = nodes - self.refused.keys()
            chosen = runnable.select(self._graph, nodes, missing, there)
            made = {name for index in chosen for name in self._graph.node[index].output}
            fetched = [name for name in wanted if name in made]
            if not fetched:
                break
            part = _Part(self._model, chosen, fetched, kept)
            if part.memory > self._memory_limit:
                return None
            try:
                found = part.run(self._inputs)
            except Exception as error:  # onnxruntime's exceptions share no base class but this
                self._refuse(str(error), chosen, part)
            else:
                self._has_run = True
                return found
        return {}

    def _refuse(self, words: str, chosen: Collection[int], part: "_Part") -> None:
        # All tensors must come from the same samples, so change the samples only while nothing has run.
        if "Non-zero status code" in words and not self._has_run and self._inputs.weaken():
            return
        node = runnable.culprit(words)
        if node is None:
            self.refused.update(dict.fromkeys(chosen, words))
        elif len(self.refused) >= _ONE_BY_ONE or part.timed_out:
            self.refused.update(dict.fromkeys(runnable.nodes_of_one_op(self._graph, node, chosen), words))
        else:
            self.refused[node] = words


class _Part:
    """The nodes that some tensors depend on. `memory` is a lower bound, in bytes, of what a run needs."""

    def __init__(
        self, model: Model, nodes: Collection[int], fetched: Sequence[str], kept: Mapping[str, Values]
    ) -> None:
        self.timed_out = False
        self._kept = kept
        self._fetched = fetched
        self._folder = model.path.parent
        self._proto, self._reads = runnable.assemble(model.proto, nodes, model.known, {})
        read = {name for index in nodes for name in reads(model.proto.graph.node[index])}
        for name in sorted(read & kept.keys()):
            self._reads.append(onnx.ValueInfoProto(name=name, type=model.types[name]))
            runnable.add_input(self._proto.graph, self._reads[-1])
        held = sum(size_of(model.types.get(name)) or 0 for name in fetched)
        self.memory = peak(self._proto.graph, model.types) + held
        dtypes = {name: kind.tensor_type.elem_type for name, kind in model.types.items()}
        self._outputs = [
            runnable.probe_value(self._proto, name, number, dtypes.get(name, 0)) for number, name in enumerate(fetched)
        ]

    def run(self, inputs: Inputs) -> dict[str, Values]:
        """The values of the wanted tensors, per sample; raises what onnxruntime raises."""
        session = Session(self._proto, self._folder)
        found: dict[str, Values] = {name: [] for name in self._fetched}
        for number in range(inputs.count):
            fed = {}
            for value in self._reads:
                array = self._kept[value.name][number] if value.name in self._kept else inputs.of(value.name, number)
                if array is not None:
                    fed[runnable.fed_name(value)] = array
            try:
                arrays = session.run(self._outputs, fed, Clock(inf))
            finally:
                self.timed_out = session.timed_out
            for name, array in zip(self._fetched, arrays, strict=True):
                found[name].append(array)
        return found


#: Most bytes of values kept between calls, all samples together.
KEPT_BYTES = 512 << 20


class TensorValues:
    """Runs a model on samples of its inputs to compute requested tensors; keeps some results between calls.

    `given` are the samples; without any, `count` are generated. Values have the dtype of their tensor, or a wider one
    where numpy lacks it (`runnable.CARRIERS`). Values that onnxruntime cannot compute (custom ops, too little memory)
    are generated, and `notes` says so. The first call also computes tensors that later calls may request, small ones
    first, up to `kept_bytes`. Not thread-safe.
    """

    def __init__(
        self,
        model: Model,
        *,
        given: Sequence[runnable.Sample] = (),
        count: int = 1,
        kept_bytes: int = KEPT_BYTES,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self._model = model
        graph = model.proto.graph
        self._inputs = Inputs(graph, given, count, compared_values(graph, model.known))
        self._computation = Computation(model, self._inputs, memory_limit)
        self._memory_limit = memory_limit
        #: The model's tensors. Probes may have more inputs, which were added for the target.
        self._own = {name for node in model.proto.graph.node for name in (*node.input, *node.output)}
        self._left = kept_bytes
        self._kept: dict[str, Values] = {}
        self._made_up: dict[str, None] = {}
        self._too_large: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about values that are generated instead of computed by the model."""
        notes = []
        if self._made_up:
            notes.append(
                english(
                    "Input samples of cuts are made up for {names}{reason}.",
                    names=some(list(self._made_up)),
                    reason=self._reason(),
                )
            )
        if self._too_large:
            notes.append(
                english(
                    "Input samples of cuts are made up for {names}: running the model up to there would "
                    "take more than the limit of {limit} MB.",
                    names=some(list(self._too_large)),
                    limit=self._memory_limit >> 20,
                )
            )
        return tuple(notes)

    def samples(self, tensors: Sequence[onnx.ValueInfoProto]) -> Iterator[dict[str, np.ndarray]]:
        """Yield for each sample the values of these tensors by name, in their declared shapes.

        Omits values that are not tensors, and tensors with neither a value nor a bound shape.
        """
        fresh = self._compute([value.name for value in tensors if self._is_wanted(value.name)])
        for number in range(self._inputs.count):
            sample = {}
            for value in tensors:
                name = value.name
                if name in self._inputs.values:
                    array = self._inputs.of(name, number)
                elif name in self._model.known:
                    array = self._model.known[name]
                else:
                    values = self._kept.get(name) or fresh.get(name)
                    array = values[number] if values else None
                if array is None or not _fits(array, value.type):
                    if not value.type.HasField("tensor_type") or is_unbound(value.type):
                        array = None
                    else:
                        if value.name not in self._too_large and value.name in self._own:
                            self._made_up[value.name] = None
                        array = runnable.feed(value, runnable.Fill.RANDOM, number)
                if array is not None:
                    sample[value.name] = array
            yield sample

    def _reason(self) -> str:
        graph, refused = self._model.proto.graph, self._computation.refused
        if not refused:
            return ""
        ops = dict.fromkeys(qualified(graph.node[index]) for index in refused)
        words = next((words for words in refused.values() if words), "")
        if not words:
            return english(": onnxruntime does not run {names}", names=some(list(ops)))
        said = brief(runnable.unmarked(words, graph))
        return english(": onnxruntime does not run {names} ({said})", names=some(list(ops)), said=said)

    def _is_wanted(self, name: str) -> bool:
        """Whether the tensor must and can be computed by a run."""
        kind = self._model.types.get(name)
        if kind is not None and not kind.HasField("tensor_type"):
            return False
        return not any(name in there for there in (self._inputs.values, self._model.known, self._kept))

    def _compute(self, names: Sequence[str]) -> dict[str, Values]:
        """The values of these tensors, as far as the model runs; keeps some within the limit."""
        if not names:
            return {}
        # Tensors at which cuts may be made, smallest first, up to the limit for kept values.
        sizes = []
        for node in self._model.proto.graph.node:
            for name in () if is_constant(node) else filter(None, node.output):
                size = size_of(self._model.types.get(name))
                if size is not None and self._is_wanted(name):
                    sizes.append((size * self._inputs.count, name))
        left, chosen = self._left, []
        for size, name in sorted(sizes):
            if size > left:
                break
            left -= size
            chosen.append(name)
        for wanted in (list(dict.fromkeys([*names, *chosen])), names):
            found = self._computation.run(wanted, self._kept)
            if found is not None:
                for name, arrays in found.items():
                    size = sum(array.nbytes for array in arrays)
                    if size <= self._left:
                        self._left -= size
                        self._kept[name] = arrays
                return found
        self._too_large.update(dict.fromkeys(names))
        return {}


def _fits(array: np.ndarray, kind: onnx.TypeProto) -> bool:
    """Whether the array matches the declared dtype and the declared dimensions of a tensor."""
    dtype = kind.tensor_type.elem_type
    if not kind.HasField("tensor_type"):
        return False
    numpy_dtype = runnable.fed_dtype(dtype) if dtype else array.dtype
    return array.dtype == numpy_dtype and (is_unbound(kind) or array.shape == dims_of(kind))
