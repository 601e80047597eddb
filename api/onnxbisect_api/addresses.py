"""The URLs of resources: below the public address if that is set, else relative to the server's root."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends

from onnxbisect_api.parameters import TheService


class Addresses:
    """The URLs of one installation."""

    def __init__(self, service: TheService) -> None:
        self._root = (service.settings.public_url or "").rstrip("/")

    def job(self, job_id: str) -> str:
        """A job."""
        return f"{self._root}/v1/jobs/{job_id}"

    def page(self, job_id: str) -> str:
        """A job's HTML page."""
        return f"{self._root}/jobs/{job_id}"

    def model(self, sha256: str) -> str:
        """A model."""
        return f"{self._root}/v1/models/{sha256}"

    def file(self, sha256: str) -> str:
        """An uploaded file that is no model, such as a calibration sample."""
        return f"{self._root}/v1/files/{sha256}"

    def webhook(self, webhook_id: str) -> str:
        """A webhook."""
        return f"{self._root}/v1/webhooks/{webhook_id}"

    def culprit(self, culprit_id: str) -> str:
        """A culprit over all jobs."""
        return f"{self._root}/v1/culprits/{culprit_id}"

    def parts(self, query: list[tuple[str, str]]) -> str:
        """The table of several models."""
        return f"{self._root}/v1/parts?{urlencode(query, safe=':')}"

    def badge(self, query: list[tuple[str, str]]) -> str:
        """A badge."""
        return f"{self._root}/v1/badge.svg?{urlencode(query)}"


#: A parameter of this type is the installation's addresses.
TheAddresses = Annotated[Addresses, Depends()]
