"""Sets of units as Python integers: bit `i` is unit `i`.

A model of 10 000 units makes sets of 1.2 kB whose union, difference and subset test cost a microsecond, and
which are hashable as they are: the planner replays thousands of set operations for each question.
"""

from collections.abc import Iterable, Iterator

UnitSet = int

_FEW = 64
_BITS = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


def of(units: Iterable[int]) -> UnitSet:
    """The set of these unit indices."""
    indices = list(units)
    if not indices:
        return 0
    bits = bytearray(max(indices) // 8 + 1)
    for index in indices:
        bits[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(bits, "little")


def full(count: int) -> UnitSet:
    """The set of all units of a model that has `count` of them."""
    return (1 << count) - 1


def members(units: UnitSet) -> Iterator[int]:
    """The unit indices of a set, ascending. Costs by the members where they are few, else by the highest index."""
    if units.bit_count() <= _FEW:
        while units:
            bit = units & -units
            yield bit.bit_length() - 1
            units ^= bit
        return
    for byte_index, byte in enumerate(units.to_bytes((units.bit_length() + 7) // 8, "little")):
        if byte:
            base = byte_index << 3
            for bit in _BITS[byte]:
                yield base + bit


def size(units: UnitSet) -> int:
    """How many units a set has."""
    return units.bit_count()


def lowest(units: UnitSet) -> int:
    """The smallest unit index of a set that is not empty."""
    return (units & -units).bit_length() - 1


def is_subset(part: UnitSet, whole: UnitSet) -> bool:
    """Whether every unit of `part` is in `whole`."""
    return part & ~whole == 0


def sort_key(units: UnitSet) -> tuple[int, tuple[int, ...]]:
    """Shortlex order: fewer units first, then the units earlier in the model. Makes every choice reproducible."""
    return size(units), tuple(members(units))
