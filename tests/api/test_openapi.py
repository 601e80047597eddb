"""The service does what its OpenAPI description says, whatever is sent: no crash, no answer that is not described."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from schemathesis.core.result import Ok

from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.given import done, refusing_exp

#: A valid request may well be refused: the model that it names is not there, the option is none of the backend's. And
#: parameters of the query that nobody knows are passed over but by lists, as everywhere on the web.
_NOT_OURS = [checks.positive_data_acceptance, checks.negative_data_rejection]
_OFTEN = "1000000/minute"


class TestDescription:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        """Nobody is counted: every request is to be looked at."""
        return settings.model_copy(update={"requests": _OFTEN, "uploads": _OFTEN, "failures": _OFTEN})

    @pytest.mark.long
    @pytest.mark.timeout(900)
    def test_every_operation_keeps_to_it(self, callers: Callers, service: Service, subtests: pytest.Subtests) -> None:
        authorized = {"Authorization": f"Bearer {callers.token(Scope.ADMIN)}"}
        described = schemathesis.openapi.from_asgi("/openapi.json", callers.app)
        operations = [found.ok() for found in described.get_all_operations() if isinstance(found, Ok)]
        assert len(operations) > 30
        job: Job | None = None
        for operation in operations:
            job = job or done(service, refusing_exp())
            with subtests.test(operation.label):
                _ask(operation, job, authorized)
            if operation.method.upper() != "GET":  # which may have changed or deleted it
                job = None


def _ask(operation: schemathesis.APIOperation[Any, Any, Any, Any], job: Job, headers: dict[str, str]) -> None:
    """What the description allows, and what it does not."""
    right, wrong = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)

    @settings(
        max_examples=12,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=right | wrong, real=st.booleans())
    def ask(case: schemathesis.Case[Any], real: bool) -> None:
        if real:
            _speak_of(case, job)
        case.call_and_validate(headers=headers, excluded_checks=_NOT_OURS)

    ask()


def _speak_of(case: schemathesis.Case[Any], job: Job) -> None:
    """Ask about what is there, where else an id that nobody has would end it."""
    known: dict[str, Any] = {"job_id": job.id, "number": 1, "sha256": job.model_sha256, "a": job.id, "b": job.id}
    for parameters in (case.path_parameters, case.query):
        for name in known.keys() & parameters.keys():
            parameters[name] = known[name]
    if isinstance(case.body, dict) and "targets" in case.body:
        case.body |= {"model": job.model_sha256, "targets": [{"backend": "onnxruntime"}]}
    if isinstance(case.body, dict) and "job" in case.body:
        case.body["job"] = '{"targets": [{"backend": "onnxruntime"}]}'


def test_every_operation_says_what_it_does(callers: Callers) -> None:
    for path, operations in callers.nobody().get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert operation["tags"], (method, path)
            problem = operation["responses"]["4XX"]["content"]["application/problem+json"]
            assert problem["schema"]["$ref"].endswith("/ProblemDocument")


def test_each_operation_has_a_name_of_its_own_for_generated_clients(callers: Callers) -> None:
    paths = callers.nobody().get("/openapi.json").json()["paths"]
    names = [operation["operationId"] for operations in paths.values() for operation in operations.values()]
    assert len(set(names)) == len(names)
    assert {"submit_job", "list_jobs", "get_report", "upload_model"} <= set(names)
    assert not [name for name in names if "v1" in name]
