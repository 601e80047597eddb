"""`onnx-bisect inspect`: an overview of a model, with known problems for compilers."""

import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_bisect
from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValue
from onnxbisect.preflight import Component, Finding, Inspection, Severity, Tensor, inspection_document
from onnxbisect.report.text import clean, clip, clip_left, plural
from onnxbisect_cli.arguments import FailOn, InspectionFormat

#: Exit status if a finding is at least as severe as --fail-on.
FINDINGS = 1

#: Most names listed for each finding, and most inputs and outputs; the rest is counted.
_NAMES = 3
_TENSORS = 8


@dataclass(frozen=True, kw_only=True)
class Request:
    """The user's request."""

    model: Path
    backend: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    input_values: Mapping[str, InputValue] = field(default_factory=dict)
    form: InspectionFormat = InspectionFormat.TEXT
    fail_on: FailOn = FailOn.NEVER


def show(request: Request) -> int:
    """Print the inspection; returns the exit status. Raises ModelError, OptionError and BackendUnusableError."""
    if request.options and request.backend is None:
        raise OptionError("--option is for a backend; name it with --backend.")
    seen = onnx_bisect.inspect(
        request.model,
        backend=request.backend,
        options=request.options,
        input_shapes=request.input_shapes,
        input_values=request.input_values,
    )
    if request.form is InspectionFormat.JSON:
        print(json.dumps(inspection_document(seen), indent=2))
    else:
        width = min(shutil.get_terminal_size(fallback=(100, 24)).columns, 120)
        for line in lines(seen, width=max(width, 60)):
            print(line)
    return FINDINGS if _is_met(request.fail_on, seen.findings) else 0


def _is_met(fail_on: FailOn, findings: Sequence[Finding]) -> bool:
    """Whether a finding is at least this severe."""
    if fail_on is FailOn.NEVER:
        return False
    order = list(Severity)
    return any(order.index(finding.severity) <= order.index(Severity(fail_on.value)) for finding in findings)


def lines(seen: Inspection, *, width: int) -> Iterator[str]:
    """The inspection in about `width` columns."""
    yield clean(seen.name)
    yield f"  sha256     {seen.sha256}"
    yield f"  format     IR {seen.ir_version}, opset {', '.join(f'{clean(d)} {v}' for d, v in seen.opsets)}"
    if seen.producer:
        yield f"  made by    {clip(seen.producer, width - 13)}"
    functions = f", {plural(seen.functions, 'local function')}" if seen.functions else ""
    yield f"  size       {plural(seen.nodes, 'node')}, {plural(seen.initializers, 'initializer')}{functions}"
    yield f"  questions  {plural(seen.variants, 'variant')} among {plural(seen.units, 'unit')}"
    yield f"  known      {plural(seen.known, 'tensor')} that no input changes"
    yield from _tensors("inputs", seen.inputs, width)
    yield from _tensors("outputs", seen.outputs, width)
    for note in seen.notes:
        yield from _wrapped("  note       ", note, width)
    yield ""
    whose = f" for {clean(seen.target)}" if seen.target else ""
    yield f"Preflight{whose}: {_counted(seen.findings)}"
    for finding in seen.findings:
        yield from _finding(finding, width)
    if seen.components:
        yield ""
        yield from _components(seen.components, width)
    yield ""
    yield from _table(seen, width)


def _tensors(label: str, tensors: Sequence[Tensor], width: int) -> Iterator[str]:
    for index, tensor in enumerate(tensors[:_TENSORS]):
        head = label if index == 0 else ""
        yield f"  {head:<10} {clip_left(tensor.name, width // 2)}  {clip(tensor.type, width // 2)}"
    if len(tensors) > _TENSORS:
        yield f"  {'':<10} and {len(tensors) - _TENSORS} more"


def _table(seen: Inspection, width: int) -> Iterator[str]:
    names = [clip(row.op, width - 20) for row in seen.ops]
    column = max(map(len, [*names, "op"]))
    yield f"{'op':<{column}}  {'units':>6}  {'variants':>8}"
    for name, row in zip(names, seen.ops, strict=True):
        yield f"{name:<{column}}  {row.units:>6}  {row.variants:>8}"


def _counted(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 warning`."""
    counts = [(sum(finding.severity is severity for finding in findings), severity) for severity in Severity]
    words = {Severity.INFO: "remark"}
    return ", ".join(plural(count, words.get(it, it.value)) for count, it in counts if count) or "nothing found"


def _components(components: Sequence[Component], width: int) -> Iterator[str]:
    """Each module, and its ops that depend on input data."""
    names = [clip(component.name, width // 3) for component in components]
    column = max(map(len, [*names, "component"]))
    yield f"{'component':<{column}}  {'nodes':>6}  depends on the data of a run"
    for name, component in zip(names, components, strict=True):
        dynamic = ", ".join(f"{op} {count}" for op, count in component.dynamic)
        settled = sum(count for _, count in component.settled)
        same = f"{plural(settled, 'node')} of shapes and branches, settled here" if settled else ""
        text = "; ".join(filter(None, [dynamic, same])) or "-"
        yield f"{name:<{column}}  {component.nodes:>6}  {clip(text, max(width - column - 10, 30))}"


def _finding(finding: Finding, width: int) -> Iterator[str]:
    yield ""
    yield from _wrapped(f"  {finding.severity:<8} {finding.id}: ", finding.detail, width)
    named = finding.nodes or finding.tensors
    if named:
        shown = ", ".join(clip_left(name, 60) for name in named[:_NAMES])
        more = f" and {len(named) - _NAMES} more" if len(named) > _NAMES else ""
        yield from _wrapped(f"           {'nodes' if finding.nodes else 'tensors'}: ", shown + more, width)
    yield from _wrapped("           why: ", finding.why, width)
    yield from _wrapped("           fix: ", finding.fix, width)


def _wrapped(head: str, text: str, width: int) -> Iterable[str]:
    indent = " " * 11
    return textwrap.wrap(clean(text), width=width, initial_indent=head, subsequent_indent=indent) or [head.rstrip()]
