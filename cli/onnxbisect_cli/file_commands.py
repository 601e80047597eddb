"""The command-line interface of commands that read models and reports and call no compiler."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.errors import OptionError
from onnxbisect.terms import InputShapes, InputValues, SampleCount, Tolerance
from onnxbisect_cli import parameters
from onnxbisect_cli.help_page import FILES, Command
from onnxbisect_cli.speech import Lang

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "inspect",
    cls=Command,
    rich_help_panel=FILES,
    short_help="Show what will probably fail; compiles nothing.",
    epilog="Example: onnx-bisect inspect model.onnx --backend qnn --fail-on error",
)
@parameters.takes_terms
def inspect_command(
    model: parameters.ModelPath,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", "-b", metavar="NAME|FILE.toml", help="The target whose limits apply; by default general ones."
        ),
    ] = None,
    option: parameters.BackendOptions = None,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    form: parameters.ListForm = parameters.ListFormat.TEXT,
    fail_on: Annotated[
        parameters.FailOn, typer.Option("--fail-on", help="Exit with status 1 if a finding is at least this severe.")
    ] = parameters.FailOn.NEVER,
    _lang: Lang = None,
) -> None:
    """Show known problems of MODEL for compilers, worst first, with its ops and components. Compiles nothing.

    With --backend the findings are for that target: the format versions and the ops that it accepts, also inside
    If, Loop, Scan and functions; the general ones where nothing is known of it. Exit status: 0; 1 if there is a finding
    as severe as --fail-on; 2 for wrong usage or an unreadable model.
    """
    import onnx_bisect
    from onnxbisect_cli import inspection

    if option and backend is None:
        raise OptionError("--option is for a backend; name it with --backend.")
    seen = onnx_bisect.inspect(
        model, backend=backend, options=option, input_shapes=input_shapes, input_values=input_values
    )
    raise typer.Exit(inspection.show(seen, form, fail_on))


@app.command(
    "extract",
    cls=Command,
    rich_help_panel=FILES,
    short_help="Cut a part out as a stand-alone model.",
    epilog="Example: onnx-bisect extract model.onnx --scope /decoder/layers.0 -o piece.onnx",
)
@parameters.takes_terms
def extract_command(
    model: parameters.ModelPath,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PIECE.onnx", help="Where to write the piece.")],
    nodes: Annotated[
        list[str] | None, typer.Option("--nodes", metavar="A,B,…", help="The nodes to cut out; repeatable.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="/decoder/layers.0",
            help="A module of the network, as node names or the exporter's metadata have it; repeatable.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--inputs", metavar="A,B,…", help="Tensors to start from; repeatable.")
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option("--outputs", metavar="A,B,…", help="Tensors to end at; repeatable.")
    ] = None,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    _lang: Lang = None,
) -> None:
    """Cut nodes, a module, or everything between two sets of tensors out of MODEL into a stand-alone ONNX file."""
    if sum([nodes is not None, scope is not None, inputs is not None or outputs is not None]) != 1:
        raise OptionError("Say what to cut out: either --nodes, or --scope, or --inputs and --outputs.")
    import onnx_bisect
    from onnx_bisect.models import load_model
    from onnxbisect.report.text import clean, plural

    loaded = load_model(model, input_shapes, input_values)
    known, tensors = {node.name for node in loaded.model.proto.graph.node}, set(loaded.model.types)
    count = onnx_bisect.extract(
        loaded,
        output,
        nodes=None if nodes is None else parameters.names(nodes, known),
        scopes=scope,
        inputs=None if inputs is None else parameters.names(inputs, tensors),
        outputs=None if outputs is None else parameters.names(outputs, tensors),
    )
    print(clean(f"{output}: {plural(count, 'node')}"), file=sys.stderr)


@app.command(
    "rules",
    cls=Command,
    rich_help_panel=FILES,
    short_help="List the rules by which ops are replaced.",
    epilog="Example: onnx-bisect rules Gather Erf",
)
@parameters.takes_terms
def rules_command(
    ops: Annotated[list[str] | None, typer.Argument(metavar="OP...", help="Only rules that replace these ops.")] = None,
    match: Annotated[
        Path | None,
        typer.Option("--match", metavar="MODEL", help="Show where in this model rules would apply; changes nothing."),
    ] = None,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    form: parameters.ListForm = parameters.ListFormat.TEXT,
    _lang: Lang = None,
) -> None:
    """List the rules that replace an op by other ops, and how exact each replacement is."""
    from onnxbisect_cli import rule_list

    if match is None:
        rule_list.show(form, ops or ())
    elif ops:
        raise OptionError("--match shows where rules apply in a model, and takes no OP beside it.")
    else:
        rule_list.match(match, input_shapes or {}, input_values or {}, form)


@app.command(
    "compare",
    cls=Command,
    rich_help_panel=FILES,
    short_help="Compare two models, or two reports.",
    epilog="Example: onnx-bisect compare before after",
)
@parameters.takes_terms
def compare_command(
    *,
    before: Annotated[
        Path, typer.Argument(metavar="A", help="An ONNX file; or a report.json, or the folder that one is in.")
    ],
    after: Annotated[Path, typer.Argument(metavar="B", help="What to compare it with, of the same kind.")],
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    samples: parameters.Samples = None,
    count: SampleCount = 4,
    tolerance: Tolerance,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Compare tensors inside the models, too, by name.")
    ] = False,
    form: parameters.ListForm = parameters.ListFormat.TEXT,
    _lang: Lang = None,
) -> None:
    """Compare two reports: which culprits are fixed, new, unchanged; exit status 1 if one is new. Or compare two
    models: the numbers that onnxruntime computes with them; exit status 1 if they differ. Exit status 2 for bad input.
    """
    from onnxbisect_cli import comparison

    request = comparison.CompareRequest(
        before=before,
        after=after,
        input_shapes=input_shapes or {},
        input_values=input_values or {},
        samples=samples,
        count=count,
        tolerance=tolerance,
        tensors=tensors,
    )
    raise typer.Exit(comparison.run(request, form))


@app.command(
    "report",
    cls=Command,
    rich_help_panel=FILES,
    short_help="Print a saved report in any form.",
    epilog="Example: onnx-bisect report out --format md",
)
def report_command(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="A report.json, or the folder it is in.")],
    form: parameters.ReportForm = parameters.Format.TEXT,
    _lang: Lang = None,
) -> None:
    """Print a saved report in any form."""
    from onnxbisect_cli import reports

    print(reports.render(reports.read(report), form), end="")


@app.command(
    "mcp",
    cls=Command,
    rich_help_panel=FILES,
    short_help="Offer inspect, diagnose and fix to an agent.",
    epilog="Example: onnx-bisect mcp",
)
def mcp_command() -> None:
    """Offer inspect, diagnose and fix to an agent: the Model Context Protocol over standard input and output."""
    from onnxbisect_cli import agent_server

    agent_server.serve()
