"""Receives the form for a new job: its texts, its model, and its samples."""

from collections.abc import Callable
from contextlib import suppress

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from onnxbisect.language import english
from onnxbisect_api.access import Caller
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.site.new_fields import SAMPLE, SAMPLES, FormValues
from onnxbisect_api.uploads.model_form import NoModel, PartWriter, ReceivedForm
from onnxbisect_api.uploads.model_upload import note_form, receive_form
from onnxbisect_api.uploads.receiving import DIGESTS, UploadQuota, upload_quota
from onnxbisect_db import uploads
from onnxbisect_db.files import StoredFile, Unfinished
from onnxbisect_service.service import Service

#: Most files of samples in a form.
_MOST_SAMPLES = 1000


class _Samples:
    """The texts and samples of a form that is being received, as a `model_form.Texts`.

    The samples are files for jobs, as `PUT /v1/files` keeps them, once the form is complete.
    """

    description = "the texts and samples of the page"

    def __init__(self, typed: FormValues, begin: Callable[[], Unfinished], quota: UploadQuota) -> None:
        self._typed, self._begin, self._quota = typed, begin, quota
        self._files: list[tuple[str, _SampleFile]] = []

    def begin(self, field: str, file_name: str) -> PartWriter | None:
        """A writer for a sample or a text."""
        if field != SAMPLES or not file_name:
            return self._typed.begin(field, file_name)
        if len(self._files) >= _MOST_SAMPLES:
            raise Problem(422, english("The form has more than {count} samples.", count=str(_MOST_SAMPLES)))
        file = _SampleFile(self._begin(), lambda: self._quota.demand(self.size))
        self._files.append((file_name, file))
        return file

    def demand_all(self) -> None:
        """Do nothing, because no field is required."""

    @property
    def size(self) -> int:
        """The bytes of the samples."""
        return sum(file.size for _, file in self._files)

    def finish(self) -> list[tuple[str, StoredFile]]:
        """Make the samples visible: their names and files."""
        return [(name, file.unfinished.finish()) for name, file in self._files]

    def abandon(self) -> None:
        """Delete what was not made visible."""
        for _, file in self._files:
            file.unfinished.abandon()


class _SampleFile:
    """A sample that is being received, as a `model_form.PartWriter`."""

    def __init__(self, unfinished: Unfinished, counted: Callable[[], None]) -> None:
        self.unfinished, self.size, self._counted = unfinished, 0, counted

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._counted()
        self.unfinished.write(chunk)

    def seal(self) -> None:
        self.unfinished.seal()


async def receive_model_form(request: Request, service: Service, caller: Caller, typed: FormValues) -> None:
    """Receive a form that may contain a file; then the file is stored, and `typed` gets its SHA-256 as `model`.

    Raises OnnxBisectError or Problem if the file is refused.
    """

    def keep(came: ReceivedForm) -> str:
        with service.database.transaction() as session:
            return note_form(session, caller.tenant, came).sha256

    left = await run_in_threadpool(upload_quota, service, caller.tenant)
    samples = _Samples(typed, lambda: service.files.begin(limit=service.settings.upload_bytes, beside=DIGESTS), left)
    try:
        # without a file, the form names an uploaded model
        with suppress(NoModel):
            typed.add("model", await receive_form(request, service, caller.tenant, keep, texts=samples))
        if samples.size:
            await run_in_threadpool(_keep_samples, service, caller.tenant, samples, typed)
    finally:
        samples.abandon()


def _keep_samples(service: Service, tenant: str, samples: _Samples, typed: FormValues) -> None:
    upload_quota(service, tenant).demand(samples.size)
    came = samples.finish()
    with service.database.transaction() as session:
        for _, stored in came:
            uploads.keep(session, tenant=tenant, sha256=stored.sha256, size=stored.size)
    typed.replace(SAMPLE, [f"{stored.sha256}:{name}" for name, stored in came])
