"""`onnx-bisect compare`: two reports of one model, or two models."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from onnxbisect import proof
from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValue
from onnxbisect.json_form import to_json
from onnxbisect.language import some
from onnxbisect.model import Model, load
from onnxbisect.model.opaque import around
from onnxbisect.model.read import original
from onnxbisect.model.read import read as read_model
from onnxbisect.model.session import lowered, narrow_types
from onnxbisect.proof import Tolerance, edge_feeds, random_feeds
from onnxbisect.report import words
from onnxbisect.report.compare import ComparedCulprit, ComparedSide, Comparison, compare
from onnxbisect.report.terminal import first_node, ops_of
from onnxbisect.report.text import aligned, clean, clip, clip_left, code, plural, table
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.custom_ops import CustomOps
from onnxbisect_backends.probing.forked import forked
from onnxbisect_cli.parameters import ListFormat
from onnxbisect_cli.reports import read, terminal_width
from onnxbisect_cli.speech import show_table

#: Most culprits of each kind that are listed.
_MOST_ROWS = 100
#: Most inner tensors that are listed.
_MOST_SHOWN = 20
_ROUNDED = "float16 and bfloat16 tensors are rounded after each node; what one node adds up is accumulated in float32."
_ALLOWING = " --relative 0.01 allows for the rounding of some float16 nodes."


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """The user's request."""

    before: Path
    after: Path
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    input_values: Mapping[str, InputValue] = field(default_factory=dict)
    samples: Path | None = None
    count: int = 4
    tolerance: Tolerance = field(default_factory=Tolerance)
    tensors: bool = False


def run(request: CompareRequest, form: ListFormat) -> int:
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
    return compare_models(request, form)


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


def compare_models(request: CompareRequest, form: ListFormat) -> int:
    """Show the largest differences of each output; returns the exit status, 1 if one exceeds the tolerance."""
    model, other = _loaded(request, request.before), _loaded(request, request.after)
    if model.unbound:
        raise OptionError(f"Bind the dynamic dimensions of {some(model.unbound)} with --input-shape.")
    before, after = original(model), original(other)
    for note in dict.fromkeys(filter(None, map(lowered, (before, after)))):
        print(clean(f"onnx-bisect: {note}"), file=sys.stderr)
    inputs = around(model.proto, model.types.get).graph.input
    made_up = chain(random_feeds(inputs, request.count), edge_feeds(inputs, request.count))
    given = CustomOps(samples=request.samples).read(model, model.proto)
    filled = ({**feeds, **sample} for feeds, sample in zip(random_feeds(inputs, len(given)), given, strict=True))
    found = proof.compare(
        before,
        after,
        chain(filled, made_up),
        tolerance=request.tolerance,
        folder=request.before.parent,
        other_folder=request.after.parent,
        tensors=request.tensors,
        type_of=model.types.get,
    )
    if form is ListFormat.JSON:
        print(json.dumps({"agrees": found.agrees, **to_json(found)}, indent=2))
    else:
        apart = [it for it in found.within if not it.agrees]
        cells = []
        for it in [*found.differences, *apart[:_MOST_SHOWN]]:
            verdict = it.form or ("equal" if it.agrees else f"{it.beyond} of {it.elements} elements differ")
            differences = (f"{it.absolute:.3g}", f"{it.relative:.3g}", str(it.unlike))
            cells.append((clip_left(it.output, 60), *differences, verdict))
        show_table(("tensor", "largest difference", "relative", "NaN or infinity", "verdict"), cells)
        if found.within:
            first = f"; the first is {clip_left(apart[0].output, 80)}" if apart else ""
            print(f"Within, {len(apart)} of {plural(len(found.within), 'tensor')} of the same name differ{first}.")
        allowed = f"{request.tolerance.absolute:g} + {request.tolerance.relative:g} times the largest magnitude"
        agree = "agree" if found.agrees else "do not agree"
        print(f"The models {agree} within {allowed}, on {plural(found.samples, 'sample')}.")
        if narrow_types(before) or narrow_types(after):
            print(_ROUNDED + ("" if found.agrees else _ALLOWING))
    return 0 if found.agrees else 1


def _loaded(request: CompareRequest, path: Path) -> Model:
    """The model with what is bound; of two, one may have an input as a constant already, as a repaired model does."""
    left = {value.name for value in read_model(path)[0].graph.input} if request.input_values else set()
    gone = request.input_values.keys() - left
    return load(
        path,
        sample=first_sample(request.samples, "--samples"),
        input_shapes={name: dims for name, dims in request.input_shapes.items() if name not in gone},
        input_values={name: value for name, value in request.input_values.items() if name not in gone},
        bounded=forked,
    )
