"""The field of a form that chooses a model: a file, or a model that was uploaded before.

A script uploads the file while the user fills in the rest, and then sends the form without it. Without scripts, the
form contains the file. If the form has errors, its file stays uploaded.
"""

from contextlib import suppress
from typing import TypedDict

from fastapi import Request
from sqlalchemy.orm import Session

from onnxbisect_api.access import Caller
from onnxbisect_api.model_form import Form, NoModel
from onnxbisect_api.model_upload import note_form, receive_form
from onnxbisect_api.site.new_fields import Typed
from onnxbisect_db import models
from onnxbisect_db.tables import Model
from onnxbisect_service.service import Service

#: The number of latest models to choose from.
_RECENT = 30


class Offered(TypedDict):
    """The values of `_model_field.html.j2`: models to choose from, and the SHA-256 of the chosen one."""

    recent: list[Model]
    chosen: str


async def bring(request: Request, service: Service, caller: Caller, typed: Typed) -> None:
    """Receive a form that may contain a file; then the file is stored, and `typed` gets its SHA-256 as `model`.

    Raises OnnxBisectError or Problem if the file is refused.
    """

    def keep(came: Form) -> str:
        with service.database.transaction() as session:
            return note_form(session, caller.tenant, came).sha256

    # without a file, the form names an uploaded model
    with suppress(NoModel):
        typed.add("model", await receive_form(request, service, caller.tenant, keep, texts=typed))


def offered(session: Session, caller: Caller, typed: Typed) -> Offered:
    """The tenant's latest models, and the model that the form names."""
    recent = list(models.listed(session, caller.tenant, limit=_RECENT).rows)
    chosen = models.get(session, typed.one("model"), caller.tenant)
    if chosen is not None and chosen.sha256 not in {model.sha256 for model in recent}:
        recent.insert(0, chosen)
    return Offered(recent=recent, chosen="" if chosen is None else chosen.sha256)
