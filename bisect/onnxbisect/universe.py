"""The input of the search: numbered units, their variants and their dataflow.

The search sees no tensors and no protobufs, so tests can run it on graphs without an ONNX file.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, wraps
from typing import TypeVar, TypeVarTuple, cast
from weakref import WeakKeyDictionary, ref

from onnxbisect.unitset import UnitSet, full, lowest, members, of

#: Most units of a small model.
_FEW_UNITS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Universe:
    """Units `0 … n-1` in a topological order that keeps branches together.

    All tuples are indexed by unit. Units of one `variant` ask the same support question; units that also agree in
    `solo` (which includes shapes) make identical probes when cut out alone. `successors[i]` are the units that read an
    output of unit `i`. `names[i]` are the names that a compiler's log may use for the unit: its node and the Constant
    nodes that belong to it. `tensors[i]` are the tensors that it makes. `required_producers[i]` are the units that a
    cut must include: the target accepts no graph input of their result's dtype or open size, or does not fold the
    constants that they make. `size_makers[i]` are those that make an input of open size, where the target needs static
    shapes: no cut runs behind them. `doubted` are units that are to be left out first, without which the rest is
    expected to compile. `invalid` are units that ONNX does not allow, which some compilers take all the same.
    `valueless[i]` is equal for units whose variants differ in nothing but the values of constants.
    `weights[i]` are the bytes of the stored constants that unit `i` reads; empty where no model gives them.
    """

    variant: tuple[int, ...]
    solo: tuple[int, ...]
    op: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    tensors: tuple[tuple[str, ...], ...]
    successors: tuple[UnitSet, ...]
    required_producers: Mapping[int, UnitSet] = field(default_factory=dict)
    size_makers: Mapping[int, UnitSet] = field(default_factory=dict)
    #: `solo` without the weights, where it tells units apart by these, too; otherwise empty.
    weightless: tuple[int, ...] = ()
    valueless: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    #: Names of the ops that the target advertises; None where it advertises nothing.
    advertised: frozenset[str] | None = None
    doubted: UnitSet = 0
    invalid: UnitSet = 0

    def __len__(self) -> int:
        return len(self.variant)

    @cached_property
    def everything(self) -> UnitSet:
        """The whole model."""
        return full(len(self))

    @property
    def is_small(self) -> bool:
        """Whether the neighbourhood of a unit is most of the model.

        Nothing outside shows how its parts behave, so contexts of all sizes are asked; such a model compiles fast.
        """
        return len(self) <= _FEW_UNITS

    @cached_property
    def _edges(self) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        """For each unit its producers and its consumers, as unit numbers."""
        after = tuple(tuple(members(units)) for units in self.successors)
        before: list[list[int]] = [[] for _ in after]
        for unit, consumers in enumerate(after):
            for consumer in consumers:
                before[consumer].append(unit)
        return tuple(map(tuple, before)), after

    def with_required_producers(self, units: UnitSet, without: UnitSet = 0) -> UnitSet:
        """These units and all producers that they require, except `without` and what only those require."""
        grown = added = units
        while added:
            along = 0
            for unit in members(added & self._requiring):
                along |= self.required_producers[unit]
            added = along & ~grown & ~without
            grown |= added
        return grown

    def impossible_without(self, missing: UnitSet) -> UnitSet:
        """The units that no probe without these can hold: only these give some of their inputs a size."""
        found = 0
        for unit, along in sorted(self.required_producers.items()) if self.size_makers else ():
            if self.size_makers.get(unit, 0) & missing or along & found:
                found |= 1 << unit
        return found & ~missing

    @cached_property
    def _requiring(self) -> UnitSet:
        return of(self.required_producers)

    @cached_property
    def predecessors(self) -> tuple[UnitSet, ...]:
        """For each unit the units whose results it reads."""
        before, _ = self._edges
        return tuple(map(of, before))

    def neighbours(self, units: UnitSet) -> UnitSet:
        """The units that feed or consume these, without these."""
        around = 0
        for unit in members(units):
            around |= self.successors[unit] | self.predecessors[unit]
        return around & ~units

    def ball(self, units: UnitSet, steps: int, within: UnitSet | None = None) -> UnitSet:
        """These units and all units within `steps` steps of dataflow from them, on paths inside `within`."""
        found = frontier = units
        for _ in range(steps):
            frontier = self.neighbours(frontier) & ~found
            if within is not None:
                frontier &= within
            if not frontier:
                break
            found |= frontier
        return found

    def components(self, units: UnitSet) -> list[UnitSet]:
        """The weakly connected parts of an induced subgraph, in order of their lowest unit."""
        parts = []
        left = units
        while left:
            part = frontier = 1 << lowest(left)
            while frontier:
                frontier = self.neighbours(frontier) & units & ~part
                part |= frontier
            parts.append(part)
            left &= ~part
        return parts

    def joined(self, units: UnitSet, within: UnitSet) -> UnitSet:
        """The units and the shortest paths between them, as far as `within` has paths."""
        first, *others = members(units)
        found = 1 << first
        for unit in others:
            if found >> unit & 1:
                continue
            layers = [found]
            reached = found
            while not reached >> unit & 1 and (frontier := self.neighbours(layers[-1]) & within & ~reached):
                layers.append(frontier)
                reached |= frontier
            step = 1 << unit
            found |= step
            for layer in reversed(layers[1:-1] if reached >> unit & 1 else []):
                choices = self.neighbours(step) & layer
                step = 1 << lowest(choices & units or choices)
                found |= step
        return found

    @cached_property
    def variant_members(self) -> tuple[UnitSet, ...]:
        """For each variant its units."""
        groups: list[list[int]] = [[] for _ in range(max(self.variant, default=-1) + 1)]
        for unit, variant in enumerate(self.variant):
            groups[variant].append(unit)
        return tuple(of(units) for units in groups)

    @cached_property
    def surroundings(self) -> tuple[int, ...]:
        """For each unit a number for its direct context: the variants of its producers and consumers."""
        return self._surroundings(self.variant)

    @cached_property
    def op_surroundings(self) -> tuple[int, ...]:
        """Like `surroundings`, but by op only, which is how compilers describe the patterns that they fuse."""
        return self._surroundings(self._ops)

    @cached_property
    def _ops(self) -> tuple[int, ...]:
        numbers = {op: number for number, op in enumerate(dict.fromkeys(self.op))}
        return tuple(numbers[op] for op in self.op)

    @cached_property
    def neighbourhoods(self) -> tuple[int, ...]:
        """For each unit a number for its context within three steps: equal for units whose contexts look alike.

        Three rounds of colour refinement (Weisfeiler and Leman, 1968), starting from variants and shapes, not weights.
        """
        return self._refined(self.weightless or self.solo)

    @cached_property
    def op_neighbourhoods(self) -> tuple[int, ...]:
        """Like `neighbourhoods`, but by op only."""
        return self._refined(self._ops)

    def _refined(self, colours: Sequence[int]) -> tuple[int, ...]:
        for _ in range(3):
            numbers: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
            colours = [
                numbers.setdefault(
                    (
                        colours[unit],
                        tuple(sorted([colours[other] for other in before])),
                        tuple(sorted([colours[other] for other in after])),
                    ),
                    len(numbers),
                )
                for unit, (before, after) in enumerate(zip(*self._edges, strict=True))
            ]
        return tuple(colours)

    def _surroundings(self, kind: Sequence[int]) -> tuple[int, ...]:
        """A number for each unit: equal for units whose producers agree in kind and whose consumers do."""
        numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        return tuple(
            numbers.setdefault(
                (tuple(sorted([kind[unit] for unit in before])), tuple(sorted([kind[unit] for unit in after]))),
                len(numbers),
            )
            for before, after in zip(*self._edges, strict=True)
        )

    @cached_property
    def exemplars(self) -> Mapping[int, int]:
        """For each solo number the unit that is probed for all of them: the first in their most common context."""
        groups: dict[int, list[int]] = {}
        for unit, solo in enumerate(self.solo):
            groups.setdefault(solo, []).append(unit)
        chosen = {}
        for solo, units in groups.items():
            common = Counter(self.surroundings[unit] for unit in units)
            # Counter keeps the order of insertion, so the earliest of equally common contexts wins.
            [(context, _)] = common.most_common(1)
            chosen[solo] = next(unit for unit in units if self.surroundings[unit] == context)
        return chosen

    @cached_property
    def variant_exemplars(self) -> tuple[int, ...]:
        """For each variant the exemplar of its commonest shape."""
        return tuple(self.exemplar(units) for units in self.variant_members)

    def exemplar(self, units: UnitSet) -> int:
        """The exemplar of the commonest shape among these units; of equally common ones the earliest."""
        [(solo, _)] = Counter(self.solo[unit] for unit in members(units)).most_common(1)
        return self.exemplars[solo]

    @cached_property
    def unit_by_name(self) -> Mapping[str, int]:
        """Unit by any name that a compiler's log may use for it: node, constant node or tensor."""
        found: dict[str, int] = {}
        for unit, (names, tensors) in enumerate(zip(self.names, self.tensors, strict=True)):
            for name in (*names, *tensors):
                found.setdefault(name, unit)
        return found

    @cached_property
    def units_by_op(self) -> Mapping[str, UnitSet]:
        """Units by op type, with and without the domain: logs seldom say the domain."""
        by_op: dict[str, list[int]] = {}
        for unit, op in enumerate(self.op):
            by_op.setdefault(op, []).append(unit)
        found: dict[str, UnitSet] = {}
        for op, those in by_op.items():
            units = of(those)
            for name in dict.fromkeys((op, op.rpartition("::")[2])):
                found[name] = found.get(name, 0) | units
        return found


_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


def remembered(
    most: int,
) -> Callable[[Callable[[Universe, *_Arguments], _Result]], Callable[[Universe, *_Arguments], _Result]]:
    """Keep the last `most` results for each universe, as long as that lives: `lru_cache` alone would keep it alive.

    Results must not refer to the universe.
    """

    def decorate(work: Callable[[Universe, *_Arguments], _Result]) -> Callable[[Universe, *_Arguments], _Result]:
        caches: WeakKeyDictionary[Universe, Callable[..., _Result]] = WeakKeyDictionary()

        @wraps(work)
        def cached(universe: Universe, /, *arguments: *_Arguments) -> _Result:
            if universe not in caches:
                alive = cast("Callable[[], Universe]", ref(universe))  # whoever asks holds it
                caches[universe] = lru_cache(most)(lambda *those: work(alive(), *those))
            return caches[universe](*arguments)

        return cached

    return decorate
