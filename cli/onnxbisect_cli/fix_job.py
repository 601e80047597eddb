"""`onnx-bisect fix`: repairs a model until it compiles, or reports what is left."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx_bisect
from onnx_bisect.steps.changed_files import changed_files
from onnx_bisect.steps.repair_compiler import REPAIRED
from onnxbisect.input_value import written
from onnxbisect.language import _, english
from onnxbisect.remedies import Advisor, SearchedModel
from onnxbisect.remedies.summary import lines, plan_sections
from onnxbisect.report.text import clean, terminal_lines
from onnxbisect.rewrites import installed
from onnxbisect.terms import RepairTerms, SearchTerms
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.contract import input_shapes
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import search_context
from onnxbisect_cli import bisection
from onnxbisect_cli.bisection import backend_of, bisected
from onnxbisect_cli.parameters import demand_folder
from onnxbisect_cli.progress import Shown
from onnxbisect_cli.speech import say, spoken, terminal_width

#: Exit statuses: the repaired model compiles; culprits are left; the compiler gave no answer.
COMPILES, PARTIAL, UNKNOWN = 0, 1, 3


@dataclass(frozen=True, kw_only=True)
class FixRequest:
    """The user's request. `search` names model and compiler as for `onnx-bisect run`.

    `custom_ops` are those of `onnx_bisect.fix`. `plan` shows what would be tried, and changes nothing.
    """

    search: bisection.SearchRequest
    terms: RepairTerms = field(default_factory=RepairTerms)
    custom_ops: Mapping[str, str] = field(default_factory=dict)
    out: Path = Path()
    plan: bool = False


def run(request: FixRequest) -> int:
    """Repair the model; returns the exit status. The outcome goes to standard output, progress to standard error."""
    if request.plan:
        return _plan(request)
    search, folder = request.search, request.out / "repair"
    demand_folder(folder)
    cancellation = onnx_bisect.Cancellation()
    with Shown(cancellation) as shown:
        result = onnx_bisect.fix(
            search.model,
            custom_ops=request.custom_ops,
            progress=shown,
            cancellation=cancellation,
            **search.keywords,
            **vars(request.terms),
        )
    with spoken():
        *others, last = result.write(folder)
        print("\n".join(lines(result.document, width=terminal_width())) + "\n")
        print(
            clean(
                _("{folder} holds {files} and {last}.", folder=f"{folder}{os.sep}", files=", ".join(others), last=last)
            )
        )
    if shown.interruption.number is not None:
        go_on = english("the same command goes on from here")
        rest = go_on if search.cache else english("nothing is kept")
        say(f"interrupted; {rest}.")
        return shown.interruption.exit_code
    if result.repair.left:
        model = folder / REPAIRED if result.repaired else search.model
        with spoken():
            # The command that splits the repaired model into pieces for the host and for the NPU, and compiles these.
            repaired, search = model != request.search.model, request.search
            shapes = [
                f"--input-shape={name}={','.join(map(str, it))}"
                for name, it in search.input_shapes.items()
                if not repaired or name not in search.input_values
            ]
            values = [f"--input-value={name}={written(it)}" for name, it in search.input_values.items() if not repaired]
            known = [f"--op={op}={source}" for op, source in request.custom_ops.items()]
            known += [] if request.terms.samples is None else [f"--samples={request.terms.samples}"]
            own = ["--", *search.command] if search.command else []
            words = ["split", str(model), "--report", str(folder), *search.target_words, *shapes, *values, *known, *own]
            print(_("To run what is left on the host:"), clean(shlex.join(["onnx-bisect", *words])))
    return _exit_code(result.repair.after)


def _exit_code(now: SearchedModel) -> int:
    if now.compiles:
        return COMPILES
    return PARTIAL if now.culprits else UNKNOWN


def _plan(request: FixRequest) -> int:
    """Diagnose, and print the remedies that would be tried."""
    search = request.search
    backend = backend_of(search)
    shapes = {**input_shapes(backend), **search.input_shapes}
    sample = first_sample(request.terms.sample_path, "--samples") or first_sample(search.calibration)
    loaded = LoadedModel(search.model, shapes, input_values=search.input_values, sample=sample)
    result, interruption = bisected(replace(search, terms=SearchTerms(**vars(search.terms), as_is=True)), loaded)
    assert result.job is not None  # noqa: S101 - `bisected` searches in this process
    before = SearchedModel(job=result.job)
    context = search_context(loaded, backend, search.calibration)
    files = [it.sentence for it in changed_files(context, request.terms.allow, before)]
    with spoken():
        if before.compiles:
            print(clean(_("{model} compiles as it is.", model=before.model.path.name)))
        else:
            advisor = Advisor(before, installed().rules, request.terms.allow)
            advisor.add_places(before)
            plan = plan_sections(advisor.advise(), advisor.left(before), files)
            print("\n".join(terminal_lines(plan, terminal_width())))
    return _exit_code(before) if interruption.number is None else interruption.exit_code
