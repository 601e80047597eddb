"""Parameters that several commands share, options made of the terms of a search (`onnxbisect.terms`), and how their
values are read: OptionError names the value and the expected form.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import typer

from onnxbisect import terms
from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValue, read_value
from onnxbisect_cli.help_page import TARGET

#: The largest dimension; ONNX stores dimensions as int64.
_LARGEST = 2**63 - 1

Word = TypeVar("Word", bound=StrEnum)


class Format(StrEnum):
    """The forms of a report."""

    TEXT = "text"
    JSON = "json"
    MD = "md"
    HTML = "html"
    JUNIT = "junit"
    SARIF = "sarif"
    GITLAB = "gitlab"


class ListFormat(StrEnum):
    """The forms of a list."""

    TEXT = "text"
    JSON = "json"
    MD = "md"


class FailOn(StrEnum):
    """The severity from which a finding gives exit status 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


def key_values(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Parse `KEY=VALUE` pairs; a key that is given twice is an OptionError."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionError(f"{option} {pair!r} is not KEY=VALUE.")
        if key in found:
            raise OptionError(f"{option} {key} is given twice, as {found[key]!r} and {value!r}.")
        found[key] = value
    return found


def alternatives(given: Iterable[str]) -> Literal["all"] | dict[str, list[str]] | None:
    """Parse `--try`: `all`, or lists of values by key; None if nothing is given.

    `KEY=VALUE,VALUE` gives a list of values, `KEY` alone an empty list.
    """
    words = list(given)
    if not words:
        return None
    if "all" in words:
        if len(words) > 1:
            raise OptionError("--try all tries every option: leave the other --try out.")
        return "all"
    found: dict[str, list[str]] = {}
    for word in words:
        key, equals, values = word.partition("=")
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if not key or (equals and not listed):
            raise OptionError(f"--try {word!r} is neither KEY=VALUE,VALUE nor KEY nor all.")
        if key in found:
            raise OptionError(f"--try {key} is given twice; separate its values by commas.")
        found[key] = listed
    return found


def shapes(pairs: Iterable[str]) -> dict[str, list[int]]:
    """Parse `NAME=1,3,224,224` pairs; `NAME=` is a scalar. The last `=` separates, because names may contain `=`."""
    found: dict[str, list[int]] = {}
    for pair in pairs:
        name, equals, dims = pair.rpartition("=")
        if not equals or not name:
            raise OptionError(f"--input-shape {pair!r} is not NAME=1,3,224,224.")
        if name in found:
            raise OptionError(f"--input-shape {name} is given twice.")
        try:
            found[name] = [int(dim) for dim in dims.replace("x", ",").split(",")] if dims else []
        except ValueError:
            raise OptionError(
                f"--input-shape {pair!r} is not NAME=1,3,224,224: {dims!r} is no list of numbers."
            ) from None
        if any(dim < 0 for dim in found[name]):
            raise OptionError(f"--input-shape {pair!r}: a dimension cannot be negative.")
        if any(dim > _LARGEST for dim in found[name]):
            raise OptionError(f"--input-shape {pair!r}: a dimension is larger than ONNX can say.")
    return found


def values(pairs: Iterable[str]) -> dict[str, InputValue]:
    """Parse `NAME=16000`, `NAME=0.5,1` or `NAME=true`; the last `=` separates, because names may contain `=`."""
    found: dict[str, InputValue] = {}
    for pair in pairs:
        name, equals, value = pair.rpartition("=")
        if not equals or not name:
            raise OptionError(f"--input-value {pair!r} is not NAME=16000.")
        if name in found:
            raise OptionError(f"--input-value {name} is given twice.")
        try:
            found[name] = read_value(value)
        except ValueError:
            raise OptionError(
                f"--input-value {pair!r} is not NAME=16000: {value!r} is no number, true or false, or a list of them."
            ) from None
    return found


def names(groups: Iterable[str], known: Container[str] = ()) -> list[str]:
    """Split the comma-separated names of a repeated option; a value that is itself a `known` name stays whole."""
    return [name for group in groups for name in ([group] if group in known else group.split(",")) if name]


def choices(kind: type[Word], given: Iterable[str], option: str) -> list[Word]:
    """Parse values as members of the enumeration `kind`; OptionError for any other word."""
    known = {word.value: word for word in kind}
    for word in given:
        if word not in known:
            raise OptionError(f"{option} cannot be {word!r}: it is {', '.join(known)}.")
    return [known[word] for word in given]


def demand_overview(form: Format) -> None:
    """OptionError if overviews do not exist in this form; callers check this before any compile."""
    if form not in (Format.TEXT, Format.JSON, Format.MD, Format.HTML):
        raise OptionError(
            f"--format {form} is for one model and one target; of several, text, json, md and html show an overview, "
            f"and --out DIR writes every form for each of them."
        )


def demand_folder(out: Path) -> None:
    """Create the folder; OptionError if it cannot be written to. Callers do this before any compile."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--out {out} cannot be a folder: {error.strerror or error}.") from error
    from tempfile import TemporaryFile  # which `--help` does not need

    try:
        TemporaryFile(dir=out).close()
    except OSError as error:
        raise OptionError(f"--out {out} cannot be written to: {error.strerror or error}.") from error


#: Labels are names of folders and precede the first dot in `--option LABEL.KEY=VALUE`.
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_LABELLED = re.compile(rf"({_LABEL.pattern})=(.+)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One target: its label, its backend (a name or a TOML file), and its options."""

    label: str
    backend: str
    options: dict[str, str]


def chosen(backends: Sequence[str], options: Sequence[str]) -> list[Chosen]:
    """The targets in order. A backend is `NAME`, `FILE.toml` or `LABEL=` one of these.

    With one target, `KEY=VALUE` is its option; with several, `LABEL.KEY=VALUE` names the target. Raises OptionError.
    """
    named = [_named(text) for text in backends]
    labels = [label for label, _ in named]
    for number, label in enumerate(labels):
        if label.casefold() in map(str.casefold, labels[:number]):
            raise OptionError(
                f"Two targets are called '{label}'; give them names of their own, as in "
                f"--backend {label}-1={named[number][1]}."
            )
    if len(named) == 1:
        return [Chosen(label=labels[0], backend=named[0][1], options=key_values(options, "--option"))]
    own: dict[str, list[str]] = {label: [] for label in labels}
    for pair in options:
        label, dot, rest = pair.partition(".")
        if not dot or label not in own:
            raise OptionError(
                f"--option {pair!r} does not say which target it is for; with several it begins with a target's name, "
                f"as in --option {labels[0]}.KEY=VALUE (here: {', '.join(labels)})."
            )
        own[label].append(rest)
    return [
        Chosen(label=label, backend=backend, options=key_values(own[label], f"--option {label}."))
        for label, backend in named
    ]


def _named(text: str) -> tuple[str, str]:
    if match := _LABELLED.fullmatch(text):
        return match[1], match[2]
    from onnxbisect.report.text import slug  # rich, which it imports, is slow to load for a page of help

    name = Path(text).stem if text.endswith(".toml") else text
    return (name if _LABEL.fullmatch(name) else slug(name)), text


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
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", rich_help_panel=terms.LIMITS, min=1, help="Compilers that run at a time.")
]
CalibrationPath = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        "--calibration",
        rich_help_panel=terms.INPUTS,
        metavar="PATH",
        help="A folder, zip or tar of samples of the model's inputs, .npz keyed by input names: for compilers that "
        "quantise or compare numbers.",
    ),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", rich_help_panel=terms.SEARCH, help="Use no verdicts of earlier runs, and keep none."),
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
    dict[str, str] | None, terms.Term(doc="An option of the backend.", group=TARGET, metavar="KEY=VALUE")
]

#: Mappings are typed as pairs, an option for each.
_PAIRS: Mapping[Any, Callable[[Iterable[str]], Mapping[str, Any]]] = {
    get_args(terms.InputShapes)[0]: shapes,
    get_args(terms.InputValues)[0]: values,
    get_args(BackendOptions)[0]: lambda pairs: key_values(pairs, "--option"),
}
Samples = Annotated[Path | None, terms.SAMPLES]
OldCalibrationPath = Annotated[Path | None, typer.Option("--calibration", hidden=True, help="The compiler's samples.")]
CustomOpFunctions = Annotated[
    list[str] | None,
    typer.Option(
        "--op",
        rich_help_panel=terms.PROOF,
        metavar="DOMAIN:NAME=FILE.py:FUNCTION",
        help="A function that computes a custom op from arrays; repeatable.",
    ),
]


def option_name(field: terms.TermField) -> str:
    """What a field is called on the command line."""
    return field.term.option or "--" + field.name.replace("_", "-")


def takes_terms(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command options for its terms: one for a parameter such as `Timeout`, many for `SearchTerms`."""
    own, parameters, of = list(signature(command).parameters.values()), [], {}
    for each in own:
        found = []
        if is_dataclass(each.annotation):
            found = list(terms.terms_of(each.annotation))
        elif len(typed := get_args(each.annotation)) == 2 and isinstance(typed[1], terms.Term):
            found.append(terms.TermField(name=each.name, kind=typed[0], default=each.default, term=typed[1]))
        of[each.name] = found
        parameters += [_option(field) for field in found] or [each.replace(kind=Parameter.KEYWORD_ONLY)]

    @wraps(command)
    def taken(**given: Any) -> None:
        for each in own:
            values = {field.name: _read(field, given.pop(field.name)) for field in of[each.name]}
            if is_dataclass(each.annotation):
                given[each.name] = terms.made(each.annotation, values)  # type: ignore[arg-type] # it is a class
            else:
                given |= values
        command(**given)

    taken.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # as PEP 362 has it
    taken.__annotations__ = {each.name: each.annotation for each in parameters}
    return taken


def _option(field: terms.TermField) -> Parameter:
    """The option of a field, as typer takes it."""
    term, kind, default, metavar, help_ = field.term, field.kind, field.default, field.term.metavar, field.term.doc
    if _is_word(kind):
        kind, metavar = str, "|".join(word.value for word in field.kind)
    elif kind == terms.OtherValues | None:
        kind = list[str] | None
    elif kind in _PAIRS:
        kind, help_ = list[str] | None, f"{help_.removesuffix('.')}; repeatable."
    elif kind == terms.AnyPath | None:
        kind = Path | None
    option = typer.Option(
        option_name(field),
        rich_help_panel=term.group,
        metavar=metavar,
        min=term.least if term.above is None else term.above + 0.001,  # typer has no bound that is left out
        help=help_,
    )
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _read(field: terms.TermField, typed: Any) -> object:
    """The value of a field from what typer has read."""
    if _is_word(field.kind):
        return choices(field.kind, [typed], option_name(field))[0]
    if field.kind == terms.OtherValues | None:
        return alternatives(typed or ())
    if field.kind in _PAIRS:
        return _PAIRS[field.kind](typed or ())
    return typed


def _is_word(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)
