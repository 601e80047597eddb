"""Webhooks: endpoints, signing secrets, and deliveries."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from onnxbisect.errors import OptionError
from onnxbisect.language import english
from onnxbisect_api.access import Admin, Caller
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import RowId, RowView, TheService
from onnxbisect_api.submission.job_request import WebhookRequest
from onnxbisect_api.views.listing import PagedRows
from onnxbisect_db import deliveries, endpoints
from onnxbisect_db.errors import QuotaError
from onnxbisect_db.states import DeliveryState, WebhookFormat
from onnxbisect_db.tables import Delivery, Endpoint
from onnxbisect_service import outbound
from onnxbisect_service.service import Service

router = APIRouter(tags=["webhooks"])


class EndpointRequest(WebhookRequest):
    """A new endpoint."""


class EndpointView(RowView):
    """An endpoint."""

    id: str
    url: str
    format: WebhookFormat
    events: list[str]
    job: str | None = Field(description="the job that it was made with; it receives the events of this job alone")
    secrets: int = Field(description="how many sign each message: two while one is rotated")
    created_at: datetime
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_because: str


class EndpointSecretView(EndpointView):
    """An endpoint with a new secret, which is shown only here."""

    secret: str | None = Field(description="null for a chat: what signs there is what the chat made")


class TryView(BaseModel):
    """One attempt to deliver."""

    at: datetime
    status: int | None = Field(description="null where there was no answer")
    milliseconds: int
    answer: str = Field(description="the beginning of it, as text from a stranger")
    problem: str


class DeliveryView(RowView):
    """One message to one endpoint."""

    id: str = Field(description="the message's `webhook-id`, the same on every try")
    webhook: str
    job: str | None
    type: str
    state: DeliveryState
    payload: dict[str, Any]
    tries: list[TryView]
    due_at: datetime = Field(description="when it is tried next, or was last to be")
    created_at: datetime


@router.post("/webhooks", status_code=201, summary="Create a webhook for all jobs")
def create_webhook(wanted: EndpointRequest, service: TheService, caller: Admin) -> EndpointSecretView:
    """Keep the `secret` of the response: receivers verify signatures with it, and it is not shown again."""
    complaint = outbound.complaint(wanted.url, service.settings.webhook_allow)
    if complaint is not None:
        raise OptionError(complaint)
    with service.database.transaction() as session:
        # raise QuotaError (507) if the tenant has the maximum number of webhooks, each of which gets every event
        most = service.settings.tenant_webhooks
        if len(endpoints.list_all(session, caller.tenant)) >= most:
            raise QuotaError(f"You have {most} webhooks already: delete one that you do not need.")
        endpoint = endpoints.add(
            session,
            tenant=caller.tenant,
            url=wanted.url,
            events=wanted.types,
            form=wanted.format,
            secret=wanted.secret,
        )
    return _with_secret(endpoint)


@router.get("/webhooks", summary="List webhooks, the newest first")
def list_webhooks(service: TheService, caller: Admin) -> list[EndpointView]:
    """Endpoints that were created for a single job are left out."""
    with service.database.session() as session:
        return [_view(endpoint) for endpoint in endpoints.list_all(session, caller.tenant)]


@router.get("/webhooks/{webhook_id}", summary="A webhook")
def get_webhook(webhook_id: RowId, service: TheService, caller: Admin) -> EndpointView:
    """An endpoint that was created for a single job can be shown, too."""
    with service.database.session() as session:
        return _view(_found(endpoints.get(session, webhook_id, caller.tenant)))


@router.post("/webhooks/{webhook_id}/rotate", summary="Rotate a webhook's secret")
def rotate_webhook_secret(webhook_id: RowId, service: TheService, caller: Admin) -> EndpointSecretView:
    """Messages are signed with both secrets until the previous one is retired, so receivers can change to the new one
    without losing messages.
    """
    if get_webhook(webhook_id, service, caller).format is not WebhookFormat.JSON:
        raise OptionError("The secret of a chat's robot is made by the chat: create a webhook with the new one.")
    return _with_secret(_changed(endpoints.rotate, service, caller, webhook_id))


@router.post("/webhooks/{webhook_id}/retire", summary="Retire a webhook's previous secret")
def retire_webhook_secret(webhook_id: RowId, service: TheService, caller: Admin) -> EndpointView:
    """The previous secret stops signing. Do this once all receivers have the new secret."""
    return _view(_changed(endpoints.retire, service, caller, webhook_id))


@router.post("/webhooks/{webhook_id}/enable", summary="Enable a webhook")
def enable_webhook(webhook_id: RowId, service: TheService, caller: Admin) -> EndpointView:
    """Enables a webhook that was disabled after failures. Its failed messages must be redelivered one by one."""
    return _view(_changed(endpoints.enable, service, caller, webhook_id))


@router.delete("/webhooks/{webhook_id}", summary="Delete a webhook", status_code=204)
def delete_webhook(webhook_id: RowId, service: TheService, caller: Admin) -> None:
    """The webhook's messages are deleted, too."""
    with service.database.transaction() as session:
        if not endpoints.remove(session, webhook_id, caller.tenant):
            raise missing(english("webhook"))


@router.post("/webhooks/{webhook_id}/ping", status_code=202, summary="Send a test message")
def ping_webhook(webhook_id: RowId, service: TheService, caller: Admin) -> DeliveryView:
    """The message is sent soon after this response; `GET /v1/deliveries/{id}` then shows the outcome."""
    with service.database.transaction() as session:
        delivery = deliveries.ping(session, _found(endpoints.get(session, webhook_id, caller.tenant)))
    return _delivery_view(delivery)


@router.get("/webhooks/{webhook_id}/deliveries", summary="List a webhook's messages, the newest first")
def list_deliveries(webhook_id: RowId, service: TheService, caller: Admin, paged: PagedRows) -> list[DeliveryView]:
    """The list is paginated: the `Link` header has the URL of the next page."""
    with service.database.session() as session:
        _found(endpoints.get(session, webhook_id, caller.tenant))
        page = deliveries.list_page(session, webhook_id, after=paged.after, limit=paged.limit)
    paged.next_is(page.after)
    return [_delivery_view(delivery) for delivery in page.rows]


@router.get("/deliveries/{delivery_id}", summary="A message")
def get_delivery(delivery_id: RowId, service: TheService, caller: Admin) -> DeliveryView:
    """The message contains the outcome of each attempt to deliver it."""
    with service.database.session() as session:
        found = deliveries.get(session, delivery_id, caller.tenant)
    if found is None:
        raise missing(english("delivery"))
    return _delivery_view(found)


@router.post("/deliveries/{delivery_id}/redeliver", status_code=202, summary="Send a message again")
def redeliver(delivery_id: RowId, service: TheService, caller: Admin) -> DeliveryView:
    """The message keeps its `webhook-id`, and its schedule of retries starts again."""
    found = service.database.run(lambda session: deliveries.redeliver(session, delivery_id, caller.tenant))
    if found is None:
        raise missing(english("delivery"))
    return _delivery_view(found)


def _changed(
    change: Callable[[Session, str, str], Endpoint | None], service: Service, caller: Caller, webhook_id: str
) -> Endpoint:
    return _found(service.database.run(lambda session: change(session, webhook_id, caller.tenant)))


def _found(endpoint: Endpoint | None) -> Endpoint:
    if endpoint is None:
        raise missing(english("webhook"))
    return endpoint


def _view(endpoint: Endpoint) -> EndpointView:
    return EndpointView.of_row(endpoint, job=endpoint.job_id, secrets=len(endpoint.secrets))


def _with_secret(endpoint: Endpoint) -> EndpointSecretView:
    return EndpointSecretView(**dict(_view(endpoint)), secret=endpoints.made_here(endpoint))


def _delivery_view(found: Delivery) -> DeliveryView:
    return DeliveryView.of_row(found, webhook=found.endpoint_id, job=found.job_id)
