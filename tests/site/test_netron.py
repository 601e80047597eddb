"""A culprit's model in Netron: an address without a token, for one file, for an hour, as long as the token is good."""

from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from onnxbisect_api.routes import shared as route
from onnxbisect_db import tokens
from onnxbisect_db.database import now
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.given import NET, ONNX, done, report_on
from support.engine.report_factory import single


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """At an address that Netron's site can load from."""
    return settings.model_copy(update={"public_url": "https://npu.example"})


@pytest.fixture
def job(service: Service) -> Job:
    return done(service, report_on(single(NET, [1], "no Exp"), single(NET, [2], "no Tanh")))


def shared(client: TestClient, job: Job, number: int = 1) -> str:
    """The address that the page gives to Netron, as a path."""
    text = client.get(f"/jobs/{job.id}/culprits/{number}/netron", headers={"accept": "text/html"}).text
    onward = text.partition('href="https://netron.app/?')[2].partition('"')[0].replace("&amp;", "&")
    asked = parse_qs(onward)
    assert asked["identifier"] == [f"0{number}-{('Exp', 'Tanh')[number - 1]}.onnx"]
    address = urlsplit(asked["url"][0])
    assert (address.scheme, address.netloc) == ("https", "npu.example")
    return f"{address.path}?{address.query}"


def test_netron_gets_the_file_and_no_other_site_does(callers: Callers, job: Job) -> None:
    answer = callers.nobody().get(shared(callers.reader(), job) + "&cb=1", headers={"Origin": "https://netron.app"})
    assert (answer.status_code, answer.content) == (200, ONNX)
    assert answer.headers["access-control-allow-origin"] == "https://netron.app"
    client = callers.reader()
    plain = client.get(f"/v1/jobs/{job.id}/culprits/1/model.onnx", headers={"Origin": "https://netron.app"})
    assert plain.status_code == 200
    assert "access-control-allow-origin" not in plain.headers


def test_a_ticket_is_for_one_file(callers: Callers, service: Service, job: Job) -> None:
    address = shared(callers.reader(), job)
    other = done(service, report_on(single(NET, [1], "no Exp")), labels={"n": "2"})
    nobody = callers.nobody()
    assert nobody.get(address).status_code == 200
    for wrong in (
        address.replace("/culprits/1/", "/culprits/2/"),
        address.replace(job.id, other.id),
        address.replace("target=1", "target=2"),
        address.replace("target=1&", ""),
        address[:-1] + ("0" if address[-1] != "0" else "1"),
        address.partition("ticket=")[0] + "ticket=a.b",
        address.partition("ticket=")[0] + "ticket=",
    ):
        assert nobody.get(wrong).status_code == 403, wrong
        assert nobody.get(wrong).headers.get("access-control-allow-origin") is None
    assert nobody.get(address.partition("?")[0]).status_code == 422
    ticket = parse_qs(urlsplit(address).query)["ticket"][0]
    assert nobody.get(f"/v1/jobs/{job.id}/culprits/1/compiler.log?ticket={ticket}").status_code == 401


def test_nobody_makes_a_ticket_last_longer(callers: Callers, job: Job) -> None:
    address = shared(callers.reader(), job)
    head, _, ticket = address.partition("ticket=")
    token_id, until, seal = ticket.split(".")
    later = f"{head}ticket={token_id}.{int(until) + 3600}.{seal}"
    assert callers.nobody().get(later).status_code == 403


def test_a_ticket_ends_after_an_hour(callers: Callers, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    address = shared(callers.reader(), job)
    after = route.GOOD_FOR + timedelta(seconds=1)
    real = now

    def late(session: Session) -> datetime:
        return real(session) + after

    monkeypatch.setattr(route, "now", late)
    assert callers.nobody().get(address).status_code == 403


def test_a_ticket_ends_with_its_token(callers: Callers, service: Service, job: Job) -> None:
    with service.database.transaction() as session:
        issued = tokens.issue(session, tenant="", name="mine", scopes=(Scope.READ,))
    address = shared(callers.nobody(f"Bearer {issued.text}"), job)
    assert callers.nobody().get(address).status_code == 200
    with service.database.transaction() as session:
        tokens.revoke(session, issued.token.id, "")
    assert callers.nobody().get(address).status_code == 403


def test_another_tenant_gets_no_ticket(callers: Callers, job: Job) -> None:
    for path in ("1/netron", "3/netron", "1/netron?target=2"):
        client = callers.reader("else") if path == "1/netron" else callers.reader()
        assert client.get(f"/jobs/{job.id}/culprits/{path}").status_code == 404


class TestPlainHttp:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"public_url": "http://npu.example:8000"})

    def test_where_netron_cannot_load_it_there_is_the_download(self, callers: Callers, job: Job) -> None:
        text = callers.reader().get(f"/jobs/{job.id}/culprits/1/netron", headers={"accept": "text/html"}).text
        assert "ticket=" not in text
        assert "cannot load it from here" in text
        assert f'href="/v1/jobs/{job.id}/culprits/1/model.onnx?target=1"' in text
