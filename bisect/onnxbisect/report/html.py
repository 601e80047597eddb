"""The report as one HTML file that opens offline, without scripts and without any other resource.

Templates request a link and omit it if it is empty; they do not know where they are shown: a page of the service has
other links than a file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import pairwise

import jinja2
from markupsafe import Markup, escape

from onnxbisect import language
from onnxbisect.finished import clauses, phrase, translated
from onnxbisect.language import _, marked
from onnxbisect.report import culprit_words, reading, words
from onnxbisect.report.contents import Report, UnitsEntry
from onnxbisect.report.culprit_contents import DrawnEdge, DrawnNode, Surroundings
from onnxbisect.report.text import clean, clip, clip_left, duration, plural
from onnxbisect.unitset import chosen


@dataclass(frozen=True, kw_only=True)
class Link:
    """`text` says what the link leads to."""

    text: str
    href: str


@dataclass(frozen=True, kw_only=True)
class CulpritLinks:
    """Links of one culprit: `files` reproduce it, `log` is the compiler's full log, `graph` shows it in the model.

    `viewers` are other programs that draw its file. A reader has that file as `saved_as` if it is not at the path in
    the report.
    """

    files: tuple[Link, ...] = ()
    saved_as: str = ""
    log: str = ""
    graph: str = ""
    viewers: tuple[Link, ...] = ()


_NONE = CulpritLinks()


@dataclass(frozen=True, kw_only=True)
class Links:
    """Links of one report: `forms` are its other formats, `probes` a page with every probe.

    `each_probe` is the page of one probe with its log; `{}` in it stands for the probe's name. `may_repair` tells that
    the page has a button for a repair: a file has none, nor has the page of a job with a repair. `repaired` is where
    such a page has the repaired model.
    """

    culprits: Mapping[int, CulpritLinks] = field(default_factory=dict)
    forms: tuple[Link, ...] = ()
    probes: str = ""
    each_probe: str = ""
    may_repair: bool = False
    repaired: str = ""

    def culprit(self, number: int) -> CulpritLinks:
        """The links of the culprit with this number, starting at 1."""
        return self.culprits.get(number, _NONE)

    def probe(self, name: str) -> str:
        """The link to one probe; empty if there is none."""
        return self.each_probe.format(name)


_ALONE = Links()


def html(document: Report, links: Links = _ALONE) -> str:
    """A page for browsers of any width, in light and dark, and for paper. `links` lead to files beside it."""
    return environment().get_template("report.html.j2").render(doc=reading.translated_report(document), links=links)


#: A probe's name (`contents.probe_name`).
_PROBE = re.compile(r"\bp[0-9a-f]{10}\b")


@cache
def environment(*loaders: jinja2.BaseLoader) -> jinja2.Environment:
    """The report's templates and those of `loaders`, which come first. Threads may share it."""
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([*loaders, jinja2.PackageLoader("onnxbisect.report")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # would check the file of each included template
    )
    made.globals |= {
        "_": _said,
        "culprit_words": culprit_words,
        "clip": clip,
        "clip_left": clip_left,
        "duration": duration,
        "language": lambda: language.current().replace("_", "-"),
        "linked": _linked,
        "plural": plural,
        "reading": reading,
        "stop": words.stop,
        "strip": strip,
        "stylesheet": Markup(stylesheet()),  # noqa: S704 - our own file
        "surroundings": surroundings,
        # text within a tag, for a message
        "tag": lambda name, text: Markup("<{0}>{1}</{0}>").format(name, clean(text)),
        "clauses": clauses,
        "phrase": phrase,
        "told": translated,
        "words": words,
    }
    return made


def compile_all(made: jinja2.Environment) -> None:
    """Compile every template now, which takes a third of a second, so that no page waits for it."""
    for name in made.list_templates(extensions=["j2"]):
        made.get_template(name)


def stylesheet() -> str:
    """The style sheet of all these pages."""
    return resources.files("onnxbisect.report").joinpath("templates", "report.css").read_text("utf-8")


def _said(message: str, /, **values: object) -> Markup:
    """A message of the catalogue, which may hold markup, in the reader's language; values are cleaned and escaped."""
    found = Markup(language.translate(message))  # noqa: S704 - a message is a constant of a template
    return found.format(**{name: _shown(value) for name, value in values.items()}) if values else found


def _linked(sentence: str) -> Markup:
    """A sentence of this program, in which every probe name links to its row."""
    return Markup(_PROBE.sub(r'<a href="#\g<0>">\g<0></a>', str(escape(clean(sentence)))))  # noqa: S704 - escaped


def _shown(value: object) -> object:
    """Cleans every text before it is escaped; markup stays as it is."""
    return clean(value) if type(value) is str else value


_PITCH = 16
_CELL = 14
#: Most units for each number of cells in a line; only cells of the first size have a number.
_FINENESS = ((640, 64), (2500, 128), (None, 200))
#: Above this number of units, runs of cells of one state are drawn as one bar with one tooltip.
_SINGLY = 2500

_WIDTH, _HEIGHT, _GAP, _ROW = 168, 44, 118, 60
#: Most nodes times edges of a picture, which take so many steps to lay out.
_MOST_STEPS = 1_000_000
#: The first columns that are legible in the width of a narrow page, and of a wide one.
_SHORT, _LONG = 4, 7

_STATE_NAMES = {
    "pass": marked("compiles"),
    "culprit": marked("culprit"),
    "suspected": marked("suspected"),
    "needs_context": marked("needs context"),
    "unknown": marked("unknown"),
}
_ROLES = {"input": marked("graph input"), "output": marked("graph output")}


def strip(document: Report) -> Markup:
    """Every unit as one cell in topological order; cells of culprits have their number and link to them.

    Each half line is an image of its own, so that a narrow page can show the second half below the first.
    """
    units = document["units"]
    count = len(units["names"])
    state = ["unknown"] * count
    for name, text in units["states"].items():
        for index in chosen(text, count):
            state[index] = name
    number: dict[int, int] = {}
    for position, culprit in enumerate(document["culprits"][: reading.CULPRITS], 1):
        for index in chosen(",".join(culprit["occurrence_units"]), count):
            number.setdefault(index, position)
    columns = next(columns for most, columns in _FINENESS if most is None or count <= most) // 2
    halves: list[str] = []
    for start in range(0, count, columns):
        cells: list[str] = []
        index, end = start, min(count, start + columns)
        while index < end:
            run = 1
            if count > _SINGLY and index not in number:
                while index + run < end and state[index + run] == state[index] and index + run not in number:
                    run += 1
            x = (index - start) * _PITCH + 1
            cells.append(_cell(units, state[index], index, run, x, number.get(index), count <= _FINENESS[0][0]))
            index += run
        halves.append(f'<svg viewBox="0 0 {columns * _PITCH} {_PITCH}">{"".join(cells)}</svg>')
    return Markup(f'<div class="strip">{"".join(halves)}</div>')  # noqa: S704 - `_cell` escapes


def _cell(units: UnitsEntry, state: str, index: int, run: int, x: int, number: int | None, numbered: bool) -> str:
    """Markup as plain text, escaped here: `Markup.format` would double the time of a large page."""
    name = _(_STATE_NAMES.get(state, state))
    if run > 1:
        title = _("units {first} to {last}: {state}", first=index, last=index + run - 1, state=name)
    else:
        title = f"{clip(units['ops'][index], 60)} · {clip_left(units['names'][index], 120)} · {name}"
    width = run * _PITCH - (_PITCH - _CELL)
    shape = (
        f'<rect class="u {state}" x="{x}" y="1" width="{width}" height="{_CELL}" rx="2">'
        f"<title>{escape(title)}</title></rect>"
    )
    if state == "needs_context" and run == 1:
        return f'{shape}<path class="mark" d="M{x + 3} {_CELL - 2}l8 -8"/>'
    if number is None:
        return shape
    if numbered:
        shape += f'<text class="n" x="{x + _CELL / 2}" y="{_CELL - 2.5}">{min(number, 999)}</text>'
    label = escape(_("culprit {number}", number=number))
    return f'<a href="#c{number}" aria-label="{label}">{shape}</a>'


def surroundings(around: Surroundings) -> Markup:
    """The culprit's nodes in a frame of their own colour, with the nodes before and after; flow is left to right.

    Empty for what no picture is, since a report may be of a hostile process: too large, with circles, or with edges of
    nodes that are not there.
    """
    nodes, edges = around["nodes"], around["edges"]
    there = range(len(nodes))
    if len(nodes) * len(edges) > _MOST_STEPS or any(it[end] not in there for it in edges for end in ("from", "to")):
        return Markup()
    layer = _layers(len(nodes), edges)
    if not 0 <= max(layer, default=-1) < len(nodes):
        return Markup()
    rows: dict[int, int] = {}

    def place(column: int) -> tuple[int, int]:
        rows[column] = rows.get(column, 0) + 1
        return column, rows[column] - 1

    places = [place(column) for column in layer]
    # An edge over several columns passes those between in rows of their own, and not behind their nodes.
    passed = [[place(column) for column in range(layer[edge["from"]] + 1, layer[edge["to"]])] for edge in edges]
    tallest = max(rows.values())

    def corner(at: tuple[int, int]) -> tuple[int, int]:
        column, row = at
        return column * (_WIDTH + _GAP) + 2, row * _ROW + (tallest - rows[column]) * _ROW // 2 + 10

    width = (max(layer) + 1) * (_WIDTH + _GAP) - _GAP + 4
    first = {edge["tensor"]: index for index, edge in reversed(list(enumerate(edges)))}
    lines: list[Markup] = []
    types: list[Markup] = []
    for index, edge in enumerate(edges):
        way = [corner(at) for at in (places[edge["from"]], *passed[index], places[edge["to"]])]
        lines.append(_edge(way, edge))
        if first[edge["tensor"]] == index:
            types.append(_type(way, edge))
    parts = [*lines, *types, *(_node(corner(places[index]), node) for index, node in enumerate(nodes))]
    label = _(
        "The culprit and its neighbours: {ops}", ops=", ".join(clip(node["op"] or node["name"], 40) for node in nodes)
    )
    columns = max(layer) + 1
    kind = "short" if columns < _SHORT else "long" if columns < _LONG else ""
    return Markup(
        '<svg class="around {4}" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">{3}</svg>'
    ).format(width, tallest * _ROW + 6, label, Markup().join(parts), kind)


def _layers(count: int, edges: list[DrawnEdge]) -> list[int]:
    """Longest path from the left; sources then move right, next to their first consumer."""
    layer = [0] * count
    for _round in range(count):
        for edge in edges:
            layer[edge["to"]] = max(layer[edge["to"]], layer[edge["from"]] + 1)
    for index in range(count):
        after = [layer[edge["to"]] for edge in edges if edge["from"] == index]
        if after and not any(edge["to"] == index for edge in edges):
            layer[index] = min(after) - 1
    return layer


def _node(spot: tuple[int, int], node: DrawnNode) -> Markup:
    x, y = spot
    top = node["op"] or _(_ROLES.get(node["role"], node["role"]))
    return Markup(
        '<g class="node {}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
        '<text class="op" x="{}" y="{}">{}</text><text class="name" x="{}" y="{}">{}</text></g>'
    ).format(
        node["role"],
        clean(node["name"]),
        x,
        y,
        _WIDTH,
        _HEIGHT,
        x + 10,
        y + 18,
        clip(top, 20),
        x + 10,
        y + 34,
        clip_left(node["name"], 23),
    )


def _edge(way: Sequence[tuple[int, int]], edge: DrawnEdge) -> Markup:
    """The line between the corners of two boxes, and across the columns that it passes."""
    steps: list[str] = []
    for (x, y), (next_x, next_y) in pairwise(way):
        x1, y1, x2, y2 = x + _WIDTH, y + _HEIGHT // 2, next_x, next_y + _HEIGHT // 2
        steps.append(f"{'L' if steps else 'M'}{x1} {y1}C{x1 + _GAP // 2} {y1} {x1 + _GAP // 2} {y2} {x2 - 4} {y2}")
    return Markup('<g><title>{}</title><path class="edge" d="{}"/><path class="tip" d="M{} {}l-7 -4v8z"/></g>').format(
        clip(edge["tensor"], 200), "".join(steps), x2, y2
    )


def _type(way: Sequence[tuple[int, int]], edge: DrawnEdge) -> Markup:
    """The type of a tensor: above a straight line, and in place of the middle of a bent one."""
    (x, y), (_x, next_y) = way[:2]
    middle, between = x + _WIDTH + _GAP // 2, (y + next_y) // 2 + _HEIGHT // 2
    base = between - 6 if y == next_y else between + 4
    text = clip(edge["type"], 18)
    width = 6 * len(text) + 6
    return Markup(
        '<rect class="ground" x="{}" y="{}" width="{}" height="13"/><text class="type" x="{}" y="{}">{}</text>'
    ).format(middle - width // 2, base - 10, width, middle, base, text)
