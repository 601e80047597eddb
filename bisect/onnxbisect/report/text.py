"""Makes hostile text (node names, tensor names, compiler logs) safe to show.

No character is dropped: one that could move a cursor, reverse a line or be invisible is shown as its escape, so names
that differ only in such characters still look different.
"""

import re
import unicodedata

from onnxbisect.language import counted

#: Unicode categories that a terminal, a browser or an XML parser may act on instead of showing:
#: controls, format characters (bidi, zero width), surrogates, private use, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


def clean(text: str) -> str:
    r"""One printable line: every control, bidi, zero-width or lone surrogate character becomes `\x1b` or `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if _hidden(char) else char for char in text)


def uncoloured(text: str) -> str:
    """A compiler's message without the escape sequences that colour it."""
    return _COLOUR.sub("", text)


def clip(text: str, width: int) -> str:
    """`clean(text)` in at most `width` characters, cut at the end."""
    shown = clean(text)
    return shown if len(shown) <= width else shown[: max(width - 1, 0)] + "…"


def clip_left(text: str, width: int) -> str:
    """`clean(text)` in at most `width` characters, cut at the start: the end of a path or node name is most useful."""
    shown = clean(text)
    return shown if len(shown) <= width else "…" + shown[len(shown) - max(width - 1, 0) :]


def plural(count: int, noun: str) -> str:
    """`1 unit`, `2 units`."""
    return counted(count, noun)


def duration(seconds: float) -> str:
    """Seconds for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def slug(text: str, width: int = 40) -> str:
    """`text` as part of a file name: letters and digits of ASCII, joined by single hyphens; never empty."""
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in text)
    return "-".join(part for part in kept.split("-") if part)[:width].rstrip("-") or "op"


def _hidden(char: str) -> bool:
    # The last two code points of each plane are no characters; XML 1.0 forbids those of the first.
    return unicodedata.category(char) in _HIDDEN or ord(char) & 0xFFFE == 0xFFFE


def _escape(char: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if known:
        return known
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
