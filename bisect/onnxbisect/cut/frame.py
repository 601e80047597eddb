"""Where a cut runs: the tensors that enter a set of units and those that leave it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model
from onnxbisect.unitset import UnitSet, full


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The boundary of a piece, in topological order.

    `entering` are all tensors that the set takes from elsewhere, of which `inputs` become graph inputs and `known`
    initializers. `outputs` are the graph outputs; `roots` are the tensors from which walking back reaches every
    unit of the set: more than the outputs where nobody uses a result.
    """

    entering: tuple[str, ...]
    inputs: tuple[str, ...]
    known: tuple[str, ...]
    outputs: tuple[str, ...]
    roots: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a person who names tensors wants at the boundary: these inputs, known or not, and only these outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Framer:
    """Finds the boundary of any set of units of one model."""

    def __init__(self, model: Model, wiring: Wiring) -> None:
        graph = model.proto.graph
        self._known = model.known
        self._everything = full(len(model.units))
        self._graph_inputs = tuple(value.name for value in graph.input)
        self._graph_outputs = tuple(value.name for value in graph.output)
        self._kept = frozenset(self._graph_outputs)
        self._takers = wiring.takers
        self._boundary = wiring.boundary
        self._made = tuple(wiring.made[unit.node] for unit in model.units)

    def frame(self, units: UnitSet, chosen: Sequence[int], wishes: Wishes | None) -> Frame:
        """The boundary of `units`, whose members are `chosen`; all units have the model's own inputs and outputs."""
        made = [self._made[unit] for unit in chosen]
        inside = set(chain.from_iterable(made))
        taken = dict.fromkeys(chain.from_iterable([self._boundary[unit] for unit in chosen]))
        entering = tuple([name for name in taken if name not in inside])
        leaving, dangling = self._leaving(set(chosen), made)
        if wishes is not None:
            first = tuple(name for name in wishes.inputs if name in taken)
            known = tuple(name for name in entering if name in self._known and name not in first)
            rest = (name for name in entering if name not in known)
            inputs = tuple(dict.fromkeys(chain(first, rest)))
            return Frame(entering=entering, inputs=inputs, known=known, outputs=wishes.outputs, roots=wishes.outputs)
        if units == self._everything:
            roots = tuple(dict.fromkeys((*self._graph_outputs, *dangling)))
            return Frame(
                entering=entering, inputs=self._graph_inputs, known=(), outputs=self._graph_outputs, roots=roots
            )
        return Frame(
            entering=entering,
            inputs=tuple([name for name in entering if name not in self._known]),
            known=tuple([name for name in entering if name in self._known]),
            outputs=(*leaving, *dangling),
            roots=(*leaving, *dangling),
        )

    def _leaving(self, inside: set[int], made: Sequence[tuple[str, ...]]) -> tuple[list[str], list[str]]:
        """What is used outside the set, and one result of each unit whose results nobody uses at all."""
        leaving: list[str] = []
        dangling: list[str] = []
        for names in made:
            used = False
            for name in names:
                takers = self._takers.get(name)
                if name in self._kept or (takers is not None and not inside.issuperset(takers)):
                    leaving.append(name)
                    used = True
                elif takers is not None:
                    used = True
            if not used:
                dangling += names[:1]
        return leaving, dangling
