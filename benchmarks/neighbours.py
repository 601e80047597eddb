"""How long one tenant waits for the list of its jobs while another one, or a bucket, makes requests slow."""

import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil

import onnx

from installation import Installed
from onnxbisect_db import models, tokens
from onnxbisect_db.states import Scope

#: Requests that hang at a time, each with a token of its own.
_MANY = 45
_TIMEOUT = 120.0
#: Loops that never end, one after another: reading them takes half a minute.
_LOOPS = 200


@dataclass(frozen=True, kw_only=True)
class Waited:
    """Seconds of each request of the other tenant, and how many of the slow requests were refused at once."""

    seconds: tuple[float, ...]
    refused: int

    def at(self, part: float) -> float:
        """Milliseconds, of the percentile."""
        return 1000 * sorted(self.seconds)[ceil(part * len(self.seconds)) - 1]


def measure(here: Installed, seconds: float) -> Mapping[str, Waited]:
    """What the other tenant waits while nothing else happens, during inspections, and with a silent bucket."""
    with here.service.database.transaction() as session:
        slow = [
            tokens.issue(session, tenant="slow", name="benchmark", scopes=[Scope.SUBMIT]).text for _ in range(_MANY)
        ]
        other = tokens.issue(session, tenant="other", name="benchmark", scopes=[Scope.READ]).text
    content = _loops()
    sha256 = here.service.files.put([content]).sha256
    with here.service.database.transaction() as session:
        models.keep(session, tenant="slow", sha256=sha256, name="loops.onnx", size=len(content))
    inspections = [partial(_status, "POST", "/v1/inspect", token, {"model": sha256}) for token in slow]
    ready = [partial(_status, "GET", "/readyz", "", None)] * _MANY
    found = {
        "nothing": _waited(here, other, [], seconds),
        "inspections": _waited(here, other, inspections, seconds),
    }
    with _silent_bucket():
        found["bucket"] = _waited(here, other, [*ready, *inspections], seconds)
    return found


def _waited(here: Installed, other: str, slow: Sequence[Callable[[int], int]], seconds: float) -> Waited:
    """A hundred requests a second at most, while the slow ones are repeated as soon as they are answered."""
    taken = []

    def hang(request: Callable[[int], int]) -> int:
        count = 0
        while time.monotonic() < ends:
            try:
                status = request(api.port)
            except OSError:  # the service was stopped
                break
            if status in (429, 503):
                count += 1
                time.sleep(1.0)
        return count

    with here.api() as api, ThreadPoolExecutor(len(slow) or 1) as pool:
        for _ in range(20):  # a service that has just started imports with its first requests
            _status("GET", "/v1/jobs", other, None, api.port)
        ends = time.monotonic() + seconds
        hanging = [pool.submit(hang, request) for request in slow]
        while time.monotonic() < ends:
            began = time.monotonic()
            assert _status("GET", "/v1/jobs", other, None, api.port) == 200
            taken.append(time.monotonic() - began)
            time.sleep(0.01)
        os.kill(api.pid, 9)  # it would finish the requests
        refused = sum(each.result() for each in hanging)
    return Waited(seconds=tuple(taken), refused=refused)


def _status(method: str, path: str, token: str, body: object, port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    content = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, content, {**headers, "Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def _loops() -> bytes:
    loops = "".join(
        f"""v{it + 1} = Loop (, go, v{it}) <
            body = b{it} (int64 i{it}, bool c{it}, int64 a{it}) => (bool d{it}, int64 e{it}) {{
            d{it} = Identity (c{it})
            e{it} = Add (a{it}, i{it})
        }}>\n"""
        for it in range(_LOOPS)
    )
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1] x) => (int64 y) <bool go = {{1}}, int64 v0 = {{0}}> {{ {loops} y = Identity (v{_LOOPS}) }}"""
    return onnx.parser.parse_model(text).SerializeToString()


@contextmanager
def _silent_bucket() -> Iterator[None]:
    """Files of the service are in a bucket whose server takes connections and never answers."""
    told = {"ONNXBISECT_FILES": "s3://bucket/here", "AWS_DEFAULT_REGION": "none"}
    told |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        told["AWS_ENDPOINT_URL_S3"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
        before = dict(os.environ)
        os.environ.update(told)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
