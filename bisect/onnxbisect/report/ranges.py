"""Unit sets as short text, such as `0-57,60`; a probe of 9 990 of 10 000 units fits in a line."""

from collections.abc import Iterator

from onnxbisect.unitset import UnitSet, members

#: Longer lists of nodes are given as ranges alone.
LISTED = 50


def spell(units: UnitSet) -> str:
    """The set as ascending, inclusive ranges of unit indices; empty text for the empty set."""
    parts: list[str] = []
    start = end = -1
    for index in members(units):
        if index == end + 1 and start >= 0:
            end = index
            continue
        if start >= 0:
            parts.append(_range(start, end))
        start = end = index
    if start >= 0:
        parts.append(_range(start, end))
    return ",".join(parts)


def indices(text: str) -> Iterator[int]:
    """The unit indices that `spell` wrote, ascending."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def chosen(text: str, count: int) -> list[int]:
    """The unit indices in untrusted text, in any order: those below `count`, ascending, each once."""
    flags = bytearray(count)
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        start, end = int(first), min(int(last or first) + 1, count)
        if start < end:
            flags[start:end] = b"\x01" * (end - start)
    return [index for index, flag in enumerate(flags) if flag]


def _range(start: int, end: int) -> str:
    return str(start) if start == end else f"{start}-{end}"
