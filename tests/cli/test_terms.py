"""Each field of the terms of a search and a repair is wherever users give them, though it is written down once."""

from contextlib import suppress
from dataclasses import replace
from inspect import signature
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError
from typer.main import get_command

import onnx_bisect
from onnxbisect.exactness import Exactness
from onnxbisect.precision.wanted import Low
from onnxbisect.terms import (
    CallKeywords,
    CallTerms,
    InputShapes,
    InputValues,
    PrecisionGoal,
    PrecisionKeywords,
    PrecisionTerms,
    RepairKeywords,
    RepairTerms,
    SearchKeywords,
    SearchTerms,
    TermField,
    made,
    requested,
    terms_of,
    values_of,
)
from onnxbisect_api.submission.job_request import PrecisionRequest, RepairRequest, RequestedTerms
from onnxbisect_cli.main import app
from onnxbisect_cli.parameters import option_name
from onnxbisect_service.search_spec import RepairSpec, SearchSpec

SEARCH, REPAIR = list(terms_of(SearchTerms)), list(terms_of(RepairTerms))
PRECISION = list(terms_of(PrecisionTerms))
#: Files are paths here and SHA-256 there.
SENT = [each for each in REPAIR if each.name != "samples"]


def other(field: TermField) -> Any:
    """A value that is not the default."""
    for value in (True, 7, Exactness.EXACT, "all"):
        with suppress(ValidationError):
            return TypeAdapter(field.kind).validate_python(value, strict=True)
    raise AssertionError(f"no value of {field.name}")


def named(field: TermField) -> str:
    return field.name


@pytest.mark.parametrize(
    ("keywords", "kinds"),
    [
        (CallKeywords, [CallTerms]),
        (SearchKeywords, [SearchTerms]),
        (RepairKeywords, [CallTerms, RepairTerms]),
        (PrecisionKeywords, [PrecisionGoal]),
    ],
)
def test_keywords_are_the_fields(keywords: type, kinds: list[type]) -> None:
    fields = {name for kind in kinds for name in get_type_hints(kind)}
    assert get_type_hints(keywords).keys() == fields
    optional = {"samples", "tolerance", "low"}  # None stands for the default; samples are paths, low is any text
    for kind in kinds:
        for name, type_ in get_type_hints(kind).items():
            assert name in optional or get_type_hints(keywords)[name] == type_


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (onnx_bisect.diagnose, SearchTerms),
        (onnx_bisect.regress, CallTerms),
        (onnx_bisect.fix, CallTerms),
        (onnx_bisect.fix, RepairTerms),
        (onnx_bisect.precision, PrecisionGoal),
    ],
)
def test_functions_show_them_and_refuse_others(function: Any, kind: type) -> None:
    shown = signature(function).parameters
    for name, value in vars(kind()).items():
        assert shown[name].default == value or name == "tolerance"
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'budget_call'"):
        function("net.onnx", backend="whitelist", budget_call=1)


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("run", SEARCH),
        ("submit", [*SEARCH, *REPAIR, *PRECISION]),
        ("fix", [*terms_of(CallTerms), *REPAIR]),
        ("regress", list(terms_of(CallTerms))),
        ("precision", list(terms_of(PrecisionGoal))),
    ],
)
def test_commands_have_their_options(command: str, fields: list[TermField]) -> None:
    parameters = get_command(app).commands[command].params  # type: ignore[attr-defined]
    options = {name: each for each in parameters for name in each.opts}
    assert {option_name(field) for field in fields} <= options.keys()
    assert all(field.term.doc in options[option_name(field)].help for field in fields if field in PRECISION)


def test_inputs_are_bound_by_the_same_options_everywhere() -> None:
    kinds = {"input_shapes": InputShapes, "input_values": InputValues}
    terms = {name: get_args(kind)[1] for name, kind in kinds.items()}
    taking = {"run", "fix", "regress", "split", "submit", "inspect", "extract", "rules", "compare", "precision"}
    for command in taking:
        options = {each.name: each for each in get_command(app).commands[command].params}  # type: ignore[attr-defined]
        for name, term in terms.items():
            assert options[name].opts == [term.option]
            assert options[name].help == f"{term.doc.removesuffix('.')}; repeatable."


@pytest.mark.parametrize("field", SEARCH, ids=named)
def test_a_request_is_stored_and_read_with_each_field(field: TermField) -> None:
    terms = made(SearchTerms, {field.name: other(field)})
    assert terms != SearchTerms()
    document = requested(SearchTerms, vars(terms))
    assert RequestedTerms.model_validate({"targets": [{"backend": "a"}], **document}).search == terms
    spec = SearchSpec(**vars(terms))
    assert SearchSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("field", SENT, ids=named)
def test_a_repair_is_requested_and_stored_with_each_field(field: TermField) -> None:
    spec = RepairRequest.model_validate(requested(RepairTerms, {field.name: other(field)})).spec
    assert spec != RepairSpec()
    assert values_of(spec)[field.name] == other(field)
    search = SearchSpec(repair=spec)
    assert SearchSpec.from_json(search.to_json()) == search


@pytest.mark.parametrize("field", PRECISION, ids=named)
def test_precision_is_requested_and_stored_with_each_field(field: TermField) -> None:
    with_threshold = {"metric": "maxabs", "at_most": 7.0} if field.name in ("metric", "at_most") else {}
    given = {field.name: Low.FLOAT16 if field.kind is Low else other(field), **with_threshold}
    spec = PrecisionRequest.model_validate(requested(PrecisionTerms, given)).spec
    assert spec == made(PrecisionTerms, given) != PrecisionTerms()
    search = SearchSpec(precision=spec)
    assert SearchSpec.from_json(search.to_json()) == search


def test_one_compile_has_one_name_beside_that_of_earlier_requests() -> None:
    for name in ("seconds", "timeout"):
        assert RequestedTerms.model_validate({"targets": [{"backend": "a"}], name: 30}).search.timeout == 30
        assert SearchSpec.from_json({name: 30}).timeout == 30


def test_a_default_says_nothing_in_a_request() -> None:
    assert requested(SearchTerms, vars(replace(SearchTerms(), timeout=5))) == {"seconds": 5}
