"""The result of an export as a document, which is also its JSON, and its forms for a terminal and in Markdown."""

from dataclasses import dataclass
from pathlib import PurePath

from onnxbisect.export.failure import CodeLine, FailureKind
from onnxbisect.finished import phrase, translated
from onnxbisect.language import _, english, in_english
from onnxbisect.report.ci import located, log, text
from onnxbisect.report.html import environment
from onnxbisect.report.text import aligned, clean, code, listed, plain, plural, table


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


def terminal(report: ExportReport) -> list[str]:
    """The lines for a terminal."""
    lines = [translated(report.headline), ""]
    for number, one in enumerate(report.culprits, 1):
        lines += [f"{number}  {_name(one.path)} ({one.cls}): {phrase(one.kind)}"]
        lines += [f"   {line(one.place)}  {one.place.source}"] if one.place else []
        lines += [f"   {one.message}"]
        if len(one.places) > 1:
            places = _("at {places}: {names}", places=plural(len(one.places), "place"), names=listed(one.places))
            lines += [f"   {places}"]
        lines += [f"   {_('instead: {remedy}', remedy=phrase(one.remedy))}"]
        for it in one.tried:
            why = f" ({it.message})" if it.message else ""
            lines += [f"   {it.setting}: {_('exports') if it.exports else _('does not export')}{why}"]
    lines += [f"?  {_name(path)}: {translated(why)}" for path, why in report.undecided]
    if report.components:
        compiles = {it.path: it.compiles for it in report.parts}
        head = (_("component"), _("class"), _("exports"), "")
        rows = ((it.path, it.cls, exports(it), compiles.get(it.path, "")) for it in report.components)
        lines += ["", *(it.rstrip() for it in aligned([head, *rows], [200] * len(head)))]
    lines += ["", *(f"{part(it)}" for it in report.parts)]
    lines += footer(report)
    return [clean(it) for it in lines]


def markdown(report: ExportReport) -> str:
    """The report as Markdown."""
    blocks = [f"# {code(report.source)}", plain(translated(report.headline))]
    if report.culprits:
        head = (_("module"), _("class"), _("line"), _("problem"), _("what to write instead"))
        culprits = (
            (
                code(_name(one.path), cell=True),
                code(one.cls, cell=True),
                code(line(one.place), cell=True),
                plain(phrase(one.kind)),
                plain(phrase(one.remedy)),
            )
            for one in report.culprits
        )
        blocks.append(table(head, culprits))
    if report.components:
        compiles = {it.path: it.compiles for it in report.parts if it.compiles}
        columns = (_("component"), _("class"), _("exports"), *((_("compiles"),) if compiles else ()))
        rows = (
            (code(it.path, cell=True), code(it.cls, cell=True), plain(exports(it)), plain(compiles.get(it.path, "")))
            for it in report.components
        )
        blocks.append(table(columns, (row[: len(columns)] for row in rows)))
    known = [*map(part, report.parts), *(f"{_name(path)}: {translated(why)}" for path, why in report.undecided)]
    blocks += ["\n".join(f"- {plain(it)}" for it in known), *map(plain, footer(report))]
    return "\n\n".join(filter(None, blocks)) + "\n"


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
    return ["", *map(translated, report.notes), *never, f"{counted}, torch {report.torch}, {report.settings}"]


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
