"""The result of an export as a document, which is also its JSON, and its forms for a terminal and in Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from onnxbisect.export.failure import CodeLine, FailureKind
from onnxbisect.report.text import clean, plural


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

    `undecided` are modules that could not be judged with stand-ins in them, and `never` those that no input reaches.
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

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        if not self.culprits and self.proven:
            return f"{self.model} exports to ONNX, and its numbers agree with PyTorch's."
        if not self.culprits:
            return f"It is not known whether {self.model} exports."
        places = sum(len(it.places) for it in self.culprits)
        alike = f" at {plural(places, 'place')}" if places > len(self.culprits) else ""
        one = len(self.culprits) == 1
        verb, hosts = ("does", "a stand-in for it") if one else ("do", "stand-ins for them")
        rest = f"with {hosts}, all the rest does: proven." if self.proven else "the parts below do."
        return f"{plural(len(self.culprits), 'module')} of {self.model}{alike} {verb} not export to ONNX; {rest}"


def terminal(report: ExportReport) -> list[str]:
    """The lines for a terminal."""
    lines = [report.headline, ""]
    for number, one in enumerate(report.culprits, 1):
        lines += [f"{number}  {_name(one.path)} ({one.cls}): {one.kind}"]
        lines += [f"   {it}" for it in _about(one)]
    lines += [f"?  {_name(path)}: {why}" for path, why in report.undecided]
    lines += ["", *_table(report)] if report.components else []
    lines += ["", *(f"{part(it)}" for it in report.parts)]
    lines += footer(report)
    return [clean(it) for it in lines]


def markdown(report: ExportReport) -> str:
    """The report as Markdown."""
    lines = [f"# {_code(report.source)}", "", report.headline, ""]
    if report.culprits:
        lines += ["| module | class | line | problem | what to write instead |", "|---|---|---|---|---|"]
        for one in report.culprits:
            cells = (_code(_name(one.path)), _code(one.cls), _code(line(one.place)), one.kind, one.remedy)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    if report.components:
        compiled = any(it.compiles for it in report.parts)
        lines += [f"| component | class | exports |{' compiles |' if compiled else ''}", "|---" * (3 + compiled) + "|"]
        by_path = {it.path: it for it in report.parts}
        for it in report.components:
            own = by_path.get(it.path)
            last = f" {own.compiles if own else ''} |" if compiled else ""
            lines.append(f"| {_code(it.path)} | {_code(it.cls)} | {exports(it)} |{last}")
        lines.append("")
    lines += [f"- {part(it)}" for it in report.parts]
    lines += [f"- {_name(path)}: {why}" for path, why in report.undecided]
    return "\n".join(clean(it) for it in [*lines, *footer(report)]) + "\n"


def _about(one: Blamed) -> Iterable[str]:
    if one.place:
        yield f"{line(one.place)}  {one.place.source}"
    yield one.message
    if len(one.places) > 1:
        yield f"at {plural(len(one.places), 'place')}: {some(one.places)}"
    yield f"instead: {one.remedy}"
    for it in one.tried:
        why = f" ({it.message})" if it.message else ""
        yield f"{it.setting}: {'exports' if it.exports else 'does not export'}{why}"


def _table(report: ExportReport) -> list[str]:
    width = max(len(it.path) for it in report.components)
    kinds = max(len(it.cls) for it in report.components)
    compiles = {it.path: it.compiles for it in report.parts}
    rows = (
        f"  {it.path:{width}}  {it.cls:{kinds}}  {exports(it)}{f'  {said}' if (said := compiles.get(it.path)) else ''}"
        for it in report.components
    )
    return [f"  {'component':{width}}  {'class':{kinds}}  exports", *rows]


def exports(it: Component) -> str:
    """`yes`, `no`, or without which modules in it."""
    if it.exports and not it.failing:
        return "yes"
    return f"without {some(it.failing)}" if it.exports else "no"


def part(it: ExportedPart) -> str:
    """What is known of a part, in one line."""
    without = f", with stand-ins for {some(it.without)}" if it.without else ""
    checked = (
        f"numbers agree on {plural(it.samples, 'input')}" if it.samples else f"numbers not compared: {it.unchecked}"
    )
    compiled = f"; {it.compiles}" if it.compiles else ""
    return f"{_name(it.path)} exports{without}; {checked}{compiled}{f': {it.file}' if it.file else ''}"


def footer(report: ExportReport) -> list[str]:
    """Notes, what is not covered, and what it cost."""
    never = [f"Not covered, since these inputs do not call it: {some(report.never)}."] if report.never else []
    counted = f"{plural(report.modules, 'module')}, {plural(report.exports, 'export')}, {report.seconds:.0f} s"
    return ["", *report.notes, *never, f"{counted}, torch {report.torch}, {report.settings}"]


def line(place: CodeLine | None) -> str:
    """`model.py:112`."""
    return f"{PurePath(place.file).name}:{place.line}" if place else "?"


def _name(path: str) -> str:
    return path or "the model"


def some(names: Sequence[str], most: int = 6) -> str:
    """The names, or the first of them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _code(text: str) -> str:
    return f"`{text.replace('`', '')}`"
