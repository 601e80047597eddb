"""All that the search knows of a model: numbered units, their variants and their dataflow.

The search never sees a tensor or a protobuf, so it can be tested on graphs that no ONNX file was made for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnxbisect.unitset import UnitSet, full, members, of


@dataclass(frozen=True, kw_only=True)
class Universe:
    """Units `0 … n-1` in a topological order that keeps branches together.

    All tuples are indexed by unit. Units of one `variant` ask one support question; units that also agree in
    `solo` (an identity of the unit cut out alone: shapes too) make identical probes. `successors[i]` are the units
    that consume an output of unit `i`. `names[i]` are the names a compiler's log may use for the unit: its node
    and the constant nodes that come with it; `tensors[i]` the tensors that it produces. `needs[i]` are the units
    that must come along because the target takes no graph input of the dtype that crosses the cut.
    """

    variant: tuple[int, ...]
    solo: tuple[int, ...]
    op: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    tensors: tuple[tuple[str, ...], ...]
    successors: tuple[UnitSet, ...]
    needs: Mapping[int, UnitSet] = field(default_factory=dict)
    #: Ops that the target advertises, by name; None where it advertises nothing.
    advertised: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self.variant)

    @cached_property
    def everything(self) -> UnitSet:
        """The whole model."""
        return full(len(self))

    @cached_property
    def predecessors(self) -> tuple[UnitSet, ...]:
        """For each unit the units that produce what it consumes."""
        before: list[list[int]] = [[] for _ in range(len(self))]
        for unit, after in enumerate(self.successors):
            for consumer in members(after):
                before[consumer].append(unit)
        return tuple(of(units) for units in before)

    @cached_property
    def variant_members(self) -> tuple[UnitSet, ...]:
        """For each variant its units."""
        groups: list[list[int]] = [[] for _ in range(max(self.variant, default=-1) + 1)]
        for unit, variant in enumerate(self.variant):
            groups[variant].append(unit)
        return tuple(of(units) for units in groups)
