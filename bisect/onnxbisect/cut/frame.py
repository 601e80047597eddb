"""Find the boundary of a cut: the tensors that enter a set of units and those that leave it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model
from onnxbisect.unitset import UnitSet, full

Numbers = NDArray[np.intp]


class Rows:
    """A row of whole numbers for each of `0 … n-1`."""

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        listed = list(rows)
        self._lengths = np.fromiter(map(len, listed), np.intp, len(listed))
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._values = np.fromiter(chain.from_iterable(listed), np.intp)

    def of(self, chosen: Numbers) -> Numbers:
        """The concatenated rows of `chosen`, in time linear in the result."""
        lengths = self._lengths[chosen]
        before = np.cumsum(lengths) - lengths
        found: Numbers = self._values[np.arange(lengths.sum()) + np.repeat(self._starts[chosen] - before, lengths)]
        return found

    def lengths(self, chosen: Numbers) -> Numbers:
        """The length of each chosen row."""
        found: Numbers = self._lengths[chosen]
        return found


def distinct(numbers: Numbers, limit: int) -> Numbers:
    """The different numbers, all below `limit`, in order of first appearance."""
    found: Numbers = numbers[_first_seen(numbers, limit) == np.arange(len(numbers))]
    return found


def renumbered(numbers: Numbers, limit: int) -> tuple[Numbers, Numbers]:
    """The numbers replaced by 0, 1, … in order of first appearance, and the number that each of these replaces."""
    first = _first_seen(numbers, limit)
    new = first == np.arange(len(numbers))
    return (np.cumsum(new) - 1)[first], numbers[new]


def _first_seen(numbers: Numbers, limit: int) -> Numbers:
    """For each number below `limit` the index of its first appearance."""
    places = np.full(limit, len(numbers))
    np.minimum.at(places, numbers, np.arange(len(numbers)))
    found: Numbers = places[numbers]
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """The boundary of a piece in topological order; tensors are indices into `Wiring.names`.

    `entering` are all tensors that the set reads and does not make. Of these, `inputs` become graph inputs and `known`
    become initializers. `outputs` are the graph outputs. `roots` are the tensors from which a backward walk reaches
    every unit of the set: the outputs, plus a result of each unit whose results are unused.
    """

    entering: Numbers
    inputs: Numbers
    known: Numbers
    outputs: Numbers
    roots: Numbers


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """A boundary that the caller fixes: these inputs, even of known value, and exactly these outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Framer:
    """Finds the boundary of any set of units of one model."""

    def __init__(self, model: Model, wiring: Wiring) -> None:
        number = wiring.number
        self._number = number
        self._everything = full(len(model.units))
        self._graph_inputs = np.array([number[value.name] for value in model.proto.graph.input], np.intp)
        self._graph_outputs = np.array([number[value.name] for value in model.proto.graph.output], np.intp)
        made = [wiring.made[unit.node] for unit in model.units]
        self._taken = Rows([number[name] for name in names] for names in wiring.boundary)
        self._made = Rows([number[name] for name in names] for names in made)
        self._known = np.array([name in model.known for name in wiring.names], np.bool_)
        kept = {value.name for value in model.proto.graph.output}
        #: Readers of each tensor, counting a model output as one. A tensor leaves a set that has fewer of its readers.
        self._wanted = np.array([len(wiring.takers.get(name, ())) + (name in kept) for name in wiring.names], np.intp)
        #: The first result of each unit whose results are all unused.
        self._dangling = Rows(
            [number[names[0]]] if names and not any(name in wiring.takers or name in kept for name in names) else []
            for names in made
        )

    def frame(self, units: UnitSet, chosen: Numbers, wishes: Wishes | None = None) -> Frame:
        """The boundary of `units`, given as a set and as indices; the set of all units has the model's boundary."""
        count = len(self._wanted)
        made = self._made.of(chosen)
        inside = np.zeros(count, np.bool_)
        inside[made] = True
        taken = self._taken.of(chosen)
        entering = distinct(taken[~inside[taken]], count)
        if wishes is not None:
            crossing = dict.fromkeys(entering.tolist())
            first = [self._number[name] for name in wishes.inputs if self._number[name] in crossing]
            values = [number for number in crossing if self._known[number] and number not in first]
            inputs = dict.fromkeys([*first, *(number for number in crossing if number not in values)])
            outputs = np.array([self._number[name] for name in wishes.outputs], np.intp)
            return Frame(
                entering=entering,
                inputs=np.array(list(inputs), np.intp),
                known=np.array(values, np.intp),
                outputs=outputs,
                roots=outputs,
            )
        dangling = self._dangling.of(chosen)
        if units == self._everything:
            roots = distinct(np.concatenate((self._graph_outputs, dangling)), count)
            return Frame(
                entering=entering,
                inputs=self._graph_inputs,
                known=entering[:0],
                outputs=self._graph_outputs,
                roots=roots,
            )
        takers = np.bincount(taken, minlength=count)
        outputs = np.concatenate((made[takers[made] < self._wanted[made]], dangling))
        known = self._known[entering]
        return Frame(entering=entering, inputs=entering[~known], known=entering[known], outputs=outputs, roots=outputs)
