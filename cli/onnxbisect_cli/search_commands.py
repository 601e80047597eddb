"""The command-line interface of commands that search a model for culprits and repair it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from onnxbisect.errors import OptionError
from onnxbisect.terms import Alternatives, CallTerms, InputShapes, InputValues, RepairTerms, SearchTerms, Timeout
from onnxbisect_cli import parameters
from onnxbisect_cli.exit_status import OPTION, ExitStatus
from onnxbisect_cli.help_page import DIAGNOSE, EPILOG, TARGET, Command, TakesCommand, command_of
from onnxbisect_cli.speech import Lang

app = typer.Typer(rich_markup_mode=None)


@app.command(
    "run",
    cls=TakesCommand,
    rich_help_panel=DIAGNOSE,
    short_help="Find every part that a compiler refuses.",
    epilog="Example: onnx-bisect run model.onnx --backend qnn --out out" + EPILOG,
)
@parameters.takes_terms
def run_command(
    *,
    context: typer.Context,
    models: parameters.ModelPaths,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            "-b",
            rich_help_panel=TARGET,
            metavar="NAME|FILE.toml",
            help="The compiler to ask. Repeat it to compare several; LABEL=NAME tells two of one name apart.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            rich_help_panel=TARGET,
            metavar="KEY=VALUE",
            help="An option of the backend, LABEL.KEY=VALUE where there are several; repeatable.",
        ),
    ] = None,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    jobs: parameters.Jobs = 1,
    terms: SearchTerms,
    calibration: parameters.CalibrationPath = None,
    alternatives: Alternatives = None,
    out: parameters.ReportsFolder = None,
    no_cache: parameters.NoCache = False,
    form: parameters.ReportForm = parameters.Format.TEXT,
    exit_status: Annotated[
        ExitStatus,
        typer.Option(
            OPTION, help="`git-bisect`: 0 it compiles, 1 it does not, 125 no answer, as `git bisect run` reads them."
        ),
    ] = ExitStatus.USUAL,
    _lang: Lang = None,
) -> None:
    """Diagnose MODEL. Exit status: 0 it compiles, 1 culprits, 2 usage or bad input, 3 no answer."""
    from onnxbisect_cli import parts, run_job
    from onnxbisect_cli.bisection import SearchRequest

    command = command_of(context)
    single = command or not backend
    asked = {} if single else {target.label: target for target in parameters.chosen(backend or (), option or ())}
    found = parts.parts_of(models, input_shapes or {}, input_values or {}, calibration)
    request = SearchRequest(
        model=found[0].model,
        backend=backend[0] if backend else None,
        command=command,
        options=parameters.key_values(option or (), "--option") if single else {},
        input_shapes=found[0].input_shapes,
        input_values=found[0].input_values,
        jobs=jobs,
        terms=terms,
        cache=not no_cache,
        files=out is not None,
        calibration=found[0].calibration,
        alternatives=alternatives,
    )
    if alternatives and (command or len(asked) > 1):
        raise OptionError("--try is for one --backend: a command has no options, and of several each has its own.")
    requests = {label: replace(request, backend=it.backend, options=it.options) for label, it in asked.items()}
    requests = requests or {"command" if command else "": request}
    if len(found) > 1 or len(requests) > 1:
        if exit_status is ExitStatus.GIT_BISECT:
            raise OptionError(f"{OPTION} git-bisect is for one model and one target: it asks one question.")
        raise typer.Exit(run_job.run_several(found, requests, out, form))
    raise typer.Exit(run_job.run(next(iter(requests.values())), out, form, exit_status))


@app.command(
    "fix",
    cls=TakesCommand,
    rich_help_panel=DIAGNOSE,
    short_help="Replace what is refused, and prove the result.",
    epilog="Example: onnx-bisect fix model.onnx --backend qnn" + EPILOG,
)
@parameters.takes_terms
def fix_command(
    *,
    context: typer.Context,
    model: parameters.ModelPath,
    backend: Annotated[
        str | None,
        typer.Option("--backend", "-b", rich_help_panel=TARGET, metavar="NAME|FILE.toml", help="The compiler to ask."),
    ] = None,
    option: parameters.BackendOptions = None,
    terms: RepairTerms,
    op: parameters.CustomOpFunctions = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            parser=parameters.path,
            help="Where to make the folder repair/ with what was done.",
        ),
    ] = Path(),
    plan: Annotated[
        bool, typer.Option("--plan", help="Diagnose, show what would be tried, and change nothing.")
    ] = False,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    jobs: parameters.Jobs = 1,
    call_terms: CallTerms,
    calibration: parameters.OldCalibrationPath = None,
    no_cache: parameters.NoCache = False,
    _lang: Lang = None,
) -> None:
    """Repair MODEL: replace the ops that the compiler refuses, and prove the replacements. Exit status: 0 it compiles
    now, 1 partly, 2 usage or bad input, 3 no answer.
    """
    from onnxbisect_backends.custom_ops import functions_of
    from onnxbisect_cli import bisection, fix_job

    if terms.alternatives and command_of(context):
        raise OptionError("--try is for a --backend: a command has no options.")
    search = bisection.SearchRequest(
        model=model,
        backend=backend,
        command=command_of(context),
        options=option or {},
        input_shapes=input_shapes or {},
        input_values=input_values or {},
        jobs=jobs,
        terms=call_terms,
        cache=not no_cache,
        calibration=calibration or terms.sample_path,
    )
    request = fix_job.FixRequest(
        search=search,
        terms=terms,
        custom_ops=functions_of(op or (), terms.sample_path).functions,
        out=out,
        plan=plan,
    )
    raise typer.Exit(fix_job.run(request))


@app.command(
    "regress",
    cls=Command,
    rich_help_panel=DIAGNOSE,
    short_help="Find the compiler version that first refused each part.",
    epilog="Example: onnx-bisect regress model.onnx --backend openvino --versions 2024.0.0..",
)
@parameters.takes_terms
def regress_command(
    *,
    model: parameters.ModelPath,
    backend: parameters.BackendName,
    versions: Annotated[
        str,
        typer.Option(
            "--versions",
            metavar="FIRST..LAST",
            help="Two of its versions; without FIRST the oldest, without LAST the newest that the package index has.",
        ),
    ],
    option: parameters.BackendOptions = None,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    jobs: parameters.Jobs = 1,
    terms: CallTerms,
    calibration: parameters.CalibrationPath = None,
    no_cache: parameters.NoCache = False,
    form: parameters.ListForm = parameters.ListFormat.TEXT,
    _lang: Lang = None,
) -> None:
    """Find the first version of a compiler that refuses, or accepts, each part of MODEL; installs versions in between.
    Exit status: 0 every change is found, 2 usage or bad input, 3 some are not.
    """
    from onnxbisect_cli import bisection
    from onnxbisect_cli.bisection import SearchRequest

    search = SearchRequest(
        model=model,
        backend=backend,
        options=option or {},
        input_shapes=input_shapes or {},
        input_values=input_values or {},
        jobs=jobs,
        terms=terms,
        cache=not no_cache,
        calibration=calibration,
    )
    raise typer.Exit(bisection.regress(search, bisection.VersionRange.of(versions), form))


@app.command(
    "share",
    cls=Command,
    rich_help_panel=DIAGNOSE,
    short_help="Write a file that fails alike, without your weights.",
    epilog="Example: onnx-bisect share out/culprits/01-Erf/model.onnx -o shared.onnx --backend qnn",
)
@parameters.takes_terms
def share_command(
    culprit: Annotated[Path, typer.Argument(metavar="CULPRIT.onnx", help="The file of a culprit, as reports have it.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="SHARED.onnx", help="Where to write the file.")],
    backend: parameters.BackendName,
    option: parameters.BackendOptions = None,
    timeout: Timeout = None,
    _lang: Lang = None,
) -> None:
    """Write a file that fails like CULPRIT, with random weights, neutral names and the smallest shapes.

    The compiler compiles the result of every step, and fails on the file that is written. Ops, attributes, small
    integers and scalars stay. Exit status: 0; 1 if only CULPRIT's own weights or names fail; 2 usage or bad input.
    """
    from onnx_bisect import share
    from onnxbisect.report.text import clean, clip, plural

    shared = share(culprit, output, backend=backend, options=option, timeout=timeout)
    if shared is None:
        print("It fails only with its own weights or names: no other file shows the same failure.")
        raise typer.Exit(1)
    size, before = (path.stat().st_size for path in (output, culprit))
    print(clean(f"{output}: {plural(shared.nodes, 'node')}, {size} bytes ({before} before)"))
    print(clean(f"  fails alike, in {plural(shared.compiler_calls, 'compiler call')}: {clip(shared.message, 200)}"))


@app.command(
    "split",
    cls=TakesCommand,
    rich_help_panel=DIAGNOSE,
    short_help="Write pieces for the NPU and for the host.",
    epilog="Example: onnx-bisect split model.onnx --report out" + EPILOG,
)
@parameters.takes_terms
def split_command(
    context: typer.Context,
    model: parameters.ModelPath,
    report: Annotated[
        Path,
        typer.Option(
            "--report", "-r", metavar="REPORT.json", help="The report.json of 'run --out DIR', or its folder."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            parser=parameters.path,
            help="Write DIR/split; the report's folder if not given.",
        ),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            "--host-share",
            min=0,
            max=1,
            metavar="SHARE",
            help="How much of the NPU's work may move to the host so that fewer pieces remain.",
        ),
    ] = 0.1,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            "-b",
            rich_help_panel=TARGET,
            metavar="NAME|FILE.toml",
            help="The compiler of the report: compiles the NPU's pieces.",
        ),
    ] = None,
    option: parameters.BackendOptions = None,
    input_shapes: InputShapes = None,
    input_values: InputValues = None,
    timeout: Timeout = None,
    calibration: parameters.OldCalibrationPath = None,
    samples: parameters.Samples = None,
    op: parameters.CustomOpFunctions = None,
    _lang: Lang = None,
) -> None:
    """Write MODEL as pieces for the NPU and for the host, with a script that runs them, and prove that they compute
    the same. Exit status: 0 proven, 1 not proven or a piece was refused, 2 bad input.
    """
    from onnxbisect_backends.custom_ops import functions_of
    from onnxbisect_cli import bisection, split_model

    known = functions_of(op or (), samples)
    status = split_model.run(
        model,
        report,
        out,
        bisection.backend_named(command_of(context), backend, option or {}),
        input_shapes=input_shapes,
        input_values=input_values,
        host_share=share,
        samples=known.samples,
        custom_ops=known.functions,
        timeout=timeout,
        calibration=calibration or samples,
    )
    raise typer.Exit(status)
