"""Sections of a document, chosen once, as the lines of a terminal and as Markdown.

A section is a heading, a sentence (a string), items or a table. Strings are sentences of this program; what models,
compilers and users wrote is `Quoted`, which Markdown shows as code.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from onnxbisect.report.text import aligned, clean, clip, code, padded, plain, table

#: Leads that are at most so wide make a column.
_COLUMN = 14


@dataclass(frozen=True)
class Quoted:
    """Text of others. `href` is where Markdown's link leads."""

    text: str
    href: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading."""

    text: str
    level: int = 1


@dataclass(frozen=True)
class Item:
    """A name, what is said of it, and what others said."""

    lead: Quoted
    sentence: str | Quoted = ""
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table. On a terminal, columns are at most as wide as `limits`; those of `keep_end` lose their start."""

    head: Sequence[str | Quoted]
    rows: Sequence[Sequence[str | Quoted]]
    limits: Sequence[int]
    right: Sequence[int] = ()
    keep_end: Sequence[int] = ()


#: Strings are sentences, and lists of items belong together.
Section = Heading | str | Sequence[Item] | TextTable


def terminal_lines(sections: Iterable[Section], width: int) -> list[str]:
    """In about `width` columns, without line ends; sentences are not shortened."""
    lines: list[str] = []
    before: Section | None = None
    for section in sections:
        together = isinstance(before, str) if isinstance(section, str) else isinstance(before, Heading)
        if before is not None and (isinstance(section, Heading | TextTable) or not together):
            lines.append("")
        match section:
            case str():
                lines.append(clean(section))
            case Heading():
                lines.append(clean(section.text))
            case TextTable():
                cells = [[_text(cell) for cell in row] for row in (section.head, *section.rows)]
                lines += aligned(cells, section.limits, right=section.right, keep_end=section.keep_end)
            case items:
                leads = max(cell_len(clean(item.lead.text)) for item in items)
                for item in items:
                    lead, said = clean(item.lead.text), _text(item.sentence)
                    said = clean(said) if isinstance(item.sentence, str) else clip(said, 2 * width)
                    gap = f"{padded(lead, leads)}  " if leads <= _COLUMN else f"{lead}{': ' if said else ''}"
                    lines.append(f"  {gap}{said}")
                    if item.said:
                        lines.append(clip(" " * (leads + 4 if leads <= _COLUMN else 6) + item.said, width))
        before = section
    return [line.rstrip() for line in lines]


def as_markdown(sections: Iterable[Section]) -> str:
    """As GitHub-flavoured Markdown."""
    blocks = []
    for section in sections:
        match section:
            case str():
                blocks.append(plain(section))
            case Heading():
                blocks.append(f"{'#' * section.level} {plain(section.text)}")
            case TextTable():
                rows = ([_markdown(cell, cell=True) for cell in row] for row in section.rows)
                blocks.append(table([_markdown(cell, cell=True) for cell in section.head], rows))
            case items:
                parts = ((item.lead, item.sentence, Quoted(clip(item.said, 300))) for item in items)
                blocks.append("\n".join("- " + ": ".join(filter(None, map(_markdown, it))) for it in parts))
    return "\n\n".join(blocks) + "\n"


def _text(words: str | Quoted) -> str:
    return words if isinstance(words, str) else words.text


def _markdown(words: str | Quoted, *, cell: bool = False) -> str:
    if isinstance(words, str):
        return plain(words)
    span = code(words.text, cell=cell)
    return f"[{span}]({words.href})" if span and words.href else span
