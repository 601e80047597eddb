"""Parameters that several commands share, and options made of the terms of a search (`onnxbisect.terms`)."""

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from onnxbisect.terms import (
    INPUTS,
    LIMITS,
    PROOF,
    SAMPLES,
    SEARCH,
    AnyPath,
    InputShapes,
    InputValues,
    OtherValues,
    Term,
    TermField,
    made,
    terms_of,
)
from onnxbisect_cli import arguments
from onnxbisect_cli.arguments import Format, ListFormat
from onnxbisect_cli.help_page import TARGET


def path(text: str) -> Path:
    """The path that was typed; an empty text is refused."""
    if not text:  # a shell expands an unset variable to it; Path would read it as the current folder
        raise typer.BadParameter("it is empty; name a file or a folder.")
    return Path(text)


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", parser=path, help="An ONNX file.")]
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
CalibrationPath = Annotated[
    Path | None,
    typer.Option(
        "--samples",
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

#: What is bound of a model's inputs is typed as pairs, an option for each.
_PAIRS = {get_args(InputShapes)[0]: arguments.shapes, get_args(InputValues)[0]: arguments.values}
Samples = Annotated[Path | None, SAMPLES]
OldCalibrationPath = Annotated[Path | None, typer.Option("--calibration", hidden=True, help="The compiler's samples.")]
CustomOpFunctions = Annotated[
    list[str] | None,
    typer.Option(
        "--op",
        rich_help_panel=PROOF,
        metavar="DOMAIN:NAME=FILE.py:FUNCTION",
        help="A function that computes a custom op from arrays; repeatable.",
    ),
]


def option_name(field: TermField) -> str:
    """What a field is called on the command line."""
    return field.term.option or "--" + field.name.replace("_", "-")


def takes_terms(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command options for its terms: one for a parameter such as `Timeout`, many for `SearchTerms`."""
    own, parameters, of = list(signature(command).parameters.values()), [], {}
    for each in own:
        of[each.name] = found = list(_fields(each))
        parameters += [_option(field) for field in found] or [each.replace(kind=Parameter.KEYWORD_ONLY)]

    @wraps(command)
    def taken(**given: Any) -> None:
        for each in own:
            values = {field.name: _read(field, given.pop(field.name)) for field in of[each.name]}
            if is_dataclass(each.annotation):
                given[each.name] = made(each.annotation, values)  # type: ignore[arg-type] # it is a class
            else:
                given |= values
        command(**given)

    taken.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # as PEP 362 has it
    taken.__annotations__ = {each.name: each.annotation for each in parameters}
    return taken


def _fields(parameter: Parameter) -> Iterator[TermField]:
    if is_dataclass(parameter.annotation):
        yield from terms_of(parameter.annotation)
    elif len(typed := get_args(parameter.annotation)) == 2 and isinstance(typed[1], Term):
        yield TermField(name=parameter.name, kind=typed[0], default=parameter.default, term=typed[1])


def _option(field: TermField) -> Parameter:
    """The option of a field, as typer takes it."""
    term, kind, default, metavar, help_ = field.term, field.kind, field.default, field.term.metavar, field.term.doc
    if _is_word(kind):
        kind, metavar = str, "|".join(word.value for word in field.kind)
    elif kind == OtherValues | None:
        kind = list[str] | None
    elif kind in _PAIRS:
        kind, help_ = list[str] | None, f"{help_.removesuffix('.')}; repeatable."
    elif kind == AnyPath | None:
        kind = Path | None
    option = typer.Option(
        option_name(field),
        rich_help_panel=term.group,
        metavar=metavar,
        min=term.least if term.above is None else term.above + 0.001,  # typer has no bound that is left out
        help=help_,
    )
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _read(field: TermField, typed: Any) -> object:
    """The value of a field from what typer has read."""
    if _is_word(field.kind):
        return arguments.choices(field.kind, [typed], option_name(field))[0]
    if field.kind == OtherValues | None:
        return arguments.alternatives(typed or ())
    if field.kind in _PAIRS:
        return _PAIRS[field.kind](typed or ())
    return typed


def _is_word(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)
