"""The fields of the page for a new job: reads their values, makes the request, and assigns errors to fields."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from pydantic import ValidationError
from sqlalchemy.orm import Session

from onnxbisect.errors import OptionError
from onnxbisect.input_value import InputValue, read_value, written
from onnxbisect.language import english
from onnxbisect.precision.wanted import Metric
from onnxbisect.report.text import clip
from onnxbisect.terms import PrecisionGoal, SearchTerms, TermField, requested, terms_of
from onnxbisect_api.access import Caller
from onnxbisect_api.errors import mistakes
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.submission.job_request import RequestedTerms, TargetRequest
from onnxbisect_api.uploads.model_form import PartWriter
from onnxbisect_api.uploads.receiving import DOCUMENT_BYTES
from onnxbisect_api.views import listing
from onnxbisect_db import models
from onnxbisect_db.tables import StoredModel

#: Errors as sentences, by field; the key "" has errors that concern no single field.
Complaints = Mapping[str, str]

_OPTION = "option"
_FILES = ("model", "data")
#: The field with files of samples, and the one that has them on the page afterwards, as `SHA256:name`.
SAMPLES, SAMPLE = "calibration", "sample"
_NAMED = re.compile(r"[Tt]he option '([^']+)'")


def option_field(ticked: str, option: str) -> str:
    """The name of an option's field, unique because names of backends have no colon."""
    return f"{_OPTION}:{ticked}:{option}"


def second(backend: str) -> str:
    """What the form calls a backend that is asked once more; names of backends have no number sign."""
    return f"{backend}#2"


#: The terms that the page shows under *More*.
MORE = tuple(field for field in terms_of(SearchTerms) if field.term.label)


#: The terms of precision that the page shows.
PRECISE = tuple(field for field in terms_of(PrecisionGoal) if field.term.label)


def field_name(field: TermField) -> str:
    """What the form calls a term."""
    return "_".join(field.path)


def precise_name(field: TermField) -> str:
    """What the form calls a term of precision."""
    return f"{_PRECISION}_{field.name}"


_PRECISION = "precision"


def _backend(ticked: str) -> str:
    return ticked.partition("#")[0]


class FormValues:
    """The values of a form's text fields; as a `model_form.Texts`, it also receives those of a form with files."""

    description = "the texts of the page"

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        self._size = 0
        for name, value in pairs:
            self.add(name, value)

    def one(self, name: str) -> str:
        """The field's text, its last value if repeated; empty if missing."""
        return self._values.get(name, [""])[-1].strip()

    def all(self, name: str) -> list[str]:
        """The values of a repeated field."""
        return self._values.get(name, [])

    def add(self, name: str, value: str) -> None:
        """Add a value of a field."""
        self._values.setdefault(name, []).append(value)

    def count(self, size: int) -> None:
        """Count bytes against the limit of all text fields; a 413 beyond it."""
        self._size += size
        if self._size > DOCUMENT_BYTES:
            raise Problem(
                413, english("All that is typed may have {document_bytes} bytes.", document_bytes=f"{DOCUMENT_BYTES:,}")
            )

    def replace(self, name: str, values: Iterable[str]) -> None:
        """Give a field other values."""
        self._values[name] = list(values)

    def begin(self, field: str, file_name: str) -> PartWriter | None:
        """A writer for any field without a file. An unused file field counts as such: its file name is empty."""
        return None if field in _FILES and file_name else _Text(self, field)

    def demand_all(self) -> None:
        """Do nothing, because no field is required."""


class _Text:
    """A text field that is being received, as a `model_form.PartWriter`."""

    def __init__(self, typed: FormValues, field: str) -> None:
        self._typed = typed
        self._field = field
        self._text = bytearray()
        typed.count(len(field))

    def write(self, chunk: bytes) -> None:
        self._typed.count(len(chunk))
        self._text += chunk

    def seal(self) -> None:
        if self._field not in (*_FILES, SAMPLES) or self._text:
            self._typed.add(self._field, self._text.decode("utf-8", "replace"))


def samples_of(typed: FormValues) -> dict[str, str]:
    """The SHA-256 of samples that came with the form, or an earlier one, by their names."""
    pairs = (value.partition(":") for value in typed.all(SAMPLE))
    return {name: sha256 for sha256, _, name in pairs}


def filled(terms: RequestedTerms, model: str, job: str) -> FormValues:
    """The fields with the terms of an earlier job; of several targets with one backend, the first two."""
    shapes = (f"{name}={','.join(map(str, shape))}" for name, shape in terms.input_shapes.items())
    values = (f"{name}={written(value)}" for name, value in terms.input_values.items())
    repair, precision = terms.repair, terms.precision
    goal: dict[str, Any] = {} if precision is None else vars(precision.spec)
    if goal.get("at_most") is not None:
        goal = {**goal, "at_least": goal["at_most"]}
    typed = FormValues(
        [
            ("again", job),
            ("model", model),
            ("input_shapes", "\n".join(shapes)),
            ("input_values", "\n".join(values)),
            ("labels", "\n".join(f"{name}:{value}" for name, value in terms.labels.items())),
            *((field_name(it), _text(getattr(terms.search, it.name))) for it in MORE),
            ("repair", "" if repair is None else repair.spec.allow),
            ("alternatives", "" if repair is None or repair.alternatives is None else "all"),
            *((precise_name(it), _text(goal.get(it.name))) for it in PRECISE),
        ]
    )
    for target in terms.targets:
        asked = typed.all("backend")
        ticked = second(target.backend) if target.backend in asked else target.backend
        if ticked not in asked:
            typed.add("backend", ticked)
            for name, value in target.options.items():
                typed.add(option_field(ticked, name), value)
    return typed


def _text(value: float | str | None) -> str:
    if isinstance(value, str):
        return value
    return "yes" if value is True else repr(value).removesuffix(".0") if value else ""


class FieldsError(Exception):
    """Some fields are invalid; `complaints` has the errors."""

    def __init__(self, complaints: Complaints) -> None:
        super().__init__(complaints)
        self.complaints = complaints


def terms(
    typed: FormValues,
    options: Mapping[str, Mapping[str, str]],
    check: Callable[[TargetRequest], object],
    samples: Mapping[str, str],
) -> RequestedTerms:
    """Make a request from the fields; FieldsError has the errors of all fields.

    `options` maps backends to the defaults of their options; `check` raises OptionError for an invalid target.
    `samples` are those of an earlier job, unless the form has others.
    """
    complaints: dict[str, str] = {}
    asked = dict.fromkeys(typed.all("backend"))
    # the second target of a backend is not seen, but sent, when the first is no longer ticked
    ticked = [each for each in asked if _backend(each) in asked]
    document = {
        "targets": [_target(typed, each, options.get(_backend(each), {})) for each in ticked],
        "input_shapes": _read(typed, "input_shapes", _shapes, complaints),
        "input_values": _read(typed, "input_values", _values, complaints),
        **requested(SearchTerms, {it.name: typed.one(field_name(it)) or it.default for it in MORE}),
        "labels": _read(typed, "labels", listing.read_labels, complaints),
        **_repair(typed, complaints),
        **_precision(typed, samples_of(typed) or samples, complaints),
    }
    if not document["targets"]:
        complaints["backend"] = english("Choose at least one compiler.")
    try:
        read = RequestedTerms.model_validate(document)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            complaints.setdefault(_field(each["loc"], ticked), f"{mistakes.sentence(each)}.")
        raise FieldsError(complaints) from None
    for name, target in zip(ticked, read.targets, strict=True):
        try:
            check(target)
        except OptionError as error:
            field = _blamed(name, target, str(error)) if target.backend in options else "backend"
            complaints.setdefault(field, str(error))
    if complaints:
        raise FieldsError(complaints)
    return read


def _repair(typed: FormValues, complaints: dict[str, str]) -> dict[str, dict[str, str]]:
    others = {"alternatives": value} if (value := typed.one("alternatives")) else {}
    if typed.one("repair"):
        return {"repair": {"allow": typed.one("repair"), **others}}
    if others:
        complaints["alternatives"] = english("Other options are tried by a repair: choose what it may do.")
    return {}


def _precision(typed: FormValues, samples: Mapping[str, str], complaints: dict[str, str]) -> dict[str, Any]:
    """The samples, and what is wanted of low precision; one field has the threshold, whatever the metric is."""
    given = {it.name: value for it in PRECISE if (value := typed.one(precise_name(it)))}
    if "low" not in given:
        return {"calibration": samples}
    metric = given.get("metric", Metric.SQNR)
    if metric in list(Metric) and Metric(metric).smaller_is_better and "at_least" in given:
        given["at_most"] = given.pop("at_least")
    if metric == Metric.MAXABS and "at_most" not in given:
        complaints["precision_at_least"] = english("Say what maxabs may be at most.")
    elif not samples:
        complaints[SAMPLES] = english("The nodes that must stay precise are found on samples of the inputs.")
    else:
        return {"calibration": samples, _PRECISION: given}
    return {"calibration": samples}


def _target(typed: FormValues, ticked: str, defaults: Mapping[str, str]) -> dict[str, Any]:
    """What is ticked as a target of the request, without options that have their default."""
    given = {name: typed.one(option_field(ticked, name)) for name in defaults}
    options = {name: value for name, value in given.items() if value not in ("", defaults[name])}
    return {"backend": _backend(ticked), "options": options}


def _read(
    typed: FormValues, field: str, reader: Callable[[Iterable[str]], Mapping[str, Any]], complaints: dict[str, str]
) -> Mapping[str, Any]:
    """Parse a field with one item per line by `reader`; an error is added to `complaints`."""
    try:
        return reader(line.strip() for line in typed.one(field).splitlines() if line.strip())
    except (OptionError, Problem) as error:
        complaints[field] = error.detail if isinstance(error, Problem) else str(error)
        return {}


def _shapes(lines: Iterable[str]) -> dict[str, list[int]]:
    """Parse lines such as `x=1,3,224,224`; OptionError for any other line."""
    found: dict[str, list[int]] = {}
    for line in lines:
        name, _, dimensions = line.rpartition("=")
        if not name or not re.fullmatch(r"\d{1,19}(\s*[,x]\s*\d{1,19})*", dimensions.strip()):
            raise OptionError(
                english(
                    "A shape is written as NAME=1,3,224,224 on its own line, unlike {line}.", line=repr(clip(line, 60))
                )
            )
        if name.strip() in found:
            raise OptionError(english("The input {name} has two shapes.", name=_shown(name.strip())))
        found[name.strip()] = [int(each) for each in re.split("[,x]", dimensions)]
    return found


def _values(lines: Iterable[str]) -> dict[str, InputValue]:
    """Parse lines such as `sr=16000`; OptionError for any other line."""
    found: dict[str, InputValue] = {}
    for line in lines:
        name, _, value = line.rpartition("=")
        try:
            read = read_value(value)
        except ValueError:
            name = ""
        if not name.strip():
            raise OptionError(
                english("A value is written as NAME=16000 on its own line, unlike {line}.", line=_shown(line))
            )
        if name.strip() in found:
            raise OptionError(english("The input {name} has two values.", name=_shown(name.strip())))
        found[name.strip()] = read
    return found


def _shown(text: str) -> str:
    return repr(clip(text, 60))


def _field(location: tuple[int | str, ...], ticked: Sequence[str]) -> str:
    """The name of the field from which this part of the request was made; empty if there is none."""
    match location:
        case ("targets", int(number), "options", str(option), *_):
            return option_field(ticked[number], option)
        case ("targets", *_):
            return "backend"
        case ("budget", str(name), *_):
            return f"budget_{name}"
        case ("precision",):  # as a whole: no server has another metric
            return "precision_metric"
        case ("precision", "at_most", *_):
            return "precision_at_least"
        case ("precision", str(name), *_):
            return f"precision_{name}"
        case (str(name), *_):
            return name
    return ""


def _blamed(ticked: str, target: TargetRequest, sentence: str) -> str:
    """The field of the target's option that an error's sentence names; the target's own field if it names none."""
    named = _NAMED.search(sentence)
    known = named is not None and named[1] in target.options
    return option_field(ticked, named[1]) if known and named is not None else f"backend:{ticked}"


#: The number of latest models to choose from.
_RECENT = 30


class Offered(TypedDict):
    """The values of `_model_field.html.j2`: models to choose from, and the SHA-256 of the chosen one."""

    recent: list[StoredModel]
    chosen: str


def offered(session: Session, caller: Caller, typed: FormValues) -> Offered:
    """The tenant's latest models, and the model that the form names."""
    recent = list(models.list_page(session, caller.tenant, limit=_RECENT).rows)
    chosen = models.get(session, typed.one("model"), caller.tenant)
    if chosen is not None and chosen.sha256 not in {model.sha256 for model in recent}:
        recent.insert(0, chosen)
    return Offered(recent=recent, chosen="" if chosen is None else chosen.sha256)
