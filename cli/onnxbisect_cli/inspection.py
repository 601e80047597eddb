"""`onnx-bisect inspect`: an overview of a model, with known problems for compilers."""

from collections.abc import Iterator

from onnxbisect.finished import phrase, translated
from onnxbisect.language import _
from onnxbisect.preflight import Inspection, Severity, inspection_document
from onnxbisect.report.text import Heading, Item, Quoted, Section, TextTable, below, clip_left, listed, plural
from onnxbisect.report.words import named
from onnxbisect_cli.parameters import FailOn, ListFormat
from onnxbisect_cli.speech import show_document

#: Exit status if a finding is at least as severe as --fail-on.
FINDINGS = 1

#: Most names listed for each finding, and most inputs and outputs; the rest is counted.
_NAMES = 3
_TENSORS = 8


def show(seen: Inspection, form: ListFormat, fail_on: FailOn) -> int:
    """Print the inspection; returns the exit status."""
    show_document(form, lambda: inspection_document(seen), lambda width: _sections(seen, width), indent=2)
    if fail_on is FailOn.NEVER:
        return 0
    order = list(Severity)
    fails = order[: order.index(Severity(fail_on.value)) + 1]
    return FINDINGS if any(finding.severity in fails for finding in seen.findings) else 0


def _sections(seen: Inspection, width: int) -> Iterator[Section]:
    yield Heading(seen.name)
    variants, units = plural(seen.variants, "variant"), plural(seen.units, "unit")
    size = [plural(seen.nodes, "node"), plural(seen.initializers, "initializer")]
    size += [plural(seen.functions, "local function")] if seen.functions else []
    facts = [
        Item("sha256", Quoted(seen.sha256)),
        Item(_("format"), f"IR {seen.ir_version}, opset {', '.join(f'{d} {v}' for d, v in seen.opsets)}"),
        *([Item(_("made by"), Quoted(seen.producer))] if seen.producer else []),
        Item(_("size"), _(", ").join(size)),
        Item(_("questions"), _("{variants} among {units}", variants=variants, units=units)),
        Item(_("known"), _("{tensors} that no input changes", tensors=plural(seen.known, "tensor"))),
    ]
    for label, tensors in ((_("inputs"), seen.inputs), (_("outputs"), seen.outputs)):
        facts += below(label, [Quoted(f"{clip_left(it.name, width // 2)}  {it.type}") for it in tensors[:_TENSORS]])
        if len(tensors) > _TENSORS:
            facts.append(Item("", _("and {more} more", more=len(tensors) - _TENSORS)))
    yield facts + [Item(_("note"), translated(note)) for note in seen.notes]

    counted = {
        Severity.ERROR: lambda count: plural(count, "error"),
        Severity.WARNING: lambda count: plural(count, "warning"),
        Severity.INFO: lambda count: plural(count, "remark"),
    }
    counts = [(sum(finding.severity is severity for finding in seen.findings), severity) for severity in Severity]
    findings = _(", ").join(counted[it](count) for count, it in counts if count) or _("nothing found")
    if seen.target:
        yield Heading(_("Preflight for {target}: {findings}", target=seen.target, findings=findings), 2)
    else:
        yield Heading(_("Preflight: {findings}", findings=findings), 2)
    for finding in seen.findings:
        yield Heading(f"{named(finding.severity)}: {finding.id}", 3)
        about = [phrase(finding.detail)]
        if places := [clip_left(name, 60) for name in finding.nodes or finding.tensors]:
            about.append(f"{_('nodes') if finding.nodes else _('tensors')}: {listed(places, _NAMES)}")
        about += [f"{_('why')}: {translated(finding.why)}", f"{_('fix')}: {translated(finding.fix)}"]
        yield [Item(sentence) for sentence in about]

    if seen.components:  # each module, and its ops that depend on input data
        rows: list[list[str | Quoted]] = []
        for module in seen.components:
            dynamic = [", ".join(f"{op} {count}" for op, count in module.dynamic)] if module.dynamic else []
            settled = plural(sum(count for _op, count in module.settled), "node")
            same = [_("{nodes} of shapes and branches, settled here", nodes=settled)] if module.settled else []
            rows.append([Quoted(module.name), str(module.nodes), "; ".join([*dynamic, *same]) or "-"])
        head = [_("component"), _("nodes"), _("depends on the data of a run")]
        yield TextTable(head=head, rows=rows, limits=[width // 3, 6, 2 * width // 3 - 10], right=(1,), indent=0)
    ops: list[list[str | Quoted]] = [[Quoted(row.op), str(row.units), str(row.variants)] for row in seen.ops]
    head = [_("op"), _("units"), _("variants")]
    yield TextTable(head=head, rows=ops, limits=[width - 20, 8, 8], right=(1, 2), indent=0)
