"""`onnx-bisect inspect`: a model at a glance, and what compilers are known to mind about it."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx_bisect
from onnxbisect.preflight import Finding, Inspection, Tensor
from onnxbisect.report.text import clean, clip, clip_left, plural

#: Names listed for each finding, and inputs and outputs shown; the rest is counted.
_NAMES = 3
_TENSORS = 8


def show(path: Path, input_shapes: Mapping[str, Sequence[int]]) -> None:
    """Print it; raises ModelError."""
    width = min(shutil.get_terminal_size(fallback=(100, 24)).columns, 120)
    for line in lines(onnx_bisect.inspect(path, input_shapes=input_shapes), width=max(width, 60)):
        print(line)


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
    yield f"  known      {plural(seen.known, 'tensor')} whatever the inputs"
    yield from _tensors("inputs", seen.inputs, width)
    yield from _tensors("outputs", seen.outputs, width)
    for note in seen.notes:
        yield from _wrapped("  note       ", note, width)
    yield ""
    yield from _table(seen, width)
    yield ""
    yield f"Preflight: {plural(len(seen.findings), 'finding')}"
    for finding in seen.findings:
        yield from _finding(finding, width)


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
