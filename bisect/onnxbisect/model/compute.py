"""Compute tensors of a model in onnxruntime, running only the nodes that they depend on."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

import numpy as np
import onnx

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.feeds import Fill, Sample, feed
from onnxbisect.model.footprint import peak, size_of
from onnxbisect.model.model import Model
from onnxbisect.model.opaque import opaque_nodes
from onnxbisect.model.runnable import add_input, assemble, culprit, fed_name, probe_value, select
from onnxbisect.model.scopes import domain_of, reads
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
        self, graph: onnx.GraphProto, given: Sequence[Sample], count: int, compared: Mapping[str, np.ndarray]
    ) -> None:
        self.values = {value.name: value for value in graph.input}
        self._compared = compared
        self.count = len(given) or count
        self._given = given
        self._fills = list(Fill)

    def of(self, name: str, number: int) -> np.ndarray | None:
        """One input in one sample; None where it is neither given nor can be generated."""
        if self._given:
            return self._given[number].get(name)
        value = self.values[name]
        if not value.type.HasField("tensor_type") or is_unbound(value.type):
            return None
        return self._compared[name] if name in self._compared else feed(value, self._fills[0], number)

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
        kept = _of_whole_nodes(self._graph, kept)
        there = {**self._model.known, **kept}
        for _ in range(_ATTEMPTS):
            nodes = _ancestors(self._graph, wanted, there) - self.refused.keys()
            chosen = select(self._graph, nodes, missing, there)
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
        node = culprit(words)
        if node is None:
            self.refused.update(dict.fromkeys(chosen, words))
        elif len(self.refused) >= _ONE_BY_ONE or part.timed_out:
            self.refused.update(dict.fromkeys(_like(self._graph, node, chosen), words))
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
        self._proto, self._reads = assemble(model.proto, nodes, model.known, {})
        read = {name for index in nodes for name in reads(model.proto.graph.node[index])}
        for name in sorted(read & kept.keys()):
            self._reads.append(onnx.ValueInfoProto(name=name, type=model.types[name]))
            add_input(self._proto.graph, self._reads[-1])
        held = sum(size_of(model.types.get(name)) or 0 for name in fetched)
        self.memory = peak(self._proto.graph, model.types) + held
        dtypes = {name: kind.tensor_type.elem_type for name, kind in model.types.items()}
        self._outputs = [
            probe_value(self._proto, name, number, dtypes.get(name, 0)) for number, name in enumerate(fetched)
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
                    fed[fed_name(value)] = array
            try:
                arrays = session.run(self._outputs, fed, Clock(inf))
            finally:
                self.timed_out = session.timed_out
            for name, array in zip(self._fetched, arrays, strict=True):
                found[name].append(array)
        return found


def _of_whole_nodes(graph: onnx.GraphProto, kept: Mapping[str, Values]) -> dict[str, Values]:
    """`kept` without the results of a node of which another result may have to be computed."""
    return {
        name: kept[name]
        for node in graph.node
        if all(name in kept for name in node.output if name)
        for name in node.output
        if name
    }


def _ancestors(graph: onnx.GraphProto, tensors: Iterable[str], there: Collection[str]) -> set[int]:
    """The nodes that must run to compute `tensors` when the tensors in `there` are available."""
    needed = {name for name in tensors if name not in there}
    nodes = set()
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        if not needed.isdisjoint(node.output):
            nodes.add(index)
            needed.update(name for name in reads(node) if name not in there)
    return nodes


def _like(graph: onnx.GraphProto, node: int, among: Iterable[int]) -> set[int]:
    op = (domain_of(graph.node[node]), graph.node[node].op_type)
    return {index for index in among if (domain_of(graph.node[index]), graph.node[index].op_type) == op}
