"""Badges: seen by everybody who has the address, and telling nothing else."""

from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from onnxbisect.verdict import Status
from onnxbisect_api.routes.badge import Badge, Colour
from onnxbisect_db import lifecycle, tokens
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.given import NET, done, refusing_exp, report_on, running, uploaded
from support.db.scenes import new_job
from support.engine.report_factory import single

NET_LABEL = {"repo": "net"}


def address(callers: Callers, *labels: str, tenant: str = "") -> str:
    query = "&".join(f"label={quote(label)}" for label in labels)
    response = callers.reader(tenant).get(f"/v1/badge?{query}")
    assert response.status_code == 200, response.text
    assert response.json()["url"] in response.json()["markdown"]
    return str(response.json()["url"])


def seen(callers: Callers, url: str) -> str:
    """What the badge says to somebody without a token."""
    response = callers.nobody().get(url)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "image/svg+xml"
    assert response.headers["cache-control"] == "public, max-age=60"
    assert "sandbox" in response.headers["content-security-policy"]
    again = callers.nobody().get(url, headers={"If-None-Match": response.headers["etag"]})
    assert again.status_code == 304
    svg = ElementTree.fromstring(response.text)  # noqa: S314 - our own
    return "".join(svg.find("{http://www.w3.org/2000/svg}title").itertext())  # type: ignore[union-attr]


def test_a_badge_tells_of_the_newest_job_with_the_labels(callers: Callers, service: Service) -> None:
    url = address(callers, "repo:net")
    assert seen(callers, url) == "onnx-bisect: no job"
    done(service, report_on(), labels=NET_LABEL)
    assert seen(callers, url) == "onnx-bisect: compiles"
    done(service, report_on(single(NET, [1]), single(NET, [3])), labels=NET_LABEL)
    done(service, report_on(), labels={"repo": "other"})
    done(service, report_on(), labels=NET_LABEL, tenant="other")
    assert seen(callers, url) == "onnx-bisect: 2 culprits"
    unresolved = refusing_exp()
    unresolved["verdict"] = Status.UNRESOLVED
    done(service, unresolved, labels=NET_LABEL)
    assert seen(callers, url) == "onnx-bisect: unresolved"
    job = running(service, labels=NET_LABEL)
    assert seen(callers, url) == "onnx-bisect: running"
    with service.database.transaction() as session:
        lifecycle.cancel(session, job.id, "")
    assert seen(callers, url) == "onnx-bisect: cancelled"
    new_job(service.database, model_sha256=uploaded(service), labels=NET_LABEL)
    assert seen(callers, url) == "onnx-bisect: queued"


def test_a_badge_s_address_is_good_for_its_labels_only(callers: Callers, service: Service) -> None:
    done(service, refusing_exp(), labels={"repo": "secret"})
    url = address(callers, "repo:net", "branch:main")
    nobody = callers.nobody()
    last = "0" if url[-1] != "0" else "1"
    for wrong in (url.replace("net", "secret"), url.replace("label=branch%3Amain&", ""), url[:-1] + last):
        assert wrong != url
        assert nobody.get(wrong).status_code == 404
    assert nobody.get("/v1/badge.svg?label=repo:secret").status_code == 422
    assert nobody.get("/v1/badge?label=repo:net").status_code == 401
    assert callers.reader().get("/v1/badge").status_code == 422


def test_a_badge_ends_with_the_token_that_asked_for_it(callers: Callers, service: Service) -> None:
    url = address(callers, "repo:net")
    assert seen(callers, url)
    with service.database.transaction() as session:
        for token in tokens.list_all(session, ""):
            tokens.revoke(session, token.id, "")
    assert callers.nobody().get(url).status_code == 404


class TestPublicAddress:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"public_url": "https://bisect.example.com/npu/"})

    def test_is_what_readmes_show(self, callers: Callers) -> None:
        assert address(callers, "repo:net").startswith("https://bisect.example.com/npu/v1/badge.svg?label=repo%3Anet&")


def test_without_a_public_address_it_is_the_one_that_was_asked(callers: Callers) -> None:
    assert address(callers, "repo:net").startswith("http://service.test/v1/badge.svg?")


def test_no_token_is_in_the_address(callers: Callers) -> None:
    url = address(callers, "repo:net")
    assert "obk_" not in url
    seal = url.rpartition("=")[2]
    assert callers.nobody(f"Bearer {seal}").get("/v1/jobs").status_code == 401


def test_words_are_text() -> None:
    hostile = '"><script>alert(1)</script>&\x00\u202e'
    svg = Badge(title=hostile, message=hostile, colour=Colour.BAD).svg()
    assert "<script" not in svg
    tree = ElementTree.fromstring(svg)  # noqa: S314 - our own
    assert int(tree.attrib["width"]) < 800
