"""The commands that diagnose what no compiler refuses: modules that do not export, and numbers that are not right."""

import json
from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.language import _
from onnxbisect.terms import (
    LIMITS,
    SEARCH,
    BudgetCalls,
    BudgetSeconds,
    InputShapes,
    InputValues,
    PrecisionGoal,
    Timeout,
)
from onnxbisect_cli import parameters
from onnxbisect_cli.help_page import DIAGNOSE, TARGET, Command
from onnxbisect_cli.speech import Lang, show_line, spoken, terminal_width

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "export",
    cls=Command,
    rich_help_panel=DIAGNOSE,
    short_help="Find every module of a PyTorch model that does not export.",
    epilog="Example: onnx-bisect export model.py:build --out out",
)
@parameters.takes_terms
def export_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION[,FUNCTION]|hf:ID",
            help="Functions that return (model, args), (model, args, kwargs) or (model, [(args, kwargs), …]).",
        ),
    ],
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            parser=parameters.path,
            help="The Python with torch that runs it; without it the active environment's.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            rich_help_panel=SEARCH,
            metavar="KEY=VALUE",
            help="exporter=dynamo|legacy, opset=N, strict=true, attention=eager, use_cache=false; repeatable.",
        ),
    ] = None,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            rich_help_panel=SEARCH,
            metavar="KEY=VALUE,…|all",
            help="Then ask about the culprits with other settings, such as opset=17..23; repeatable.",
        ),
    ] = None,
    components: Annotated[
        bool,
        typer.Option(
            "--components", rich_help_panel=SEARCH, help="Export each module directly in the model as a part, too."
        ),
    ] = False,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", "-b", rich_help_panel=TARGET, metavar="NAME|FILE.toml", help="Compile each part with it."
        ),
    ] = None,
    option: parameters.BackendOptions = None,
    timeout: Annotated[
        float, typer.Option(rich_help_panel=LIMITS, min=1, metavar="SECONDS", help="Time limit of each export.")
    ] = 300,
    memory: Annotated[
        int,
        typer.Option(rich_help_panel=LIMITS, min=64, metavar="MB", help="Memory of each export, beyond the model's."),
    ] = 8192,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            parser=parameters.path,
            help="Write the report, the parts, samples and a manifest here.",
        ),
    ] = None,
    form: parameters.ListForm = parameters.ListFormat.TEXT,
    _lang: Lang = None,
) -> None:
    """Find every module of a PyTorch model that does not export to ONNX, and prove that the rest does.

    Exit status: 0 it exports, 1 culprits, 2 usage or a source that cannot be used, 3 no answer.
    """
    import onnx_bisect
    from onnxbisect.export.report import markdown, terminal
    from onnxbisect.json_form import to_json

    if out is not None:
        parameters.demand_folder(out)
    with spoken():
        results = onnx_bisect.export_each(
            source,
            out=out,
            python=python,
            settings=parameters.key_values(setting or (), "--set"),
            tries=try_ or (),
            components=components,
            backend=backend,
            options=option or {},
            timeout=timeout,
            memory=memory,
            progress=show_line,
        )
    if form is parameters.ListFormat.JSON:
        found = [to_json(it.report) for it in results]
        print(json.dumps(found if len(found) > 1 else found[0], indent=2, ensure_ascii=False))
    elif form is parameters.ListFormat.MD:
        with spoken():
            print("\n".join(markdown(it.report) for it in results), end="")
    else:
        with spoken():
            print("\n\n".join("\n".join(terminal(it.report, width=terminal_width())) for it in results))
            if out is not None:
                print(_("Reports and parts: {folder}", folder=out))
    culprits, exports = any(it.report.culprits for it in results), all(it.exports for it in results)
    raise typer.Exit(0 if exports else 1 if culprits else 3)


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
    with spoken():  # precision.md and precision.html
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
        with spoken():
            print(markdown(result.report), end="")
    else:
        with spoken():
            print("\n".join(terminal(result.report, width=terminal_width())))
    raise typer.Exit({PrecisionEnding.NOTHING: 0, PrecisionEnding.MINIMAL: 1}.get(result.report.ending, 3))
