"""A bar that shows which part of the model a probe contains, in SVG small enough for thousands of them."""

from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup

from onnxbisect.unitset import UnitSet, full, size

#: Most visible steps; with more units, several share a step.
_STEPS = 120
_NONE, _SOME, _ALL = range(3)


def bar(units: UnitSet, total: int) -> Markup:
    """The bar: solid where the probe has all units, pale where it has some. CSS classes around it set the colours."""
    steps = max(min(total, _STEPS), 1)
    solid, pale = "", ""
    x = 0
    for kind, run in groupby(_filled(units, total, steps)):
        width = sum(1 for _ in run)
        if kind == _ALL:
            solid += f"M{x} 4h{width}"
        elif kind == _SOME:
            pale += f"M{x} 4h{width}"
        x += width
    return Markup(
        '<svg class="reach" viewBox="0 0 {} 8" preserveAspectRatio="none" aria-hidden="true">{}{}</svg>'
    ).format(
        steps,
        Markup('<path d="{}"/>').format(solid) if solid else "",
        Markup('<path class="some" d="{}"/>').format(pale) if pale else "",
    )


def _filled(units: UnitSet, total: int, steps: int) -> Iterator[int]:
    for step in range(steps):
        start, end = step * total // steps, (step + 1) * total // steps
        here = units >> start & full(end - start)
        yield _NONE if here == 0 else _ALL if size(here) == end - start else _SOME
