"""The pages of webhooks, for admins: endpoints, secrets and deliveries.

Each form calls the REST operation of the same name.
"""

import json
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from onnxbisect.errors import OnnxBisectError
from onnxbisect_api.access import Admin, Caller
from onnxbisect_api.errors import mistakes
from onnxbisect_api.errors.problems import status_and_sentence
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.routes import webhooks as rest
from onnxbisect_api.routes.webhooks import EndpointRequest, EndpointView
from onnxbisect_api.site.rendering import page
from onnxbisect_api.views.listing import PagedRows
from onnxbisect_db.states import ANNOUNCED, DeliveryState, EventType, WebhookFormat
from onnxbisect_service.chat_messages import LABELS
from onnxbisect_service.service import Service

router = APIRouter()

_EVENTS = sorted(ANNOUNCED - {EventType.PING})


@router.get("/webhooks")
def webhook_list_page(request: Request, service: TheService, caller: Admin) -> Response:
    """The page with all endpoints, without those of single jobs."""
    return _list(request, service, caller)


@router.post("/webhooks")
def create(
    request: Request,
    service: TheService,
    caller: Admin,
    url: Annotated[str, Form(max_length=5000)] = "",
    events: Annotated[list[str], Form(max_length=10)] = [],  # noqa: B006 - never changed
    form: Annotated[str, Form(alias="format", max_length=20)] = WebhookFormat.JSON,
    chat_secret: Annotated[str, Form(alias="secret", max_length=1000)] = "",
) -> Response:
    """Create an endpoint, and show its secret, which cannot be shown again."""
    try:
        wanted = EndpointRequest.model_validate(
            {"url": url.strip(), "events": events, "format": form, "secret": chat_secret.strip() or None}
        )
        made = rest.create_webhook(wanted, service, caller)
    except ValidationError as error:
        complaint = f"{mistakes.sentence(error.errors()[0])}."
        return _list(request, service, caller, url=url, form=form, complaint=complaint, status=422)
    except OnnxBisectError as error:
        status, complaint = status_and_sentence(error)
        return _list(request, service, caller, url=url, form=form, complaint=complaint, status=status)
    return _list(request, service, caller, fresh=made.id, secret=made.secret or "")


@router.get("/webhooks/{webhook_id}")
def webhook_page(request: Request, webhook_id: RowId, service: TheService, caller: Admin, paged: PagedRows) -> Response:
    """The page of one endpoint, with its messages."""
    return _one(request, service, caller, rest.get_webhook(webhook_id, service, caller), paged)


@router.post("/webhooks/{webhook_id}/rotate")
def rotate(request: Request, webhook_id: RowId, service: TheService, caller: Admin, paged: PagedRows) -> Response:
    """Create a new secret, and show the endpoint's page with it; it cannot be shown again."""
    made = rest.rotate_webhook_secret(webhook_id, service, caller)
    return _one(request, service, caller, made, paged, secret=made.secret or "")


@router.post("/webhooks/{webhook_id}/retire")
def retire(webhook_id: RowId, service: TheService, caller: Admin) -> Response:
    """Retire the previous secret, and redirect to the endpoint's page."""
    return _done(rest.retire_webhook_secret, webhook_id, service, caller)


@router.post("/webhooks/{webhook_id}/enable")
def enable(webhook_id: RowId, service: TheService, caller: Admin) -> Response:
    """Enable the endpoint, and redirect to its page."""
    return _done(rest.enable_webhook, webhook_id, service, caller)


@router.post("/webhooks/{webhook_id}/ping")
def ping(webhook_id: RowId, service: TheService, caller: Admin) -> Response:
    """Send a test message, and redirect to the endpoint's page, which lists the message."""
    return _done(rest.ping_webhook, webhook_id, service, caller)


@router.post("/webhooks/{webhook_id}/delete")
def delete_webhook(webhook_id: RowId, service: TheService, caller: Admin) -> Response:
    """Delete the endpoint, and redirect to the page of endpoints."""
    rest.delete_webhook(webhook_id, service, caller)
    return RedirectResponse("/webhooks", 303)


@router.post("/deliveries/{delivery_id}/redeliver")
def redeliver(delivery_id: RowId, service: TheService, caller: Admin) -> Response:
    """Send the message again, and redirect to its endpoint's page."""
    message = rest.redeliver(delivery_id, service, caller)
    return RedirectResponse(f"/webhooks/{message.webhook}#delivery-{message.id}", 303)


def _done(
    action: Callable[[str, Service, Caller], object], webhook_id: str, service: Service, caller: Caller
) -> Response:
    action(webhook_id, service, caller)
    return RedirectResponse(f"/webhooks/{webhook_id}", 303)


def _list(
    request: Request,
    service: Service,
    caller: Caller,
    *,
    url: str = "",
    form: str = WebhookFormat.JSON,
    complaint: str = "",
    fresh: str = "",
    secret: str = "",
    status: int = 200,
) -> Response:
    return page(
        request,
        "webhooks.html.j2",
        caller,
        status=status,
        webhooks=rest.list_webhooks(service, caller),
        events=_EVENTS,
        formats=LABELS,
        format=form,
        url=url,
        complaint=complaint,
        fresh=fresh,
        secret=secret,
    )


def _one(
    request: Request, service: Service, caller: Caller, webhook: EndpointView, paged: PagedRows, secret: str = ""
) -> Response:
    messages = rest.list_deliveries(webhook.id, service, caller, paged)
    return page(
        request,
        "webhook.html.j2",
        caller,
        webhook=webhook,
        chat="" if webhook.format is WebhookFormat.JSON else LABELS[webhook.format],
        secret=secret,
        messages=messages,
        next=paged.next,
        # The page updates itself only until the first attempt, because retries come after minutes or hours.
        going=any(message.state is DeliveryState.PENDING and not message.tries for message in messages),
        pretty=lambda payload: json.dumps(payload, indent=2, ensure_ascii=False),
    )
