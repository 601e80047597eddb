"""The field of a page that takes a model: its file, or one that was uploaded before.

A script uploads while the rest is filled in, and then sends the same form without the file. Without scripts the form
brings the file. Whatever is wrong with the form, a model that has come stays.
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

#: Models that were uploaded last, to choose among.
_RECENT = 30


class Offered(TypedDict):
    """What `_model_field.html.j2` shows: models to choose among, and the digest of the one that is chosen."""

    recent: list[Model]
    chosen: str


async def bring(request: Request, service: Service, caller: Caller, typed: Typed) -> None:
    """Read a form that may have the file as it comes: the digest of that file is then typed as its model.

    Raises OnnxBisectError or Problem where the file cannot be taken.
    """

    def keep(came: Form) -> str:
        with service.database.transaction() as session:
            return note_form(session, caller.tenant, came).sha256

    # without a file it is one that was uploaded before
    with suppress(NoModel):
        typed.add("model", await receive_form(request, service, caller.tenant, keep, texts=typed))


def offered(session: Session, caller: Caller, typed: Typed) -> Offered:
    """The latest models of the tenant, and the one that was typed."""
    recent = list(models.listed(session, caller.tenant, limit=_RECENT).models)
    chosen = models.get(session, typed.one("model"), caller.tenant)
    if chosen is not None and chosen.sha256 not in {model.sha256 for model in recent}:
        recent.insert(0, chosen)
    return Offered(recent=recent, chosen="" if chosen is None else chosen.sha256)
