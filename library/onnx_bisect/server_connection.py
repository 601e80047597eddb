"""A connection to an onnx-bisect server: requests with retries, and its refusals as errors."""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from tenacity import RetryCallState, Retrying, retry_if_exception, retry_if_result, stop_after_attempt

from onnxbisect.errors import BackendUnusableError, OptionError

#: Seconds for one request. The limits are for each read and write, so a long body does not exceed them.
_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
#: Seconds between retries while the server cannot be reached; it may be restarting, which loses no job.
_PAUSES = (0.5, 1, 2, 4, 8, 15, 30, 30, 30)
#: Statuses of a server that may answer later.
_BUSY = (429, 502, 503, 504)
_CHUNK = 1 << 20


class ServerConnection:
    """Sends requests to one server, and retries while it is restarting or busy.

    Raises OptionError if the server rejects a request, and BackendUnusableError if it cannot be reached or fails.
    """

    def __init__(self, url: str, token: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise OptionError(f"The server {url!r} is no address like https://onnx-bisect.example.org.")
        token = token.strip()  # tokens from files and CI secrets often end with a newline
        if not (token.isascii() and token.isprintable()):
            raise OptionError("The token has characters that no token has: give it as 'token create' printed it.")
        self.url = url.rstrip("/")
        self._reached = False
        self._client = httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT,
            verify=self.url.startswith("https://"),  # http, of which no redirect is followed, needs no certificates
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """Send a request, and return the JSON object of the response."""
        found: dict[str, Any] = self.send(method, path, **request).json()
        return found

    def send(
        self,
        method: str,
        path: str,
        *,
        fine: Collection[int] = (),
        content: Path | None = None,
        to: Path | None = None,
        **request: Any,
    ) -> httpx2.Response:
        """Send a request, with retries, and return the response. Status codes in `fine` are not raised as errors.

        The bytes of the file `content`, if given, are the body of the request, and the body of a successful response
        is written to the file `to`. Every retry sends and receives from the start.
        """
        if self._client.is_closed:
            raise OptionError("This client is closed: fetch results and files before.")
        retrying = Retrying(
            # a server that has answered before and cannot be reached may be restarting
            retry=retry_if_exception(lambda error: isinstance(error, httpx2.TransportError) and self._reached)
            | retry_if_result(lambda answer: answer.status_code in _BUSY),
            wait=_pause,
            stop=stop_after_attempt(len(_PAUSES) + 1),
            retry_error_callback=_last,
        )
        try:
            answer: httpx2.Response = retrying(self._send_once, method, path, content, to, request)
        except httpx2.TransportError as error:
            what = str(error) or type(error).__name__
            raise BackendUnusableError(f"The server {self.url} cannot be reached: {what}.") from error
        if answer.is_success or answer.status_code in fine:
            return answer
        try:
            problem = answer.json()
            sentence = str(problem.get("detail") or problem["title"])
        except (ValueError, KeyError, AttributeError):  # no problem document
            sentence = (
                f"The server answered {answer.status_code} {answer.reason_phrase}: is {answer.url} onnx-bisect's?"
            )
        raise OptionError(sentence) if answer.is_client_error else BackendUnusableError(sentence)

    def _send_once(
        self,
        method: str,
        path: str,
        content: Path | None,
        to: Path | None,
        request: Mapping[str, Any],
    ) -> httpx2.Response:
        with ExitStack() as opened:
            file = None if content is None else opened.enter_context(content.open("rb"))
            body = None if file is None else iter(partial(file.read, _CHUNK), b"")
            answer = opened.enter_context(self._client.stream(method, path, content=body, **request))
            if to is None or not answer.is_success:
                answer.read()
            else:
                with to.open("wb") as received:
                    received.writelines(answer.iter_bytes(_CHUNK))
        self._reached = True
        return answer


def _pause(state: RetryCallState) -> float:
    """Seconds until the next try: as long as the server asks for, if that is longer."""
    planned = _PAUSES[state.attempt_number - 1]
    if state.outcome is None or state.outcome.failed:
        return planned
    after = state.outcome.result().headers.get("Retry-After", "")
    return max(planned, float(after) if after.isdecimal() else 0.0)


def _last(state: RetryCallState) -> httpx2.Response:
    """What came of the last try: its response, or its error."""
    assert state.outcome is not None  # noqa: S101 - it was tried
    answer: httpx2.Response = state.outcome.result()
    return answer
