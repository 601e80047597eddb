"""`onnx-bisect compare` of two models: whether they compute the same."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

import onnx

from onnxbisect.errors import OptionError
from onnxbisect.model import Model, load
from onnxbisect.model.compute import Sample
from onnxbisect.model.wording import some
from onnxbisect.proof import Comparison, Difference, Tolerance, compare, edge_feeds, finite, random_feeds
from onnxbisect.report.text import clip_left, plural
from onnxbisect_backends.calibration import read_calibration
from onnxbisect_backends.probing.forked import forked
from onnxbisect_cli import table
from onnxbisect_cli.arguments import ListFormat

#: Most of the user's samples that are used.
_MOST_SAMPLES = 100
#: Most inner tensors that are listed.
_MOST_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Request:
    """The user's request."""

    before: Path
    after: Path
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    samples: Path | None = None
    count: int = 4
    tolerance: Tolerance = field(default_factory=Tolerance)
    tensors: bool = False


def run(request: Request, form: ListFormat) -> int:
    """Show the largest differences of each output; returns the exit status, 1 if one exceeds the tolerance."""
    model = load(request.before, input_shapes=request.input_shapes, bounded=forked)
    load(request.after, input_shapes=request.input_shapes, bounded=forked)
    if model.unbound:
        raise OptionError(f"Bind the dynamic dimensions of {some(model.unbound)} with --input-shape.")
    found = compare(
        onnx.load(request.before, load_external_data=False),
        onnx.load(request.after, load_external_data=False),
        _feeds(request, model),
        tolerance=request.tolerance,
        folder=request.before.parent,
        other_folder=request.after.parent,
        tensors=request.tensors,
    )
    if form is ListFormat.JSON:
        print(json.dumps({"agrees": found.agrees, **asdict(found, dict_factory=finite)}, indent=2))
    else:
        _show(found, request.tolerance)
    return 0 if found.agrees else 1


def _feeds(request: Request, model: Model) -> Iterator[Sample]:
    inputs = model.proto.graph.input
    made_up = chain(random_feeds(inputs, request.count), edge_feeds(inputs, request.count))
    if request.samples is None:
        return made_up
    return chain(read_calibration(request.samples, inputs, _MOST_SAMPLES, option="--samples").samples, made_up)


def _show(found: Comparison, tolerance: Tolerance) -> None:
    apart = [it for it in found.within if not it.agrees]
    cells = [
        (clip_left(it.output, 60), f"{it.absolute:.3g}", f"{it.relative:.3g}", str(it.unlike), _verdict(it))
        for it in [*found.differences, *apart[:_MOST_SHOWN]]
    ]
    table.show(("tensor", "largest difference", "relative", "NaN or infinity", "verdict"), cells)
    if found.within:
        first = f"; the first is {clip_left(apart[0].output, 80)}" if apart else ""
        print(f"Within, {len(apart)} of {plural(len(found.within), 'tensor')} of the same name differ{first}.")
    allowed = f"{tolerance.absolute:g} + {tolerance.relative:g} times the largest magnitude"
    agree = "agree" if found.agrees else "do not agree"
    print(f"The models {agree} within {allowed}, on {plural(found.samples, 'sample')}.")


def _verdict(found: Difference) -> str:
    if found.form:
        return found.form
    return "equal" if found.agrees else f"{found.beyond} of {found.elements} elements differ"
