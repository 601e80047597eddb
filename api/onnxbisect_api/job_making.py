"""Validates a client's request and stores it as a job. REST and the pages create jobs only through this module."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from sqlalchemy.orm import Session

from onnxbisect.language import english
from onnxbisect_api import readiness, targets
from onnxbisect_api.access import Caller
from onnxbisect_api.addresses import Addresses
from onnxbisect_api.job_request import JobTerms, PartRequest
from onnxbisect_api.job_view import Circumstances, PartsSubmitted, SubmittedView, job_view
from onnxbisect_api.parts import PART, PARTS
from onnxbisect_api.problems import Problem
from onnxbisect_db import endpoints, jobs, schema, workers
from onnxbisect_db.columns import new_id
from onnxbisect_db.errors import DiskFullError
from onnxbisect_db.jobs import Created, NewJob, NewTarget
from onnxbisect_db.states import Scope, WebhookFormat
from onnxbisect_db.tables import Job
from onnxbisect_db.unfinished import demand_space
from onnxbisect_service import outbound
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service

_LATER = {"Retry-After": "60"}


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A validated request that has no model yet."""

    terms: JobTerms
    targets: tuple[NewTarget, ...]

    def part(self, number: int, part: PartRequest, label: str) -> "Accepted":
        """The request for one of several models, with that model's own settings and labels."""
        terms = self.terms
        own = {
            "input_shapes": {**terms.input_shapes, **part.input_shapes},
            "input_values": {**terms.input_values, **part.input_values},
            "calibration": part.calibration or terms.calibration,
            "labels": {PARTS: label, **terms.labels, PART: str(number)},
        }
        return replace(self, terms=terms.model_copy(update=own))

    def of(self, model_sha256: str) -> NewJob:
        """The job for this model."""
        terms = self.terms
        same = {field.name for field in fields(SearchSpec)} & JobTerms.model_fields.keys()
        asked = terms.model_dump(mode="json", include=same)
        spec = SearchSpec.from_json(
            {**asked, "budget_calls": terms.budget.calls, "budget_seconds": terms.budget.seconds}
        )
        return NewJob(
            model_sha256=model_sha256,
            targets=self.targets,
            request=spec.to_json(),
            files=tuple(sorted(spec.files)),
            labels=terms.labels,
            priority=terms.priority,
            webhook=None if terms.webhook is None else terms.webhook.url,
            webhook_events=() if terms.webhook is None else terms.webhook.types,
            webhook_format=WebhookFormat.JSON if terms.webhook is None else terms.webhook.format,
            webhook_secret=None if terms.webhook is None else terms.webhook.secret,
        )


def asked_before(job: Job) -> JobTerms:
    """The terms of an earlier job for one more: targets, settings and labels, but no webhook and no table of parts."""
    spec = SearchSpec.from_json(job.request).to_json()
    asked = {name: spec[name] for name in JobTerms.model_fields.keys() & spec.keys()}
    return JobTerms.model_validate(
        {
            **asked,
            "budget": {"calls": spec["budget_calls"], "seconds": spec["budget_seconds"]},
            "targets": [{"backend": it.backend, "options": it.options} for it in job.searches],
            "labels": {name: value for name, value in job.labels.items() if name not in (PARTS, PART)},
            "priority": min(job.priority, 0),
        }
    )


def accepted(terms: JobTerms, service: Service, caller: Caller) -> Accepted:
    """Validate the terms; raises Problem or OptionError."""
    settings = service.settings
    if terms.priority > 0 and Scope.ADMIN not in caller.scopes:
        raise Problem(
            403, english("A priority above 0 puts a job before everybody's: it needs a token with the scope 'admin'.")
        )
    if terms.seconds is not None and terms.seconds > settings.compile_seconds:
        raise Problem(
            422,
            english(
                "One compile may take {compile_seconds} seconds here at most.",
                compile_seconds=f"{settings.compile_seconds:g}",
            ),
        )
    webhook = terms.webhook
    complaint = None if webhook is None else outbound.complaint(webhook.url, settings.webhook_allow)
    if complaint is not None:
        raise Problem(422, complaint)
    with service.database.session() as session:
        offered = workers.slots(session)
    alternatives = None if terms.repair is None else terms.repair.alternatives
    return Accepted(terms=terms, targets=targets.checked(terms.targets, offered, alternatives))


def made(
    wanted: Accepted,
    model_sha256: str,
    service: Service,
    caller: Caller,
    addresses: Addresses,
    *,
    idempotency_key: str | None,
    first: Callable[[Session], object] | None = None,
) -> SubmittedView:
    """Create a job, or find the one that the same idempotency key and request created before.

    `first` is called at the beginning of the same transaction.
    """
    new = wanted.of(model_sha256)

    def make(session: Session) -> tuple[Created, Circumstances, str | None]:
        if first is not None:
            first(session)
        created = jobs.create(session, new, tenant=caller.tenant, idempotency_key=idempotency_key)
        if created.new:
            demand_can_take(session, service, caller)
        endpoint = endpoints.of_job(session, created.job.id)
        return created, Circumstances.of(session, [created.job]), endpoints.made_here(endpoint)

    created, circumstances, secret = service.database.run(make)
    return SubmittedView(**dict(job_view(created.job, addresses, circumstances)), webhook_secret=secret)


def made_parts(
    wanted: Accepted,
    parts: Sequence[PartRequest],
    service: Service,
    caller: Caller,
    addresses: Addresses,
    *,
    idempotency_key: str | None,
) -> PartsSubmitted:
    """Create a job for each of several models, all or none, or find those of the same idempotency key and request."""
    models = [part.model for part in parts]
    label = new_id() if idempotency_key is None else _digest(idempotency_key, *models)[:32]
    label = wanted.terms.labels.get(PARTS, label)
    new = [wanted.part(number, part, label).of(part.model) for number, part in enumerate(parts, 1)]
    keys = [None if idempotency_key is None else _part_key(idempotency_key, number) for number in range(len(new))]

    def make(session: Session) -> tuple[list[Created], Circumstances, list[str | None]]:
        created = [
            jobs.create(session, each, tenant=caller.tenant, idempotency_key=key)
            for each, key in zip(new, keys, strict=True)
        ]
        if any(each.new for each in created):
            demand_can_take(session, service, caller)
        rows = [each.job for each in created]
        own = [endpoints.of_job(session, row.id) for row in rows]
        return created, Circumstances.of(session, rows), [endpoints.made_here(each) for each in own]

    created, circumstances, secrets = service.database.run(make)
    return PartsSubmitted(
        label=f"{PARTS}:{label}",
        report=addresses.parts([("label", f"{PARTS}:{label}")]),
        jobs=[
            SubmittedView(**dict(job_view(each.job, addresses, circumstances)), webhook_secret=secret)
            for each, secret in zip(created, secrets, strict=True)
        ],
    )


def _part_key(key: str, number: int) -> str:
    """The idempotency key of a part's job.

    The first part has the client's own key, so that the key's use in another request is detected.
    """
    return key if not number else _digest(key, str(number))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def demand_can_take(session: Session, service: Service, caller: Caller) -> None:
    """Raise an error if the job that this transaction has begun cannot be taken.

    A 429 if too many of the tenant's jobs wait or run; a 507 on a full disk, where SQLite's log may have room for the
    row; a 503 if another version has upgraded the tables: checked last, as this transaction's locks then keep them.
    """
    settings = service.settings
    most = settings.tenant_jobs
    if jobs.going(session, caller.tenant) > most:
        raise Problem(429, english("{most} jobs wait or run already: let some end, or cancel them.", most=most), _LATER)
    if (complaint := readiness.disk(service)) is not None:
        raise DiskFullError(complaint)
    demand_space(settings.data, 0, floor=settings.disk_floor)
    session.flush()
    schema.demand_current(session)
