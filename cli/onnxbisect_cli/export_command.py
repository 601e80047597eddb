"""`onnx-bisect export`: which modules of a PyTorch model do not export to ONNX, why, and at which line."""

import json
from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.language import _
from onnxbisect.terms import LIMITS, SEARCH
from onnxbisect_cli import parameters
from onnxbisect_cli.help_page import DIAGNOSE, TARGET, Command
from onnxbisect_cli.speech import Lang, show_line, spoken

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
            print("\n\n".join("\n".join(terminal(it.report)) for it in results))
            if out is not None:
                print(_("Reports and parts: {folder}", folder=out))
    culprits, exports = any(it.report.culprits for it in results), all(it.exports for it in results)
    raise typer.Exit(0 if exports else 1 if culprits else 3)
