"""Random dataflow graphs without a model, and what must hold of any order of their pieces."""

from hypothesis import strategies as st

from onnxbisect.split import PieceKind, PieceUnits
from onnxbisect.unitset import UnitSet, of
from onnxbisect.universe import Universe


def universe_of(successors: list[UnitSet]) -> Universe:
    count = len(successors)
    return Universe(
        variant=tuple(range(count)),
        solo=tuple(range(count)),
        op=("Op",) * count,
        names=tuple((f"n{i}",) for i in range(count)),
        tensors=tuple((f"t{i}",) for i in range(count)),
        successors=tuple(successors),
    )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Universe, UnitSet]:
    count = draw(st.integers(1, 14))
    after = [of(j for j in range(i + 1, count) if draw(st.integers(0, 3)) == 0) for i in range(count)]
    return universe_of(after), draw(st.integers(0, (1 << count) - 1))


def reachable(universe: Universe, units: UnitSet) -> UnitSet:
    found = 0
    for unit in range(len(universe)):
        if (units | found) >> unit & 1:
            found |= universe.successors[unit]
    return found


def cost(parts: tuple[PieceUnits, ...]) -> tuple[int, int]:
    return sum(part.kind is PieceKind.NPU for part in parts), len(parts)


def demand_runnable(universe: Universe, parts: tuple[PieceUnits, ...]) -> None:
    done = 0
    for part in parts:
        assert part.units
        assert not part.units & done
        later = universe.everything & ~(done | part.units)
        assert not reachable(universe, later) & (part.units | done), "a part takes what a later one makes"
        done |= part.units
