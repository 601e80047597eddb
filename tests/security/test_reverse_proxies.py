"""The nginx and Caddy configurations of docs/deployment.md, as they stand there, before a real API."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from onnxbisect_db import tokens
from onnxbisect_db.database import Database
from onnxbisect_db.states import Scope
from support.api.model_bytes import model
from support.api.served import served

DOCUMENT = Path(__file__).parents[2] / "docs" / "deployment.md"
HOST = "bisect.example.org"


def documented(language: str) -> str:
    """The one configuration of this language in the document."""
    [block] = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return str(block)


def replaced(text: str, changes: dict[str, str]) -> str:
    """Put the test's ports and certificate in place of the document's; each must stand there once."""
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} is not once in the document"
        text = text.replace(old, new)
    return text


def nginx(folder: Path, port: int, api: int) -> list[str]:
    server = replaced(
        documented("nginx"),
        {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/ssl/bisect.pem": f"{folder}/cert.pem",
            "/etc/ssl/bisect.key": f"{folder}/key.pem",
            "127.0.0.1:8321": f"127.0.0.1:{api}",
        },
    )
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid; error_log {folder}/log; events {{}} http {{ access_log off; {places} {server} }}"
    )
    return ["nginx", "-c", f"{folder}/nginx.conf", "-e", f"{folder}/log", "-g", "daemon off;"]


def caddy(folder: Path, port: int, api: int) -> list[str]:
    sites = replaced(
        documented("caddyfile"),
        {
            "{\n\tservers": f"{{\n\tadmin off\n\tauto_https disable_redirects\n\tdefault_sni {HOST}\n\tservers",
            f"{HOST} {{": f"https://{HOST}:{port} {{\n\tbind 127.0.0.1\n\ttls {folder}/cert.pem {folder}/key.pem",
            "127.0.0.1:8321": f"127.0.0.1:{api}",
        },
    )
    (folder / "Caddyfile").write_text(sites)
    return ["caddy", "run", "--config", f"{folder}/Caddyfile", "--adapter", "caddyfile"]


@contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    log = folder / "output"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "HOME": str(folder)})
    try:
        ends = time.monotonic() + 30
        while True:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:  # Caddy waits for streams that are open
            process.kill()
            process.wait(timeout=60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture(scope="module", params=[nginx, caddy])
def client(
    request: pytest.FixtureRequest, tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx2.Client]:
    """A client of the proxy, over TLS."""
    configure: Callable[[Path, int, int], list[str]] = request.param
    if shutil.which(configure.__name__) is None:
        pytest.skip(f"{configure.__name__} is not installed")
    here = tmp_path_factory.mktemp(configure.__name__)
    folder = here / "data"
    folder.mkdir()
    shutil.copy(tables, folder / "onnx-bisect.sqlite")
    database = Database(f"sqlite:///{folder / 'onnx-bisect.sqlite'}")
    with database.transaction() as session:
        token = tokens.issue(session, tenant="", name="test", scopes=(Scope.SUBMIT,)).text
    database.close()
    proxy = here / "proxy"
    proxy.mkdir()
    certificate = ["-addext", f"subjectAltName=DNS:{HOST}", "-keyout", f"{proxy}/key.pem", "-out", f"{proxy}/cert.pem"]
    request_one = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST}", "-days", "2"]
    subprocess.run([*request_one, *certificate], check=True, capture_output=True)
    port = free_port()
    with (
        served(folder, public_url=f"https://{HOST}", trusted_proxies="127.0.0.1", failures="3/day") as api,
        running(configure(proxy, port, api.port), proxy, port),
        httpx2.Client(
            base_url=f"https://127.0.0.1:{port}",
            headers={"Host": HOST, "Authorization": f"Bearer {token}"},
            verify=False,  # the test's own certificate, made a moment ago
            timeout=60,
        ) as client,
    ):
        yield client


def test_the_service_knows_the_scheme_and_keeps_redirects_inside(client: httpx2.Client) -> None:
    assert client.get("/livez").status_code == 200
    answer = client.get("/v1/jobs/?limit=1")
    assert (answer.status_code, answer.headers["location"]) == (307, "/v1/jobs?limit=1")
    token = client.headers["authorization"].removeprefix("Bearer ")
    cookie = client.post("/login", data={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    assert "; secure" in cookie.headers["set-cookie"].lower()


def test_a_forged_address_does_not_pass_the_limit_of_wrong_tokens(client: httpx2.Client) -> None:
    statuses = [
        client.get(
            "/v1/models", headers={"Authorization": "Bearer obk_x_y", "X-Forwarded-For": f"10.0.0.{number}"}
        ).status_code
        for number in range(5)
    ]
    assert statuses == [401, 401, 401, 429, 429]


def test_uploads_of_any_size_and_events_of_a_waiting_job_pass(client: httpx2.Client) -> None:
    uploaded = client.put("/v1/models", content=model(size=20 << 20))
    assert uploaded.status_code == 201, uploaded.text
    job = client.post("/v1/jobs", json={"model": uploaded.json()["sha256"], "targets": [{"backend": "onnxruntime"}]})
    assert job.status_code == 202, job.text
    with client.stream("GET", f"/v1/jobs/{job.json()['id']}/events") as events:
        # no worker runs, so the stream stays open: an event that a proxy holds back would time out
        first = next(line for line in events.iter_lines() if line.startswith("event:"))
    assert first.startswith("event:")
