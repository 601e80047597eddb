"""`onnx-bisect precision`: the fewest nodes that must stay in high precision so that the numbers are right."""

import json
from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.terms import SEARCH, BudgetCalls, BudgetSeconds, InputShapes, InputValues, PrecisionGoal, Timeout
from onnxbisect_cli import parameters
from onnxbisect_cli.help_page import DIAGNOSE, Command
from onnxbisect_cli.speech import Lang, show_line, spoken

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "precision",
    cls=Command,
    rich_help_panel=DIAGNOSE,
    short_help="Find the fewest nodes that must stay in high precision.",
    epilog="Example: onnx-bisect precision model.onnx --backend onnxruntime --samples samples --at-least 30 --out out",
)
@parameters.takes_terms
def precision_command(
    *,
    model: parameters.ModelPath,
    backend: parameters.BackendName = "onnxruntime",
    samples: parameters.Samples = None,
    goal: PrecisionGoal,
    layer_errors: Annotated[
        Path | None,
        typer.Option(
            "--layer-errors",
            rich_help_panel=SEARCH,
            metavar="FILE",
            help="A table of errors by layer that RKNN, TPU-MLIR or pulsar2 printed: it orders the measurements.",
        ),
    ] = None,
    option: parameters.BackendOptions = None,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    budget_calls: BudgetCalls = None,
    budget_seconds: BudgetSeconds = None,
    timeout: Timeout = None,
    jobs: parameters.Jobs = 1,
    out: parameters.ReportsFolder = None,
    form: parameters.ListForm = parameters.ListFormat.TEXT,
    _lang: Lang = None,
) -> None:
    """Find a minimal set of nodes that must stay in high precision so that the numbers are right.

    Everything else is computed in low precision. Each node of the set is shown to be needed: without it, the metric was
    measured to be too bad. With --backend qnn or rknn this is proven on the emulator of that target. With --out, the
    same command continues where it was ended.

    Exit status: 0 everything can be low, 1 some nodes have to stay, 2 usage, a model, samples or a metric that cannot
    be used, or a threshold that full precision misses, 3 the budget ended before the set was known to be minimal.
    """
    import onnx_bisect
    from onnxbisect.json_form import to_json
    from onnxbisect.precision.plan import PrecisionEnding
    from onnxbisect.precision.report import markdown, terminal

    if out is not None:
        parameters.demand_folder(out)
    result = onnx_bisect.precision(
        model,
        backend=backend,
        samples=samples,
        options=option or {},
        input_shapes=input_shapes,
        input_values=input_values,
        out=out,
        budget_calls=budget_calls,
        budget_seconds=budget_seconds,
        timeout=timeout,
        jobs=jobs,
        layer_errors=layer_errors,
        progress=show_line,
        low=goal.low,
        metric=goal.metric,
        at_least=goal.at_least,
        at_most=goal.at_most,
    )
    if form is parameters.ListFormat.JSON:
        print(json.dumps(to_json(result.report), indent=2, ensure_ascii=False))
    elif form is parameters.ListFormat.MD:
        print(markdown(result.report), end="")
    else:
        with spoken():
            print("\n".join(terminal(result.report)))
    raise typer.Exit({PrecisionEnding.NOTHING: 0, PrecisionEnding.MINIMAL: 1}.get(result.report.ending, 3))
