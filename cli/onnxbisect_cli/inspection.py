"""`onnx-bisect inspect`: an overview of a model, with known problems for compilers."""

import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, chop_cells, set_cell_size

from onnxbisect.finished import phrase, translated
from onnxbisect.language import _
from onnxbisect.preflight import Inspection, ModelModule, Severity, Tensor, inspection_document
from onnxbisect.report.text import aligned, clean, clip, clip_left, plural
from onnxbisect.report.words import named
from onnxbisect_cli.parameters import FailOn, InspectionFormat
from onnxbisect_cli.speech import spoken

#: Exit status if a finding is at least as severe as --fail-on.
FINDINGS = 1

#: Most names listed for each finding, and most inputs and outputs; the rest is counted.
_NAMES = 3
_TENSORS = 8


def show(seen: Inspection, form: InspectionFormat, fail_on: FailOn) -> int:
    """Print the inspection; returns the exit status."""
    if form is InspectionFormat.JSON:
        print(json.dumps(inspection_document(seen), indent=2))
    else:
        width = min(shutil.get_terminal_size(fallback=(100, 24)).columns, 120)
        with spoken():
            for line in lines(seen, width=max(width, 60)):
                print(line)
    if fail_on is FailOn.NEVER:
        return 0
    order = list(Severity)
    fails = order[: order.index(Severity(fail_on.value)) + 1]
    return FINDINGS if any(finding.severity in fails for finding in seen.findings) else 0


def lines(seen: Inspection, *, width: int) -> Iterator[str]:
    """The inspection in about `width` columns."""
    yield clean(seen.name)
    yield _fact("sha256", seen.sha256)
    yield _fact(_("format"), f"IR {seen.ir_version}, opset {', '.join(f'{clean(d)} {v}' for d, v in seen.opsets)}")
    if seen.producer:
        yield _fact(_("made by"), clip(seen.producer, width - 13))
    size = [plural(seen.nodes, "node"), plural(seen.initializers, "initializer")]
    size += [plural(seen.functions, "local function")] if seen.functions else []
    yield _fact(_("size"), _(", ").join(size))
    variants, units = plural(seen.variants, "variant"), plural(seen.units, "unit")
    yield _fact(_("questions"), _("{variants} among {units}", variants=variants, units=units))
    yield _fact(_("known"), _("{tensors} that no input changes", tensors=plural(seen.known, "tensor")))
    yield from _tensors(_("inputs"), seen.inputs, width)
    yield from _tensors(_("outputs"), seen.outputs, width)
    for note in seen.notes:
        yield from _wrapped(_fact(_("note"), ""), translated(note), width)
    yield ""
    counts = [(sum(finding.severity is severity for finding in seen.findings), severity) for severity in Severity]
    counted = {
        Severity.ERROR: lambda count: plural(count, "error"),
        Severity.WARNING: lambda count: plural(count, "warning"),
        Severity.INFO: lambda count: plural(count, "remark"),
    }
    findings = _(", ").join(counted[it](count) for count, it in counts if count) or _("nothing found")
    if seen.target:
        yield _("Preflight for {target}: {findings}", target=clean(seen.target), findings=findings)
    else:
        yield _("Preflight: {findings}", findings=findings)
    for finding in seen.findings:
        yield ""
        severity = set_cell_size(named(finding.severity), 8)
        yield from _wrapped(f"  {severity} {finding.id}: ", phrase(finding.detail), width)
        places = finding.nodes or finding.tensors
        if places:
            shown = ", ".join(clip_left(name, 60) for name in places[:_NAMES])
            more = f" {_('and {more} more', more=len(places) - _NAMES)}" if len(places) > _NAMES else ""
            yield from _wrapped(f"           {_('nodes') if finding.nodes else _('tensors')}: ", shown + more, width)
        yield from _wrapped(f"           {_('why')}: ", translated(finding.why), width)
        yield from _wrapped(f"           {_('fix')}: ", translated(finding.fix), width)
    if seen.components:
        yield ""
        yield from _components(seen.components, width)
    yield ""
    rows = [(row.op, str(row.units), str(row.variants)) for row in seen.ops]
    yield from aligned([(_("op"), _("units"), _("variants")), *rows], [width - 20, 8, 8], indent=0, right=(1, 2))


def _fact(label: str, text: str) -> str:
    return f"  {set_cell_size(label, 10)} {text}"


def _tensors(label: str, tensors: Sequence[Tensor], width: int) -> Iterator[str]:
    for index, tensor in enumerate(tensors[:_TENSORS]):
        head = label if index == 0 else ""
        yield _fact(head, f"{clip_left(tensor.name, width // 2)}  {clip(tensor.type, width // 2)}")
    if len(tensors) > _TENSORS:
        yield _fact("", _("and {more} more", more=len(tensors) - _TENSORS))


def _components(components: Sequence[ModelModule], width: int) -> list[str]:
    """Each module, and its ops that depend on input data."""
    rows = [(_("component"), _("nodes"), _("depends on the data of a run"))]
    for component in components:
        dynamic = ", ".join(f"{op} {count}" for op, count in component.dynamic)
        settled = sum(count for _, count in component.settled)
        same = _("{nodes} of shapes and branches, settled here", nodes=plural(settled, "node")) if settled else ""
        rows.append((component.name, str(component.nodes), "; ".join(filter(None, [dynamic, same])) or "-"))
    names = max(cell_len(clip(name, width // 3)) for name, *_rest in rows)
    limits = [width // 3, 6, max(width - names - 10, 30)]
    return [line.rstrip() for line in aligned(rows, limits, indent=0, right=(1,))]


def _wrapped(head: str, text: str, width: int) -> Iterable[str]:
    indent = " " * 11
    if cell_len(text) > len(text):  # its characters are wide, and it has few spaces to break at
        return [
            head + part if number == 0 else indent + part
            for number, part in enumerate(chop_cells(clean(text), width - 26))
        ]
    return textwrap.wrap(clean(text), width=width, initial_indent=head, subsequent_indent=indent) or [head.rstrip()]
