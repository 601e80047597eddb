"""The remainder as pieces that an NPU can run one after another, with the culprits in between on the host."""

from onnxbisect.unitset import UnitSet, members, of
from onnxbisect.universe import Universe


def pieces(universe: Universe, inside: UnitSet) -> tuple[UnitSet, ...]:
    """Cuts `inside` into few convex pieces, in an order in which they can run.

    Each unit gets the number of times that a path to it enters `inside`, at most; a piece is all units inside of
    one number. The number never falls along an edge and rises on every way back in. So no path leaves a piece and
    comes back (each is convex in the whole model), pieces and the units outside form an acyclic graph, and no cut
    has fewer pieces. Then parts that nothing in their stage needs move down to the stage that consumes them:
    fewer tensors cross. Linear in units and edges.
    """
    count = len(universe)
    is_inside = [False] * count
    for unit in members(inside):
        is_inside[unit] = True
    after = [tuple(members(successors)) for successors in universe.successors]
    stage = [int(entered) for entered in is_inside]
    for unit in range(count):
        for consumer in after[unit]:
            stage[consumer] = max(stage[consumer], stage[unit] + (is_inside[consumer] and not is_inside[unit]))
    for part in reversed(_parts(stage, is_inside, after)):
        _sink(part, stage, is_inside, after)
    stages: dict[int, list[int]] = {}
    for unit in members(inside):
        stages.setdefault(stage[unit], []).append(unit)
    return tuple(of(stages[number]) for number in sorted(stages))


def _parts(stage: list[int], is_inside: list[bool], after: list[tuple[int, ...]]) -> list[list[int]]:
    """The weakly connected parts of each stage, earlier stages first."""
    leader = list(range(len(stage)))

    def find(unit: int) -> int:
        while leader[unit] != unit:
            leader[unit] = leader[leader[unit]]
            unit = leader[unit]
        return unit

    for unit, consumers in enumerate(after):
        for consumer in consumers:
            if is_inside[unit] and is_inside[consumer] and stage[unit] == stage[consumer]:
                leader[find(consumer)] = find(unit)
    groups: dict[int, list[int]] = {}
    for unit in range(len(stage)):
        if is_inside[unit]:
            groups.setdefault(find(unit), []).append(unit)
    return sorted(groups.values(), key=lambda part: (stage[part[0]], part[0]))


def _sink(part: list[int], stage: list[int], is_inside: list[bool], after: list[tuple[int, ...]]) -> None:
    """Moves a part to its first consumer's stage where that is inside, too, and no later than anything allows."""
    here = stage[part[0]]
    own = set(part)
    consumers = {consumer for unit in part for consumer in after[unit]} - own
    if not consumers:
        return
    latest = min(stage[consumer] for consumer in consumers)
    if latest > here and any(is_inside[consumer] and stage[consumer] == latest for consumer in consumers):
        for unit in part:
            stage[unit] = latest
