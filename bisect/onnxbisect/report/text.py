"""Makes hostile text (node names, tensor names, compiler logs) safe to show.

No character is dropped: one that could move a cursor, reverse a line or be invisible is shown as its escape, so names
that differ only in such characters still look different.

Sections of a document are chosen once, and shown as the lines of a terminal and as Markdown.
"""

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from rich.cells import cell_len, chop_cells

from onnxbisect.language import _, counted

#: Unicode categories that a terminal, a browser or an XML parser may act on instead of showing:
#: controls, format characters (bidi, zero width), surrogates, private use, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


def clean(text: str) -> str:
    r"""One printable line: every control, bidi, zero-width or lone surrogate character becomes `\x1b` or `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    # The last two code points of each plane are no characters; XML 1.0 forbids those of the first.
    hidden = (unicodedata.category(char) in _HIDDEN or ord(char) & 0xFFFE == 0xFFFE for char in text)
    shown = (char.encode("unicode_escape").decode() if hide else char for char, hide in zip(text, hidden, strict=True))
    return "".join(shown)


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


def listed(names: Sequence[str], most: int = 6) -> str:
    """`Sin, Cos and 3 more`."""
    more = " " + _("and {more} more", more=len(names) - most) if len(names) > most else ""
    return ", ".join(names[:most]) + more


def op_chain(ops: Sequence[str]) -> str:
    """`ReduceMean + BatchNormalization`; of more than four ops the first ones and how many there are more."""
    return " + ".join(ops[:4]) + (" " + _("+ {more} more", more=len(ops) - 4) if len(ops) > 4 else "")


def duration(seconds: float) -> str:
    """Seconds for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`; `-` for a number that is none."""
    if not isfinite(seconds):
        return "-"
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


def padded(text: str, width: int) -> str:
    """The text with spaces behind it, in `width` columns: a Chinese character takes two."""
    return text + " " * (width - cell_len(text))


def aligned(
    rows: Sequence[Sequence[str]],
    limits: Sequence[int],
    *,
    indent: int = 2,
    right: Sequence[int] = (),
    keep_end: Sequence[int] = (),
) -> list[str]:
    """Rows in aligned columns, each at most as wide as its limit; `keep_end` columns lose their start instead."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [min(limit, max(cell_len(row[i]) for row in cleaned)) for i, limit in enumerate(limits)]
    shown = []
    for row in cleaned:
        cells = []
        for i, cell in enumerate(row):
            text = _fitted(cell, widths[i], keep_end=i in keep_end)
            cells.append(" " * (widths[i] - cell_len(text)) + text if i in right else padded(text, widths[i]))
        shown.append(" " * indent + "  ".join(cells))
    return shown


def wrapped(label: str, items: Sequence[str], width: int, *, at_most: int, end: str = "") -> list[str]:
    """Items separated by commas in at most `at_most` lines under `label`; the rest is counted."""
    shown = [label]
    for index, item in enumerate(items):
        piece = item + ("," if index < len(items) - 1 else end)
        if cell_len(shown[-1]) + cell_len(piece) > width and shown[-1].strip():
            if len(shown) == at_most:
                # No room was reserved for the count, so it may exceed the width by some columns.
                shown[-1] += " " + _("and {more} more{end}", more=len(items) - index, end=end)
                return shown
            shown.append(" " * cell_len(label))
        shown[-1] += ("" if shown[-1].endswith(" ") else " ") + piece
    return shown


def _fitted(text: str, width: int, *, keep_end: bool) -> str:
    """As much of the start, or of the end, as fits into the columns."""
    if cell_len(text) <= width:
        return text
    room = max(width - 1, 0)
    kept = text[len(text) - room :] if keep_end else text[:room]
    while cell_len(kept) > room:
        kept = kept[1:] if keep_end else kept[:-1]
    return f"…{kept}" if keep_end else f"{kept}…"


def code(text: str, *, cell: bool = False) -> str:
    """A code span that `text` cannot end; in table cells, pipes are escaped as GFM requires."""
    shown = clip(text, 500)
    if not shown:
        return ""
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", shown)), default=0) + 1)
    padded = f" {shown} " if shown[0] in "` " or shown[-1] in "` " else shown
    return ticks + (padded.replace("|", "\\|") if cell else padded) + ticks


def fence(*lines: str, language: str = "sh") -> str:
    """A code block that its lines cannot close."""
    shown = "\n".join(map(clean, lines))
    ticks = "`" * max(3, max((len(run) for run in re.findall(r"`+", shown)), default=0) + 1)
    return f"{ticks}{language}\n{shown}\n{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(text: str) -> str:
    """A sentence of this program, which may quote untrusted text."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", clean(text))


#: Leads that are at most so wide make a column.
_COLUMN = 14


@dataclass(frozen=True)
class Quoted:
    """Text of others. `href` is where Markdown's link leads."""

    text: str
    href: str = ""


#: Fewest columns of a document on a terminal: in fewer, tables could not be read.
NARROWEST = 60

#: Words of this program, text of others, or both one after the other.
Words = str | Quoted | Sequence[str | Quoted]


@dataclass(frozen=True)
class Heading:
    """A heading."""

    text: Words
    level: int = 1


@dataclass(frozen=True)
class Item:
    """A name, what is said of it, and lines of others about it; or a sentence alone."""

    lead: Words
    sentence: Words = ""
    said: Sequence[str] = ()


@dataclass(frozen=True)
class Code:
    """Lines of code in a language."""

    lines: Sequence[str]
    language: str


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table. On a terminal, columns are at most as wide as `limits`; those of `keep_end` lose their start."""

    head: Sequence[str | Quoted]
    rows: Sequence[Sequence[str | Quoted]]
    limits: Sequence[int]
    right: Sequence[int] = ()
    keep_end: Sequence[int] = ()
    indent: int = 2


#: Strings are sentences, and lists of items belong together.
Section = Heading | str | Sequence[Item] | TextTable | Code


def below(lead: str, sentences: Iterable[Words]) -> list[Item]:
    """Items of which only the first has the lead."""
    return [Item("" if number else lead, it) for number, it in enumerate(sentences)]


def quoted(names: Sequence[str], most: int = 6) -> list[str | Quoted]:
    """`a, b and 3 more`, each of them text of others."""
    words = [it for name in names[:most] for it in (", ", Quoted(name))][1:]
    return words + ([" " + _("and {more} more", more=len(names) - most)] if len(names) > most else [])


def terminal_lines(sections: Iterable[Section], width: int = 100) -> list[str]:
    """In about `width` columns, `NARROWEST` at least, without line ends; sentences are not shortened."""
    width = max(width, NARROWEST)
    lines: list[str] = []
    before: Section | None = None
    for section in sections:
        together = isinstance(before, str) if isinstance(section, str) else isinstance(before, Heading)
        if before is not None and (isinstance(section, Heading | TextTable | Code) or not together):
            lines.append("")
        match section:
            case str():
                lines.append(clean(section))
            case Heading():
                lines.append(_text(section.text))
            case Code():
                lines += [f"  {clean(line)}" for line in section.lines]
            case TextTable():
                cells = [[_text(cell) for cell in row] for row in (section.head, *section.rows)]
                lines += aligned(
                    cells, section.limits, indent=section.indent, right=section.right, keep_end=section.keep_end
                )
            case items:
                leads = max(cell_len(_text(item.lead)) for item in items)
                indent = " " * (leads + 4 if leads <= _COLUMN else 6)
                for item in items:
                    lead, said = _text(item.lead), _text(item.sentence, 3 * width)
                    gap = f"{padded(lead, leads)}  " if leads <= _COLUMN else f"{lead}{': ' if said else ''}"
                    lines += _folded(f"  {gap}{said}", width, indent)
                    lines += [clip(indent + line, width) for line in item.said if line]
        before = section
    return [line.rstrip() for line in lines]


def _folded(text: str, width: int, indent: str) -> list[str]:
    """In lines of at most so many columns, the further ones indented; at any place in text of wide characters, which
    has few spaces.
    """
    if cell_len(text) <= width:
        return [text]
    if cell_len(text) == len(text):
        return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
    first, *rest = chop_cells(text, width - len(indent))
    return [first, *(indent + part for part in rest)]


def as_markdown(sections: Iterable[Section]) -> str:
    """As GitHub-flavoured Markdown."""
    blocks = []
    for section in sections:
        match section:
            case str():
                blocks.append(plain(section))
            case Heading():
                blocks.append(f"{'#' * section.level} {_markdown(section.text)}")
            case Code():
                blocks.append(fence(*section.lines, language=section.language))
            case TextTable():
                rows = ([_markdown(cell, cell=True) for cell in row] for row in section.rows)
                blocks.append(table([_markdown(cell, cell=True) for cell in section.head], rows))
            case items:
                said = (quoted([clip(it, 300) for it in item.said if it], len(item.said)) for item in items)
                parts = ((item.lead, item.sentence, lines) for item, lines in zip(items, said, strict=True))
                blocks.append("\n".join("- " + ": ".join(filter(None, map(_markdown, it))) for it in parts))
    return "\n\n".join(blocks) + "\n"


def _text(words: Words, longest: int | None = None) -> str:
    """On a terminal, text of others in at most `longest` characters."""
    match words:
        case str():
            return clean(words)
        case Quoted():
            return clean(words.text) if longest is None else clip(words.text, longest)
        case several:
            return "".join(_text(it, longest) for it in several)


def _markdown(words: Words, *, cell: bool = False) -> str:
    match words:
        case str():
            return plain(words)
        case Quoted():
            span = code(words.text, cell=cell)
            return f"[{span}]({words.href})" if span and words.href else span
        case several:
            return "".join(_markdown(it, cell=cell) for it in several)
