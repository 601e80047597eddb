"""The `onnx-bisect` command: what can be typed, and what becomes of errors.

Starts fast: onnx, onnxruntime and the engine are imported by the commands that need them.
"""

import os
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.errors import OnnxBisectError, OptionError
from onnxbisect.shortage import shortage
from onnxbisect_cli import arguments, backend_commands, service_commands
from onnxbisect_cli.arguments import FailOn, Format, InspectionFormat, ListFormat
from onnxbisect_cli.command_line import EPILOG, TakesCommand, command_of
from onnxbisect_cli.parameters import (
    Absolute,
    Allow,
    BackendName,
    BackendOptions,
    BudgetCalls,
    BudgetSeconds,
    CalibrationPath,
    InputShapes,
    Jobs,
    ModelPath,
    ModelPaths,
    NoCache,
    Recheck,
    Relative,
    SampleCount,
    Samples,
    Timeout,
)

app = typer.Typer(
    name="onnx-bisect",
    help="Find every part of an ONNX model that a compiler refuses, and prove that nothing else is wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(backend_commands.app, name="backends")
app.add_typer(service_commands.app)


@app.command("run", cls=TakesCommand, epilog=EPILOG)
def run_command(
    context: typer.Context,
    models: ModelPaths,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            "-b",
            metavar="NAME|FILE.toml",
            help="The compiler to ask. Repeat it to compare several; LABEL=NAME tells two of one name apart.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help="An option of the backend, LABEL.KEY=VALUE where there are several; repeatable.",
        ),
    ] = None,
    input_shape: InputShapes = None,
    jobs: Jobs = 1,
    budget_calls: BudgetCalls = None,
    budget_seconds: BudgetSeconds = None,
    timeout: Timeout = None,
    recheck: Recheck = False,
    calibration: CalibrationPath = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Search the file as it is, without trying changes of the whole file first.")
    ] = False,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="KEY=VALUE,…|KEY|all",
            help="Then ask about the culprits with other values of an option; where all pass, about the whole model. "
            "KEY alone: the values that are worth trying; all: those of all options. Repeatable.",
        ),
    ] = None,
    confirm_causes: Annotated[
        int,
        typer.Option(
            "--confirm-causes",
            min=0,
            metavar="N",
            help="Then ask, with N more calls at most, about culprits with one thing changed: what compiles is said.",
        ),
    ] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write all reports and the culprits' files here.")
    ] = None,
    no_cache: NoCache = False,
    form: Annotated[Format, typer.Option("--format", help="What standard output gets.")] = Format.TEXT,
) -> None:
    """Diagnose MODEL. Exit status: 0 it compiles, 1 culprits, 2 usage or bad input, 3 no answer."""
    from onnxbisect_cli import parts, run_job, several, targets
    from onnxbisect_cli.bisection import Request

    command = command_of(context)
    single = command or not backend
    asked = {} if single else {target.label: target for target in targets.chosen(backend or (), option or ())}
    found = parts.parts_of(models, arguments.shapes(input_shape or ()), calibration)
    request = Request(
        model=found[0].model,
        backend=backend[0] if backend else None,
        command=command,
        options=arguments.key_values(option or (), "--option") if single else {},
        input_shapes=found[0].input_shapes,
        jobs=jobs,
        budget_calls=budget_calls,
        budget_seconds=budget_seconds,
        timeout=timeout,
        cache=not no_cache,
        files=out is not None,
        recheck=recheck,
        calibration=found[0].calibration,
        as_is=as_is,
        alternatives=arguments.alternatives(try_ or ()),
        confirm_causes=confirm_causes,
    )
    if try_ and (command or len(asked) > 1):
        raise OptionError("--try is for one --backend: a command has no options, and of several each has its own.")
    requests = {label: replace(request, backend=it.backend, options=it.options) for label, it in asked.items()}
    requests = requests or {"command" if command else "": request}
    if len(found) > 1 or len(requests) > 1:
        raise typer.Exit(several.run(found, requests, out, form))
    raise typer.Exit(run_job.run(next(iter(requests.values())), out, form))


@app.command("fix", cls=TakesCommand, epilog=EPILOG)
def fix_command(
    context: typer.Context,
    model: ModelPath,
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", metavar="NAME|FILE.toml", help="The compiler to ask.")
    ] = None,
    option: BackendOptions = None,
    allow: Allow = "rounding",
    samples: Samples = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where to make the folder repair/ with what was done.")
    ] = Path(),
    plan: Annotated[
        bool, typer.Option("--plan", help="Diagnose, show what would be tried, and change nothing.")
    ] = False,
    input_shape: InputShapes = None,
    count: SampleCount = 4,
    absolute: Absolute = 1e-6,
    relative: Relative = 1e-4,
    jobs: Jobs = 1,
    budget_calls: BudgetCalls = None,
    budget_seconds: BudgetSeconds = None,
    timeout: Timeout = None,
    recheck: Recheck = False,
    calibration: CalibrationPath = None,
    no_cache: NoCache = False,
) -> None:
    """Repair MODEL: replace what the compiler refuses, and prove it. Exit status: 0 it compiles now, 1 partly, 2 usage
    or bad input, 3 no answer.
    """
    from onnxbisect.proof import Tolerance
    from onnxbisect.rewrites import Exactness
    from onnxbisect_cli import bisection, fix_job

    search = bisection.Request(
        model=model,
        backend=backend,
        command=command_of(context),
        options=arguments.key_values(option or (), "--option"),
        input_shapes=arguments.shapes(input_shape or ()),
        jobs=jobs,
        budget_calls=budget_calls,
        budget_seconds=budget_seconds,
        timeout=timeout,
        cache=not no_cache,
        recheck=recheck,
        calibration=calibration,
    )
    request = fix_job.Request(
        search=search,
        allow=arguments.choices(Exactness, [allow], "--allow")[0],
        samples=samples,
        count=count,
        tolerance=Tolerance(absolute=absolute, relative=relative),
        out=out,
        plan=plan,
    )
    raise typer.Exit(fix_job.run(request))


@app.command("regress")
def regress_command(
    model: ModelPath,
    backend: BackendName,
    versions: Annotated[
        str,
        typer.Option(
            "--versions",
            metavar="FIRST..LAST",
            help="Two of its versions; without FIRST the oldest, without LAST the newest that the package index has.",
        ),
    ],
    option: BackendOptions = None,
    input_shape: InputShapes = None,
    jobs: Jobs = 1,
    budget_calls: BudgetCalls = None,
    budget_seconds: BudgetSeconds = None,
    timeout: Timeout = None,
    calibration: CalibrationPath = None,
    no_cache: NoCache = False,
    form: Annotated[ListFormat, typer.Option("--format", help="What standard output gets.")] = ListFormat.TEXT,
) -> None:
    """Find the first version of a compiler that refuses, or takes, each part of MODEL; installs versions in between.
    Exit status: 0 every change is found, 2 usage or bad input, 3 some are not.
    """
    from onnxbisect_cli import regression
    from onnxbisect_cli.bisection import Request

    search = Request(
        model=model,
        backend=backend,
        options=arguments.key_values(option or (), "--option"),
        input_shapes=arguments.shapes(input_shape or ()),
        jobs=jobs,
        budget_calls=budget_calls,
        budget_seconds=budget_seconds,
        timeout=timeout,
        cache=not no_cache,
        calibration=calibration,
    )
    raise typer.Exit(regression.run(search, regression.Range.of(versions), form))


@app.command("inspect")
def inspect_command(
    model: ModelPath,
    backend: Annotated[
        str | None,
        typer.Option("--backend", "-b", metavar="NAME|FILE.toml", help="Whose limits count; without, what is general."),
    ] = None,
    option: BackendOptions = None,
    input_shape: InputShapes = None,
    form: Annotated[
        InspectionFormat, typer.Option("--format", help="What standard output gets: text, or JSON.")
    ] = InspectionFormat.TEXT,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit with status 1 where a finding is as grave as this.")
    ] = FailOn.NEVER,
) -> None:
    """Show what of MODEL a compiler minds, worst first, with its ops and components. Compiles nothing.

    With --backend the findings are those of that target: its versions of the format and the ops that it takes, inside
    of If, Loop, Scan and functions too. Exit status: 0, 1 with --fail-on where there is such a finding, 2 for wrong
    usage or a model that cannot be read, 3 where nothing is known of the backend here.
    """
    from onnxbisect_cli import inspection

    request = inspection.Request(
        model=model,
        backend=backend,
        options=arguments.key_values(option or (), "--option"),
        input_shapes=arguments.shapes(input_shape or ()),
        form=form,
        fail_on=fail_on,
    )
    raise typer.Exit(inspection.show(request))


@app.command("extract")
def extract_command(
    model: ModelPath,
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
    input_shape: InputShapes = None,
) -> None:
    """Cut nodes, a module, or all between two sets of tensors, out of MODEL as a stand-alone ONNX file."""
    from onnxbisect_cli import extraction

    extraction.extract(
        model,
        output,
        nodes=nodes,
        scopes=scope,
        inputs=inputs,
        outputs=outputs,
        input_shapes=arguments.shapes(input_shape or ()),
    )


@app.command("op-table")
def op_table_command(
    backend: BackendName,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PROFILE.toml", help="Where to write the profile.")],
    option: BackendOptions = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="OP,OP,…", help="Ask about these ops only; repeatable.")
    ] = None,
    jobs: Jobs = 1,
    budget_seconds: Annotated[
        float | None, typer.Option("--budget-seconds", min=0.001, metavar="S", help="Ask nothing more after so long.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Kill one compile after so long.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither use nor keep verdicts of other runs.")] = False,
) -> None:
    """Ask a compiler about ONNX's own tests of every op; write what it takes as a profile for the whitelist backend."""
    from onnxbisect_cli import op_table

    request = op_table.Request(
        backend=backend,
        output=output,
        options=arguments.key_values(option or (), "--option"),
        only=arguments.names(only or ()),
        jobs=jobs,
        seconds=timeout,
        budget_seconds=budget_seconds,
        keep=not no_cache,
    )
    raise typer.Exit(op_table.measure(request))


@app.command("profile")
def profile_command(
    reports: Annotated[
        list[Path],
        typer.Option("--from", metavar="REPORT", help="A report.json, or the folder that one is in; repeatable."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PROFILE.toml", help="Where to write the profile.")],
    more: Annotated[list[Path] | None, typer.Argument(metavar="REPORT", help="More reports.")] = None,
) -> None:
    """Make a profile for the whitelist backend from reports of runs on a compiler. Asks no compiler.

    What passed is supported as far as it was seen, what was refused is refused, and the rest is not known.
    """
    from onnxbisect_cli import profile_record

    profile_record.write([*reports, *(more or ())], output)


@app.command("rules")
def rules_command(
    match: Annotated[
        Path | None,
        typer.Option("--match", metavar="MODEL", help="Show where in this model rules would apply; changes nothing."),
    ] = None,
    input_shape: InputShapes = None,
    form: Annotated[ListFormat, typer.Option("--format", help="What standard output gets.")] = ListFormat.TEXT,
) -> None:
    """List the rules that replace an op by others, with what each promises of the numbers."""
    from onnxbisect_cli import rule_list

    if match is None:
        rule_list.show(form)
    else:
        rule_list.match(match, arguments.shapes(input_shape or ()), form)


@app.command("compare")
def compare_command(
    before: Annotated[
        Path, typer.Argument(metavar="A", help="An ONNX file; or a report.json, or the folder that one is in.")
    ],
    after: Annotated[Path, typer.Argument(metavar="B", help="What to compare it with, of the same kind.")],
    input_shape: InputShapes = None,
    samples: Samples = None,
    count: SampleCount = 4,
    absolute: Absolute = 1e-6,
    relative: Relative = 1e-4,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Compare what nodes of both models compute within, too, by name.")
    ] = False,
    form: Annotated[ListFormat, typer.Option("--format", help="What standard output gets.")] = ListFormat.TEXT,
) -> None:
    """Compare two reports: which culprits are fixed, new, unchanged; exit status 1 where one is new. Or two models: the
    numbers that onnxruntime computes with them; exit status 1 where they differ. 2 for bad input.
    """
    from onnxbisect.proof import Tolerance
    from onnxbisect_cli import comparison, model_comparison

    request = model_comparison.Request(
        before=before,
        after=after,
        input_shapes=arguments.shapes(input_shape or ()),
        samples=samples,
        count=count,
        tolerance=Tolerance(absolute=absolute, relative=relative),
        tensors=tensors,
    )
    raise typer.Exit(comparison.run(request, form))


@app.command("split", cls=TakesCommand, epilog=EPILOG)
def split_command(
    context: typer.Context,
    model: ModelPath,
    report: Annotated[
        Path, typer.Option("--report", "-r", metavar="REPORT.json", help="That of 'run --out DIR', or its folder.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Write DIR/split; the report's folder if not given."),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            "--host-share",
            min=0,
            max=1,
            metavar="SHARE",
            help="How much of the NPU's work may move to the host so that fewer pieces remain; 0.1 if not given.",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", "-b", metavar="NAME|FILE.toml", help="The compiler of the report: compiles the NPU's pieces."
        ),
    ] = None,
    option: BackendOptions = None,
    input_shape: InputShapes = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Kill one compile after so long.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", metavar="PATH", help="Samples of the model's inputs, as for run.")
    ] = None,
) -> None:
    """Write MODEL as pieces for the NPU and for the host, with a script that runs them, and prove that they compute
    the same. Exit status: 0 proven, 1 not proven or a piece was refused, 2 bad input.
    """
    from onnxbisect_cli import split_model

    request = split_model.Request(
        model=model,
        report=report,
        out=out,
        input_shapes=arguments.shapes(input_shape or ()),
        share=share,
        backend=backend,
        command=command_of(context),
        options=arguments.key_values(option or (), "--option"),
        seconds=timeout,
        calibration=calibration,
    )
    raise typer.Exit(split_model.run(request))


@app.command("report")
def report_command(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="A report.json, or the folder it is in.")],
    form: Annotated[Format, typer.Option("--format", help="What to write to standard output.")] = Format.TEXT,
) -> None:
    """Show a report again, in any form."""
    from onnxbisect_cli import reports

    print(reports.render(reports.read(report), form), end="")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"onnx-bisect {version('onnx-bisect')}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """The entry point. No traceback for a user's mistake, and for ours only where `ONNXBISECT_DEBUG` is set."""
    # onnxruntime's official builds report to Microsoft unless told otherwise; whose model it is, is nobody's business.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # started with it closed, as some services do: the files are still wanted
            setattr(sys, stream, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    try:
        app()
    except OnnxBisectError as error:
        _end(str(error), error.exit_code)
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough; the interpreter must not flush into the closed pipe again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        _end("this machine has not enough memory for that.", 3)
    except OSError as error:
        if (short := shortage(error)) is not None:
            _end(str(short), short.exit_code)
        where = f" '{error.filename}'" if error.filename else ""
        _end(f"{error.strerror or error}{where}.", 2)
    except Exception as error:
        if os.environ.get("ONNXBISECT_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}"
        _end(f"this is a bug in onnx-bisect ({what}); please report it with the output under ONNXBISECT_DEBUG=1.", 3)


def _end(sentence: str, code: int) -> None:
    from onnxbisect.report.text import clean

    print(f"onnx-bisect: {clean(sentence)}", file=sys.stderr)
    sys.exit(code)
