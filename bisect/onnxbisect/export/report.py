"""The result of an export as a document, which is also its JSON, and its forms for a terminal and in Markdown."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from onnxbisect.export.failure import CodeLine, FailureKind
from onnxbisect.finished import phrase, translated
from onnxbisect.language import _, english, in_english
from onnxbisect.report.ci import located, log, text
from onnxbisect.report.html import environment
from onnxbisect.report.text import (
    Heading,
    Item,
    Quoted,
    Section,
    TextTable,
    Words,
    as_markdown,
    below,
    clean,
    listed,
    plural,
    quoted,
    terminal_lines,
)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Whether a culprit exports with another setting."""

    setting: str
    exports: bool
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Blamed:
    """A module that does not export for its own code. `places` are all modules of its kind."""

    path: str
    cls: str
    places: tuple[str, ...]
    signature: str
    kind: FailureKind
    place: CodeLine | None
    message: str
    remedy: str
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExportedPart:
    """A part that exports. `without` have stand-ins; `compiles` is what a compiler said, where it was asked.

    `samples` counts the inputs on which its numbers were compared with the module's; `unchecked` says why none were.
    """

    path: str
    cls: str
    without: tuple[str, ...]
    samples: int
    unchecked: str = ""
    file: str = ""
    compiles: str = ""


@dataclass(frozen=True, kw_only=True)
class Component:
    """A module directly in the model, and the failing modules in it."""

    path: str
    cls: str
    exports: bool
    failing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """What `onnx-bisect export` found. `proven`: the model exports with stand-ins for all culprits, or as it is.

    `undecided` are modules that could not be judged with stand-ins in them, and `never` those that no input reaches;
    `methods` are methods beside forward that no input runs.
    """

    schema: str = "onnx-bisect/export@1"
    source: str
    model: str
    torch: str
    settings: str
    modules: int
    exports: int
    seconds: float
    proven: bool
    culprits: tuple[Blamed, ...]
    undecided: tuple[tuple[str, str], ...]
    parts: tuple[ExportedPart, ...]
    components: tuple[Component, ...]
    never: tuple[str, ...]
    notes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        if not self.culprits and self.proven:
            return english("{model} exports to ONNX, and its numbers agree with PyTorch's.", model=self.model)
        if not self.culprits:
            return english("It is not known whether {model} exports.", model=self.model)
        places = sum(len(it.places) for it in self.culprits)
        one = len(self.culprits) == 1
        if not self.proven:
            rest = english("the parts below do.")
        elif one:
            rest = english("with a stand-in for it, all the rest does: proven.")
        else:
            rest = english("with stand-ins for them, all the rest does: proven.")
        units = plural(len(self.culprits), "module")
        if places > len(self.culprits):
            units = english("{units} at {seen}", units=units, seen=plural(places, "place"))
        if one:
            return english("{what} of {model} does not export to ONNX; {rest}", what=units, model=self.model, rest=rest)
        return english("{what} of {model} do not export to ONNX; {rest}", what=units, model=self.model, rest=rest)


def terminal(report: ExportReport, *, width: int = 100) -> list[str]:
    """The report in about `width` columns."""
    return terminal_lines(_sections(report), width)


def markdown(report: ExportReport) -> str:
    """The report as Markdown."""
    return as_markdown(_sections(report))


def _sections(report: ExportReport) -> Iterator[Section]:
    yield Heading(Quoted(report.source))
    yield translated(report.headline)
    for one in report.culprits:
        yield Heading([Quoted(_name(one.path)), " (", Quoted(one.cls), f"): {phrase(one.kind)}"], 2)
        facts = [Item(_("line"), Quoted(f"{line(one.place)}  {one.place.source}"))] if one.place else []
        facts.append(Item(_("error"), Quoted(one.message)))
        if len(one.places) > 1:
            facts.append(Item(plural(len(one.places), "place"), quoted(one.places)))
        facts.append(Item(_("instead"), phrase(one.remedy)))
        yield facts + below(_("tried"), map(_tried, one.tried))
    if report.components:
        yield Heading(_("Components"), 2)
        paths = {it.path for it in report.components}
        compiles = {it.path: it.compiles for it in report.parts if it.compiles and it.path in paths}
        columns = [_("component"), _("class"), _("exports"), *([_("compiles")] if compiles else [])]
        rows: list[tuple[str | Quoted, ...]] = [
            (Quoted(it.path), Quoted(it.cls), exports(it), compiles.get(it.path, "")) for it in report.components
        ]
        yield TextTable(head=columns, rows=[row[: len(columns)] for row in rows], limits=[200] * len(columns))
    undecided = [Item([Quoted(_name(path)), f": {translated(why)}"]) for path, why in report.undecided]
    if known := [*(Item(part(it)) for it in report.parts), *undecided]:
        yield Heading(_("Parts"), 2)
        yield known
    yield from footer(report)


def _tried(it: Tried) -> Words:
    outcome: list[str | Quoted] = [Quoted(it.setting), f": {_('exports') if it.exports else _('does not export')}"]
    return [*outcome, " (", Quoted(it.message), ")"] if it.message else outcome


def exports(it: Component) -> str:
    """`yes`, `no`, or without which modules in it."""
    if it.exports and not it.failing:
        return _("yes")
    return _("without {names}", names=listed(it.failing)) if it.exports else _("no")


def part(it: ExportedPart) -> str:
    """What is known of a part, in one line."""
    named = _name(it.path)
    exported = (
        _("{module} exports, with stand-ins for {names}", module=named, names=listed(it.without))
        if it.without
        else _("{module} exports", module=named)
    )
    checked = (
        _("numbers agree on {inputs}", inputs=plural(it.samples, "input"))
        if it.samples
        else _("numbers not compared: {reason}", reason=translated(it.unchecked))
    )
    compiled = f"; {it.compiles}" if it.compiles else ""
    return f"{exported}; {checked}{compiled}{f': {it.file}' if it.file else ''}"


def footer(report: ExportReport) -> list[str]:
    """Notes, what is not covered, and what it cost."""
    uncalled = _("Not covered, since these inputs do not call it: {names}.", names=listed(report.never))
    never = [uncalled] if report.never else []
    if report.methods:
        unrun = listed(report.methods)
        never.append(_("Not covered, methods that these inputs do not run: {names}.", names=unrun))
    counted = f"{plural(report.modules, 'module')}, {plural(report.exports, 'export')}, {report.seconds:.0f} s"
    return [*map(translated, report.notes), *never, f"{counted}, torch {report.torch}, {report.settings}"]


def line(place: CodeLine | None) -> str:
    """`model.py:112`."""
    return f"{PurePath(place.file).name}:{place.line}" if place else "?"


def _name(path: str) -> str:
    return path or _("the model")


def html(report: ExportReport) -> str:
    """One file that opens offline, without scripts."""
    compiles = {it.path: it.compiles for it in report.parts if it.compiles}
    page = environment().get_template("export.html.j2")
    return page.render(report=report, compiles=compiles, line=line, exports=exports, part=part, footer=footer(report))


@in_english
def sarif(report: ExportReport, root: str = "") -> str:
    """One run with one result for each module that does not export; files below `root` are relative to it.

    The physical location is the line that the exporter complains about, else line 1 of the file with the function.
    """
    kinds = list(dict.fromkeys(str(it.kind) for it in report.culprits))
    results = []
    for it in report.culprits:
        places = f" (at {plural(len(it.places), 'place')})" if len(it.places) > 1 else ""
        said = f"{it.path or 'the model'} ({it.cls}) does not export{places}: {it.message}. Instead: {it.remedy}"
        file, number, source = (
            (it.place.file, it.place.line, it.place.source) if it.place else (report.source.rpartition(":")[0], 1, "")
        )
        below = root.rstrip("/") + "/"
        file = file.removeprefix(below) if root else file
        results.append(
            {
                "ruleId": str(it.kind),
                "ruleIndex": kinds.index(str(it.kind)),
                "level": "error",
                "message": {"text": text(said)},
                "locations": [located(file, number, source, it.places)],
                "partialFingerprints": {"module/v1": clean(f"{it.path}:{it.kind}")},
            }
        )
    rules: list[dict[str, object]] = [
        {
            "id": kind,
            "name": kind,
            "shortDescription": {"text": f"PyTorch code that does not export to ONNX: {kind}"},
            "help": {"text": clean(next(it.remedy for it in report.culprits if it.kind == kind))},
        }
        for kind in kinds
    ]
    return log(rules, results, {"verdict": clean(report.headline), "proven": report.proven})
