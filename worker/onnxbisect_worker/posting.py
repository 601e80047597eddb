"""One HTTP request to an untrusted host: in bounded time, and only to allowed addresses.

The name is resolved once, and the connection goes to a checked address, so a later DNS answer changes nothing. Proxies,
cookies, redirects and compressed answers are not supported.
"""

import ipaddress
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import httpcore2
import httpx2

from onnxbisect.errors import OnnxBisectError
from onnxbisect_service.outbound import Address, Allowed, refusal

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
    allowed: Allowed,
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
        return HttpAnswer(status=response.status, headers=received, body=_beginning(response))


def _beginning(response: httpcore2.Response) -> bytes:
    found = b""
    try:
        for chunk in response.iter_stream():
            found += chunk
            if len(found) >= _ANSWER_BYTES:
                break
    except (OSError, httpcore2.ProtocolError):
        pass  # the rest of the body is not needed
    return found[:_ANSWER_BYTES]


class _Network(httpcore2.NetworkBackend):
    """Connects to allowed addresses, with one deadline for everything."""

    def __init__(self, *, until: float, allowed: Allowed, resolve: Resolver) -> None:
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
            raise TargetRefusedError(refusal(host))
        failure: OSError = OSError("it has no address")
        for number, address in enumerate(addresses):
            try:
                # A silent address must not use up the time of the others.
                return _Stream(_connected(address, port, _left(self._until) / (len(addresses) - number)), self._until)
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


def _connected(address: Address, port: int, seconds: float) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(seconds)
        made.connect((str(address), port))
    except BaseException:
        made.close()
        raise
    return made


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
