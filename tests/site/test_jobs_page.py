"""The list of jobs: what it says of each, how one is found, how it keeps itself up to date."""

from callers import Callers
from given import done, refusing_exp, running
from starlette.testclient import TestClient

from onnxbisect_worker.service import Service


def rows(client: TestClient, query: str = "") -> str:
    """What is in the table."""
    answer = client.get(f"/jobs{query}")
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_job_is_shown_with_its_verdict_and_its_culprits(callers: Callers, service: Service) -> None:
    job = done(service, refusing_exp(), labels={"repo": "net"})
    text = rows(callers.reader())
    assert f'href="/jobs/{job.id}"' in text
    assert "Does not compile" in text
    assert "<code>Exp</code>" in text
    assert "/jobs?label=repo%3Anet" in text
