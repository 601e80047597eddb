"""Parameters that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from onnxbisect_cli.arguments import Format, ListFormat
from onnxbisect_cli.help_page import INPUTS, LIMITS, PROOF, SEARCH, TARGET


def path(text: str) -> Path:
    """The path that was typed; an empty text is refused."""
    if not text:  # a shell expands an unset variable to it; Path would read it as the current folder
        raise typer.BadParameter("it is empty; name a file or a folder.")
    return Path(text)


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", parser=path, help="An ONNX file.")]
InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        rich_help_panel=INPUTS,
        metavar="NAME=1,3,224,224",
        help="An input's shape, in place of the file's; repeatable.",
    ),
]
InputValues = Annotated[
    list[str] | None,
    typer.Option(
        "--input-value",
        rich_help_panel=INPUTS,
        metavar="NAME=16000",
        help="A value that an input always has: it becomes a constant; repeatable.",
    ),
]

ModelPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="MODEL",
        parser=path,
        help="An ONNX file. Several, a folder of them or a manifest (FILE.toml) are the parts of one network: a table "
        "shows all of them.",
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", rich_help_panel=LIMITS, min=1, help="Compilers that run at a time.")]
BudgetCalls = Annotated[
    int | None,
    typer.Option("--budget-calls", rich_help_panel=LIMITS, min=1, metavar="N", help="End after N compiler calls."),
]
BudgetSeconds = Annotated[
    float | None,
    typer.Option("--budget-seconds", rich_help_panel=LIMITS, min=0.001, metavar="S", help="End after S seconds."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", rich_help_panel=LIMITS, min=0.001, metavar="SECONDS", help="Kill a compile that takes longer."
    ),
]
Recheck = Annotated[
    bool,
    typer.Option(
        "--recheck",
        rich_help_panel=SEARCH,
        help="For a non-deterministic compiler: repeat deciding probes until their answers agree.",
    ),
]
AsIs = Annotated[
    bool,
    typer.Option(
        "--as-is",
        rich_help_panel=SEARCH,
        help="Search the file as it is, without trying changes of the whole file first.",
    ),
]
Try = Annotated[
    list[str] | None,
    typer.Option(
        "--try",
        rich_help_panel=SEARCH,
        metavar="KEY=VALUE,…|KEY|all",
        help="Then ask about the culprits with other values of an option; where all pass, about the whole model. "
        "KEY alone: the values that are worth trying; all: those of all options. Repeatable.",
    ),
]
ConfirmCauses = Annotated[
    int,
    typer.Option(
        "--confirm-causes",
        rich_help_panel=SEARCH,
        min=0,
        metavar="N",
        help="Spend up to N more calls on culprits with one property changed, to confirm why they fail.",
    ),
]
CalibrationPath = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        rich_help_panel=INPUTS,
        metavar="PATH",
        help="A folder, zip or tar of samples of the model's inputs, .npz keyed by input names: for compilers that "
        "quantise or compare numbers.",
    ),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", rich_help_panel=SEARCH, help="Use no verdicts of earlier runs, and keep none.")
]
BackendName = Annotated[
    str, typer.Option("--backend", "-b", rich_help_panel=TARGET, metavar="NAME|FILE.toml", help="The compiler to ask.")
]
ReportsFolder = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", parser=path, help="Write all reports and the culprits' files here."),
]
ReportForm = Annotated[Format, typer.Option("--format", help="The form on standard output.")]
ListForm = Annotated[ListFormat, typer.Option("--format", help="The form on standard output.")]
BackendOptions = Annotated[
    list[str] | None,
    typer.Option("--option", rich_help_panel=TARGET, metavar="KEY=VALUE", help="An option of the backend; repeatable."),
]

# The limits of a repair, and the samples on which it is proven.
Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        rich_help_panel=PROOF,
        metavar="PATH",
        help="A folder, zip or tar of samples of the inputs, .npz keyed by their names.",
    ),
]
CustomOpFunctions = Annotated[
    list[str] | None,
    typer.Option(
        "--op",
        rich_help_panel=PROOF,
        metavar="DOMAIN:NAME=FILE.py:FUNCTION",
        help="A function that computes a custom op from arrays; repeatable.",
    ),
]
SampleCount = Annotated[
    int, typer.Option("--count", rich_help_panel=PROOF, min=1, help="Random inputs, and as many with edge values.")
]
Absolute = Annotated[
    float, typer.Option("--absolute", rich_help_panel=PROOF, min=0, help="Difference allowed to every number.")
]
Relative = Annotated[
    float,
    typer.Option(
        "--relative",
        rich_help_panel=PROOF,
        min=0,
        help="Further difference allowed, as a share of the output's largest magnitude.",
    ),
]
Allow = Annotated[
    str,
    typer.Option(
        "--allow",
        metavar="exact|rounding|approximate|domain",
        help="The least exact replacements that may be used ('onnx-bisect rules' shows what each promises).",
    ),
]
