"""Validates a client's request and stores it as a job. REST and the pages create jobs only through this module."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.language import english
from onnxbisect.terms import SearchTerms, requested
from onnxbisect_api import health
from onnxbisect_api.access import Caller
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.parameters import Addresses
from onnxbisect_api.submission.job_request import PartRequest, RequestedTerms, TargetRequest
from onnxbisect_api.views.job_view import JobViewData, PartsSubmitted, SubmittedView, job_view
from onnxbisect_api.views.overviews import PART, PARTS
from onnxbisect_backends import registry, remote
from onnxbisect_backends.options import unknown
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_db import endpoints, jobs, schema, workers
from onnxbisect_db.errors import DiskFullError
from onnxbisect_db.files import demand_space
from onnxbisect_db.states import Scope, WebhookFormat
from onnxbisect_db.tables import Job
from onnxbisect_db.tables.base import new_id
from onnxbisect_service import outbound
from onnxbisect_service.search_spec import Alternatives, SearchSpec
from onnxbisect_service.service import Service


def checked(
    targets: Iterable[TargetRequest], offered: Collection[str], alternatives: Alternatives = None
) -> tuple[jobs.NewTarget, ...]:
    """The targets to store; OptionError if a target, or one of its `alternatives`, is invalid.

    `offered` has the backends of live workers, which may be missing here. No compiler is started.
    """
    return tuple(_checked(target, offered, alternatives) for target in targets)


def _checked(target: TargetRequest, offered: Collection[str], alternatives: Alternatives) -> jobs.NewTarget:
    try:
        remote.find(target.backend)
    except (OptionError, BackendUnusableError) as error:
        if target.backend not in offered:
            # the registry's sentence about an unknown backend advises on command lines, which a client has not
            known = {*registry.available(), *offered}
            if target.backend in known or target.backend.endswith(".toml"):
                raise OptionError(str(error)) from None
            raise OptionError(unknown("backend", target.backend, known)) from None
        if target.options or alternatives is not None:
            raise OptionError(
                english(
                    "The backend '{backend}' takes no options over the network until its package is installed beside "
                    "the API, too: they cannot be checked here.",
                    backend=target.backend,
                )
            ) from None
    else:
        remote.make(target.backend, target.options)
        if alternatives is not None and alternatives != "all":
            for key, value in ((key, value) for key, values in alternatives.items() for value in values):
                remote.make(target.backend, {**target.options, key: value})
            OtherOptions.of(target.backend, target.options, alternatives)  # validates keys without values, too
    return jobs.NewTarget(backend=target.backend, options=target.options)


_LATER = {"Retry-After": "60"}


@dataclass(frozen=True, kw_only=True)
class ValidTerms:
    """A validated request that has no model yet."""

    terms: RequestedTerms
    targets: tuple[jobs.NewTarget, ...]

    def part(self, number: int, part: PartRequest, label: str) -> "ValidTerms":
        """The request for one of several models, with that model's own settings and labels."""
        terms = self.terms
        own = {
            "input_shapes": {**terms.input_shapes, **part.input_shapes},
            "input_values": {**terms.input_values, **part.input_values},
            "calibration": part.calibration or terms.calibration,
            "labels": {PARTS: label, **terms.labels, PART: str(number)},
        }
        return replace(self, terms=terms.model_copy(update=own))

    def of(self, model_sha256: str) -> jobs.NewJob:
        """The job for this model."""
        terms = self.terms
        spec = SearchSpec(
            input_shapes=terms.input_shapes,
            input_values=terms.input_values,
            calibration=terms.calibration,
            repair=None if terms.repair is None else terms.repair.spec,
            precision=None if terms.precision is None else terms.precision.spec,
            **vars(terms.search),
        )
        return jobs.NewJob(
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


def asked_before(job: Job) -> RequestedTerms:
    """The terms of an earlier job for one more: targets, settings and labels, but no webhook and no table of parts."""
    spec = SearchSpec.from_json(job.request)
    own = ("input_shapes", "input_values", "calibration", "repair", "precision")
    return RequestedTerms.model_validate(
        {
            **{name: value for name, value in spec.to_json().items() if name in own},
            **requested(SearchTerms, vars(spec)),
            "targets": [{"backend": it.backend, "options": it.options} for it in job.searches],
            "labels": {name: value for name, value in job.labels.items() if name not in (PARTS, PART)},
            "priority": min(job.priority, 0),
        }
    )


def validate_terms(terms: RequestedTerms, service: Service, caller: Caller) -> ValidTerms:
    """Validate the terms; raises Problem or OptionError."""
    settings = service.settings
    if terms.priority > 0 and Scope.ADMIN not in caller.scopes:
        raise Problem(
            403, english("A priority above 0 puts a job before everybody's: it needs a token with the scope 'admin'.")
        )
    if (terms.search.timeout or 0) > settings.compile_seconds:
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
    return ValidTerms(terms=terms, targets=checked(terms.targets, offered, alternatives))


def create_job(
    wanted: ValidTerms,
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

    def make(session: Session) -> tuple[jobs.Created, JobViewData, str | None]:
        if first is not None:
            first(session)
        created = jobs.create(session, new, tenant=caller.tenant, idempotency_key=idempotency_key)
        if created.new:
            demand_can_take(session, service, caller)
        endpoint = endpoints.of_job(session, created.job.id)
        return created, JobViewData.of(session, [created.job]), endpoints.made_here(endpoint)

    created, view_data, secret = service.database.run(make)
    return SubmittedView(**dict(job_view(created.job, addresses, view_data)), webhook_secret=secret)


def create_jobs(
    wanted: ValidTerms,
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
    # the first part has the client's own key, so that the key's use in another request is detected
    keys = [idempotency_key]
    for number in range(1, len(new)):
        keys.append(None if idempotency_key is None else _digest(idempotency_key, str(number)))

    def make(session: Session) -> tuple[list[jobs.Created], JobViewData, list[str | None]]:
        created = [
            jobs.create(session, each, tenant=caller.tenant, idempotency_key=key)
            for each, key in zip(new, keys, strict=True)
        ]
        if any(each.new for each in created):
            demand_can_take(session, service, caller)
        rows = [each.job for each in created]
        own = [endpoints.of_job(session, row.id) for row in rows]
        return created, JobViewData.of(session, rows), [endpoints.made_here(each) for each in own]

    created, view_data, secrets = service.database.run(make)
    return PartsSubmitted(
        label=f"{PARTS}:{label}",
        report=addresses.parts([("label", f"{PARTS}:{label}")]),
        jobs=[
            SubmittedView(**dict(job_view(each.job, addresses, view_data)), webhook_secret=secret)
            for each, secret in zip(created, secrets, strict=True)
        ],
    )


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
    if (complaint := health.disk(service)) is not None:
        raise DiskFullError(complaint)
    demand_space(settings.data, 0, floor=settings.disk_floor)
    session.flush()
    schema.demand_current(session)
