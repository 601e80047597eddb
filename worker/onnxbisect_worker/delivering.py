"""Sends one message of the outbox: as the Standard Webhooks specification says, or as the endpoint's chat takes it.

A request to an untrusted host takes bounded time and goes only to allowed addresses.
"""

import ipaddress
import json
import logging
import queue
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import httpcore2
import httpx2
from standardwebhooks import Webhook

from onnxbisect.errors import OnnxBisectError
from onnxbisect.report.text import clean, clip
from onnxbisect_db import deliveries
from onnxbisect_db.states import WebhookFormat
from onnxbisect_service import outbound
from onnxbisect_service.chat_messages import chat_message, refusal
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.context import Work

#: The addresses of a host.
Resolver = Callable[[str], Sequence[str]]

_ANSWER_BYTES = 2000


class TargetRefusedError(OnnxBisectError):
    """The host has no address to which webhooks may be sent."""


class UnknownHostError(OnnxBisectError):
    """The host's name does not resolve."""


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    """Status, headers by lower-case name, and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def resolved(host: str) -> Sequence[str]:
    """The addresses that the system's resolver returns."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)]


def post(
    url: httpx2.URL,
    headers: Mapping[str, str],
    body: bytes,
    *,
    seconds: float,
    allowed: outbound.Allowed,
    resolve: Resolver = resolved,
) -> HttpAnswer:
    """POST it, and read the beginning of the answer, within `seconds` altogether.

    Raises TargetRefusedError, UnknownHostError, TimeoutError, other OSError (TLS included), or httpcore2.ProtocolError
    if there was no answer. If only its body was broken off, the status counts.
    """
    target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    network = _Network(until=time.monotonic() + seconds, allowed=allowed, resolve=resolve)
    sent = {"Host": url.netloc.decode("ascii"), "Connection": "close", **headers}
    with (
        httpcore2.ConnectionPool(network_backend=network) as pool,
        pool.stream("POST", target, headers=list(sent.items()), content=body) as response,
    ):
        received = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        found = b""
        try:
            for chunk in response.iter_stream():
                found += chunk
                if len(found) >= _ANSWER_BYTES:
                    break
        except (OSError, httpcore2.ProtocolError):
            pass  # the rest of the body is not needed
        return HttpAnswer(status=response.status, headers=received, body=found[:_ANSWER_BYTES])


class _Network(httpcore2.NetworkBackend):
    """Connects to allowed addresses, with one deadline for everything."""

    def __init__(self, *, until: float, allowed: outbound.Allowed, resolve: Resolver) -> None:
        self._until = until
        self._allowed = allowed
        self._resolve = resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        found = [ipaddress.ip_address(address) for address in _in_time(self._resolve, host, _left(self._until))]
        addresses = [address for address in found if self._allowed.permits(host, address)]
        if found and not addresses:
            raise TargetRefusedError(outbound.refusal(host))
        failure: OSError = OSError("it has no address")
        for number, address in enumerate(addresses):
            try:
                # A silent address must not use up the time of the others.
                family = socket.AF_INET if address.version == 4 else socket.AF_INET6
                made = socket.socket(family, socket.SOCK_STREAM)
                try:
                    made.settimeout(_left(self._until) / (len(addresses) - number))
                    made.connect((str(address), port))
                except BaseException:
                    made.close()
                    raise
                return _Stream(made, self._until)
            except OSError as error:
                failure = error
        raise failure


class _Stream(httpcore2.NetworkStream):
    """A socket with one deadline for all operations; `timeout` arguments are ignored."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket = connected
        self._until = until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._socket.settimeout(_left(self._until))
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        while view:
            self._socket.settimeout(_left(self._until))
            try:
                view = view[self._socket.send(view) :]
            except TimeoutError:
                raise
            except OSError as error:
                # It may have answered before it closed: this makes httpcore2 read.
                raise httpcore2.WriteError(str(error)) from error

    def close(self) -> None:
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        try:
            self._socket.settimeout(_left(self._until))
            return _Stream(ssl_context.wrap_socket(self._socket, server_hostname=server_hostname), self._until)
        except BaseException:
            self._socket.close()
            raise

    def get_extra_info(self, info: str) -> None:
        """None: the pool needs no information, because the connection is used once."""


def _in_time(resolve: Resolver, host: str, seconds: float) -> Sequence[str]:
    """Resolve in a separate thread, because the system's resolver has no time limit."""
    answers: queue.SimpleQueue[Sequence[str] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolve(host))
        except OSError as error:
            answers.put(error)

    threading.Thread(target=ask, name=f"resolving {host}", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise UnknownHostError(f"The name {host} leads to no address.") from answer
    return answer


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


#: Seconds beyond the receiver's time limit after which a sender counts as dead.
_MARGIN = 30.0
#: The specification wants payloads below 20 kB.
_LARGEST = 20_000
#: The fields kept of a larger message; the rest can be requested.
_ESSENTIAL = frozenset({"job", "model", "search", "state", "verdict", "url", "page"})

_PLAIN_HEADERS = {"Content-Type": "application/json", "User-Agent": f"onnx-bisect/{version('onnx-bisect')}"}

_log = logging.getLogger(__name__)


def next_delivery(service: Service) -> Work | None:
    """Claim the next due message; the returned work sends it."""
    seconds = service.settings.webhook_seconds + _MARGIN
    sending = service.database.run(lambda session: deliveries.claim(session, seconds=seconds))
    return None if sending is None else partial(deliver, service, sending)


def deliver(service: Service, sending: deliveries.Sending, *, resolve: Resolver = resolved) -> None:
    """Send a claimed message, and store the outcome."""
    tried = _tried(sending, service.settings, resolve)
    jitter = random.random()  # noqa: S311 - receivers that were down together shall not be called together
    service.database.run(lambda session: deliveries.record(session, sending, tried, jitter=jitter))


def _tried(sending: deliveries.Sending, settings: Settings, resolve: Resolver) -> deliveries.Try:
    refused = outbound.complaint(sending.endpoint.url, settings.webhook_allow)
    if refused is not None:
        return deliveries.Try(status=None, milliseconds=0, problem=refused)
    form = WebhookFormat(sending.endpoint.format)
    seconds = settings.webhook_seconds
    start = time.monotonic()
    try:
        url, headers, body = _request(sending, form, settings.public_url)
        answer = post(
            url,
            headers,
            body.encode(),
            seconds=seconds,
            allowed=outbound.Allowed.read(settings.webhook_allow),
            resolve=resolve,
        )
    except (TargetRefusedError, UnknownHostError, OSError, httpcore2.ProtocolError) as error:
        return deliveries.Try(status=None, milliseconds=_since(start), problem=_problem(error, seconds))
    except Exception:  # otherwise the message would be retried for ever
        _log.exception("Webhook %s could not be sent.", sending.delivery.id)
        return deliveries.Try(
            status=None, milliseconds=_since(start), problem="It could not be sent: see the service's log."
        )
    text, problem = answer.body.decode(errors="replace"), ""
    if 200 <= answer.status < 300:
        problem = refusal(form, text)
    elif 300 <= answer.status < 400:
        to = clip(answer.headers.get("location", ""), 300) or "nowhere"
        problem = f"It redirects to {to}. Redirects are not followed: change the endpoint's URL."
    return deliveries.Try(
        status=answer.status,
        milliseconds=_since(start),
        answer="\n".join(clean(line) for line in text.splitlines()),
        problem=problem,
        retry_after=_retry_after(answer.headers.get("retry-after", "")),
    )


def _request(
    sending: deliveries.Sending, form: WebhookFormat, public_url: str | None
) -> tuple[httpx2.URL, dict[str, str], str]:
    """The address, the headers and the body."""
    url, data = httpx2.URL(sending.endpoint.url), dict(sending.delivery.payload["data"])
    if public_url and "job" in data:  # compose files pass unset variables as ""
        base = public_url.rstrip("/")
        data["url"] = f"{base}/v1/jobs/{data['job']}"
        data["page"] = f"{base}/jobs/{data['job']}"
    at = datetime.now(UTC)
    if form is WebhookFormat.JSON:
        body = _json({**sending.delivery.payload, "data": data})
        if len(body) >= _LARGEST:
            essential = {name: value for name, value in data.items() if name in _ESSENTIAL}
            body = _json({**sending.delivery.payload, "data": {**essential, "cut": True}})
        signatures = [Webhook(secret).sign(sending.delivery.id, at, body) for secret in sending.endpoint.secrets]
        signed = {
            "webhook-id": sending.delivery.id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": " ".join(signatures),
        }
        return url, {**_PLAIN_HEADERS, **signed}, body
    secret = next(iter(sending.endpoint.secrets), None)
    message = chat_message(form, {**sending.delivery.payload, "data": data}, secret=secret, at=at)
    return url.copy_merge_params(dict(message.query)) if message.query else url, _PLAIN_HEADERS, _json(message.body)


def _json(payload: Mapping[str, Any]) -> str:
    return json.dumps(payload, separators=(",", ":"))


def _problem(error: Exception, seconds: float) -> str:
    match error:
        case TargetRefusedError() | UnknownHostError():
            return str(error)
        case TimeoutError():
            return f"It took longer than {seconds:g} s."
        case ssl.SSLCertVerificationError():
            return clip(f"Its certificate is not accepted: {error.verify_message}", 300)
        case ssl.SSLError():
            return clip(f"It does not speak TLS as it should: {error.reason or error}", 300)
        case OSError():
            return clip(f"There is no connection: {error.strerror or error}", 300)
    return clip(f"It does not speak HTTP as it should: {error}", 300)


def _retry_after(asked: str) -> timedelta | None:
    """The delay of a Retry-After header, in seconds or as an HTTP date."""
    if re.fullmatch("[0-9]{1,9}", asked):
        return timedelta(seconds=int(asked))
    try:
        at = parsedate_to_datetime(asked)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:  # "-0000" in RFC 5322
        at = at.replace(tzinfo=UTC)
    return max(at - datetime.now(UTC), timedelta(0))


def _since(start: float) -> int:
    return round((time.monotonic() - start) * 1000)
