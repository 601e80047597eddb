"""A badge for READMEs: two texts on a coloured ground."""

from dataclasses import dataclass
from enum import StrEnum
from html import escape

from onnxbisect.report.text import clip

_MOST_CHARACTERS = 40
_NARROW = frozenset("fijlrt1.,:;'|!()[] ")
_WIDE = frozenset("mwMW@%")
_PADDING = 10


class Colour(StrEnum):
    """Background colours of the right half, on which white text is readable."""

    GOOD = "#2a7f3f"
    BAD = "#b3372b"
    UNSURE = "#8a6100"
    BUSY = "#2f6690"
    NONE = "#666666"


@dataclass(frozen=True, kw_only=True)
class Badge:
    """The contents of a badge."""

    title: str
    message: str
    colour: Colour

    def svg(self) -> str:
        """The SVG, without scripts, fonts or other external resources. Both texts may be hostile."""
        title, message = (clip(text, _MOST_CHARACTERS) for text in (self.title, self.message))
        left, right = _width(title), _width(message)
        label = escape(f"{title}: {message}")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
            f'aria-label="{label}"><title>{label}</title>'
            f'<clipPath id="round"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
            f'<g clip-path="url(#round)"><rect width="{left}" height="20" fill="#444"/>'
            f'<rect x="{left}" width="{right}" height="20" fill="{self.colour}"/></g>'
            f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
            f"{_text(title, left / 2, left)}{_text(message, left + right / 2, right)}</g></svg>\n"
        )


def _text(text: str, middle: float, width: int) -> str:
    return f'<text x="{middle:g}" y="14" textLength="{width - _PADDING}">{escape(text)}</text>'


def _width(text: str) -> int:
    """An approximate width; `textLength` makes it exact in any font."""
    wide = sum(4 if char in _NARROW else 10 if char in _WIDE else 7 if char.isascii() else 11 for char in text)
    return max(wide, 1) + _PADDING
