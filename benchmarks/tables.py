"""Results as Markdown, and Markdown into a document."""

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

Row = Sequence[object]


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    """A table whose first column is words and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def holds(value: float, limit: float) -> str:
    """Whether a limit is kept: a failure must catch the eye."""
    return "yes" if value <= limit else "**NO**"


def number(value: float) -> str:
    """One decimal where there is one to tell."""
    return f"{value:.1f}".removesuffix(".0")


def mean(values: Iterable[float]) -> str:
    """The mean as `number`."""
    return number(fmean(values))


def spread(values: Sequence[int]) -> str:
    """Mean, least and most, as in "30.1 (28-32)"; one number where all agree."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{mean(values)} ({low}-{high})"


def fill(document: str, blocks: Mapping[str, str]) -> str:
    """Put each block between its marks, `<!-- begin NAME -->` and `<!-- end NAME -->`, in place of what is there.

    Raises ValueError where a mark is missing: a table that is nowhere to be read was measured in vain.
    """
    for name, block in blocks.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        count = len(pattern.findall(document))
        if count != 1:
            raise ValueError(f"the document must have {begin} and {end} once, and has them {count} times")
        before, after = pattern.split(document)
        document = f"{before}{begin}\n{block}\n{end}{after}"
    return document
