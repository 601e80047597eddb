"""Receives uploads of models, and records them for the tenant."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from onnxbisect.report.text import clip
from onnxbisect_api.uploads.model_form import ModelForm, OnnxHead, ReceivedForm, Texts
from onnxbisect_api.uploads.receiving import DIGESTS, receive, upload_quota
from onnxbisect_db import models
from onnxbisect_db.files import StoredFile, Unfinished
from onnxbisect_db.tables import StoredModel
from onnxbisect_service.service import Service

_NAME_CHARACTERS = 200

T = TypeVar("T")


class ModelFile:
    """A `receiving.Sink` for a model in a single file."""

    def __init__(self, file: Unfinished) -> None:
        self._file = file
        self._head = OnnxHead()

    def write(self, chunk: memoryview) -> None:
        self._head.see(chunk)
        self._file.write(chunk)

    def seal(self) -> StoredFile:
        """End the file, which is then on disk and not yet visible."""
        return self._file.seal()

    def finish(self) -> StoredFile:
        """Make the file visible under its SHA-256."""
        return self._file.finish()

    def abandon(self) -> None:
        self._file.abandon()


async def receive_form(
    request: Request, service: Service, tenant: str, keep: Callable[[ReceivedForm], T], *, texts: Texts | None = None
) -> T:
    """Receive the form, store its files, and return the result of `keep`.

    Texts are checked as soon as they have arrived, and an error ends the upload.
    """
    left = await run_in_threadpool(upload_quota, service, tenant)
    form = ModelForm(
        request.headers.get("content-type", ""),
        lambda: service.files.begin(limit=service.settings.upload_bytes, beside=DIGESTS),
        left,
        texts,
    )

    def finish() -> T:
        came = form.sealed()
        upload_quota(service, tenant).demand(came.size)
        form.finish()
        return keep(came)

    return await receive(request, form, finish)


def note_form(session: Session, tenant: str, came: ReceivedForm) -> StoredModel:
    """Record the form's model for the tenant."""
    data = {location: stored.sha256 for location, stored in came.data.items()}
    onnx = came.model.sha256 if data else None
    name = _shown(came.name)
    return models.keep(session, tenant=tenant, sha256=came.sha256, name=name, size=came.size, onnx=onnx, files=data)


def note(session: Session, tenant: str, stored: StoredFile, name: str) -> StoredModel:
    """Record a stored model in a single file for the tenant. The name is only for display."""
    return models.keep(session, tenant=tenant, sha256=stored.sha256, name=_shown(name), size=stored.size)


def _shown(name: str) -> str:
    return clip(name.replace("\\", "/").rpartition("/")[2].strip() or "model.onnx", _NAME_CHARACTERS)
