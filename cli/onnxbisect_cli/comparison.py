"""`onnx-bisect compare`: two reports of one model, or two models."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect.report import words
from onnxbisect.report.compare import ComparedCulprit, ComparedSide, Comparison, compare
from onnxbisect.report.terminal import first_node, ops_of
from onnxbisect.report.text import aligned, clean, clip, code, plural, table
from onnxbisect_cli import model_comparison
from onnxbisect_cli.arguments import ListFormat
from onnxbisect_cli.reports import read, terminal_width

_MOST_ROWS = 100


def compare_reports(before: Path, after: Path, form: ListFormat) -> int:
    """Print the comparison; returns the exit status, 1 if a culprit is new."""
    found = compare(read(before), read(after))
    match form:
        case ListFormat.JSON:
            print(json.dumps(found, indent=1))
        case ListFormat.MD:
            blocks = [f"# {found['headline']}", f"- a: {code(_side(found['a']))}", f"- b: {code(_side(found['b']))}"]
            rows = [
                (
                    kind,
                    code(ops_of(culprit), cell=True),
                    _places(culprit),
                    code(clip(first_node(culprit), 120), cell=True),
                    code(words.failure(culprit), cell=True),
                )
                for kind, culprits in _lists(found)
                for culprit in culprits[:_MOST_ROWS]
            ]
            print("\n\n".join([*blocks, table(("", "ops", "places", "first node", "the compiler says"), rows)]))
        case ListFormat.TEXT:
            print("\n".join(_lines(found, terminal_width())))
    return 1 if found["new"] else 0


def _lines(found: Comparison, width: int) -> Iterator[str]:
    yield clean(found["headline"])
    yield f"  a: {clean(_side(found['a']))}"
    yield f"  b: {clean(_side(found['b']))}"
    doubtful = {kind for kind, certain in found["certain"].items() if not certain}
    for kind, culprits in _lists(found):
        if culprits:
            yield ""
            yield f"{kind} (not certain)" if kind in doubtful else kind
            rows = [(ops_of(it), _places(it), first_node(it), words.failure(it)) for it in culprits[:_MOST_ROWS]]
            limits = [34, 18, 40]
            taken = sum(min(limit, max(len(row[place]) for row in rows)) + 2 for place, limit in enumerate(limits))
            for line in aligned(rows, [*limits, max(20, width - taken - 2)], keep_end=(2,)):
                yield line.rstrip()
            if len(culprits) > _MOST_ROWS:
                yield f"  and {len(culprits) - _MOST_ROWS} more"


def _lists(found: Comparison) -> Sequence[tuple[str, Sequence[ComparedCulprit]]]:
    return (("fixed", found["fixed"]), ("new", found["new"]), ("unchanged", found["unchanged"]))


def _side(side: ComparedSide) -> str:
    verdict = {"pass": "compiles", "fail": plural(side["culprits"], "culprit")}.get(side["verdict"], "no answer")
    tool = words.tool(side["target"])
    asked = f"{words.target(side['target'])}, {tool}" if tool else words.target(side["target"])
    return f"{side['model']['name']} on {asked}: {verdict}, {side['certificate']}"


def _places(culprit: ComparedCulprit) -> str:
    """`2 places`, or `2 places, was 5` if the number changed."""
    before = culprit.get("places_before", culprit["places"])
    now = plural(culprit["places"], "place")
    return now if before == culprit["places"] else f"{now}, was {before}"


def run(request: model_comparison.CompareRequest, form: ListFormat) -> int:
    """Compare two reports or two models; OptionError for one of each."""
    reports = [(path.is_dir() or path.suffix == ".json") for path in (request.before, request.after)]
    if all(reports):
        if request.samples or request.input_shapes or request.tensors:
            raise OptionError("--samples, --input-shape and --tensors are for models, and these are reports.")
        return compare_reports(request.before, request.after, form)
    if any(reports):
        raise OptionError(
            f"One of {request.before} and {request.after} is a report, the other a model: compare two of a kind."
        )
    return model_comparison.run(request, form)
