"""`onnx-bisect compare`: two reports of one model, or two models."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from onnxbisect import proof
from onnxbisect.errors import OptionError
from onnxbisect.finished import joined, phrase
from onnxbisect.input_value import InputValue
from onnxbisect.json_form import to_json
from onnxbisect.language import _, marked, some
from onnxbisect.model import Model, load
from onnxbisect.model.opaque import around
from onnxbisect.model.read import original
from onnxbisect.model.read import read as read_model
from onnxbisect.model.session import narrow_types
from onnxbisect.model.versions import versions_changed
from onnxbisect.proof import Tolerance, edge_feeds, random_feeds, runnable_feeds
from onnxbisect.report.compare import compare, compare_sections
from onnxbisect.report.text import clip_left, plural
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.custom_ops import CustomOps
from onnxbisect_backends.probing.forked import forked
from onnxbisect_cli.parameters import ListFormat
from onnxbisect_cli.reports import read
from onnxbisect_cli.speech import say, show_document, show_table, spoken

#: Most inner tensors that are listed.
_MOST_SHOWN = 20
_ROUNDED = marked(
    "float16 and bfloat16 tensors are rounded after each node; what one node adds up is accumulated in float32."
)
_ALLOWING = marked("--relative 0.01 allows for the rounding of some float16 nodes.")


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
    show_document(form, lambda: found, lambda width: compare_sections(found, width))
    return 1 if found["new"] else 0


def compare_models(request: CompareRequest, form: ListFormat) -> int:
    """Show the largest differences of each output; returns the exit status, 1 if one exceeds the tolerance."""
    model, other = _loaded(request, request.before), _loaded(request, request.after)
    if model.unbound:
        raise OptionError(f"Bind the dynamic dimensions of {some(model.unbound)} with --input-shape.")
    before, after = original(model), original(other)
    for note in dict.fromkeys(filter(None, map(versions_changed, (before, after)))):
        say(note)
    inputs = around(model.proto, model.types.get).graph.input
    given = CustomOps(samples=request.samples).read(model, model.proto)
    filled = ({**feeds, **sample} for feeds, sample in zip(random_feeds(inputs, len(given)), given, strict=True))
    generated = [*random_feeds(inputs, request.count), *edge_feeds(inputs, request.count)]
    whole = around(before, model.types.get)
    found = proof.compare(
        before,
        after,
        chain(filled, runnable_feeds(model, whole, generated, needed=not given)),
        tolerance=request.tolerance,
        folder=request.before.parent,
        other_folder=request.after.parent,
        tensors=request.tensors,
        type_of=model.types.get,
    )
    if form is ListFormat.JSON:
        print(json.dumps({"agrees": found.agrees, **to_json(found)}, indent=2))
    else:
        with spoken():
            _show(found, request.tolerance, narrow=bool(narrow_types(before) | narrow_types(after)))
    return 0 if found.agrees else 1


def _show(found: proof.OutputComparison, tolerance: Tolerance, *, narrow: bool) -> None:
    """Print the differences. `narrow`: a model computes in float16 or bfloat16."""
    apart = [it for it in found.within if not it.agrees]
    cells = []
    for it in [*found.differences, *apart[:_MOST_SHOWN]]:
        differ = _("{beyond} of {elements} elements differ", beyond=it.beyond, elements=it.elements)
        verdict = phrase(it.form) or (_("equal") if it.agrees else differ)
        differences = (f"{it.absolute:.3g}", f"{it.relative:.3g}", str(it.unlike))
        cells.append((clip_left(it.output, 60), *differences, verdict))
    show_table((_("tensor"), _("largest difference"), _("relative"), _("NaN or infinity"), _("verdict")), cells)
    tensors = plural(len(found.within), "tensor")
    if apart:
        print(
            _(
                "Within, {count} of {tensors} of the same name differ; the first is {first}.",
                count=len(apart),
                tensors=tensors,
                first=clip_left(apart[0].output, 80),
            )
        )
    elif found.within:
        print(_("Within, 0 of {tensors} of the same name differ.", tensors=tensors))
    limits = {"absolute": f"{tolerance.absolute:g}", "relative": f"{tolerance.relative:g}"}
    samples = plural(found.samples, "sample")
    print(
        _(
            "The models agree within {absolute} + {relative} times the largest magnitude, on {samples}.",
            **limits,
            samples=samples,
        )
        if found.agrees
        else _(
            "The models do not agree within {absolute} + {relative} times the largest magnitude, on {samples}.",
            **limits,
            samples=samples,
        )
    )
    if narrow:
        print(joined([_(_ROUNDED), *([] if found.agrees else [_(_ALLOWING)])]))


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
