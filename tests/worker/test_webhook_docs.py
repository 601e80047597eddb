"""What docs/webhooks.md tells the authors of receivers, held to what the service sends for a real job."""

import json
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from onnxbisect_db import deliveries, endpoints, jobs, models
from onnxbisect_db.endpoints import rotate
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.states import ANNOUNCED
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service, open_service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.running import embedded
from support import TESTS
from support.worker.webhook_receiver import Message, Receiver

DOCUMENT = (TESTS.parent / "docs" / "webhooks.md").read_text(encoding="utf-8")
MODEL = TESTS / "models" / "sam_part1_prompt__ts11.onnx"
RECEIVERS = ("receive", "receive_by_hand")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def receivers() -> dict[str, Any]:
    """The functions of the document."""
    found: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, found)  # noqa: S102 - it is our own document
    return found


def shape(value: Any) -> Any:
    """Names and types: what an author of a receiver relies on. Labels are whatever somebody chose."""
    if isinstance(value, dict):
        return {name: "…" if name == "labels" else shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else type(value).__name__


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Message], tuple[str, ...]]:
    """What a receiver gets of a ping and of a job with two culprits, and the secrets of its endpoint."""
    receiver = Receiver()
    receiver.up()
    made = Settings(data=tmp_path_factory.mktemp("data"), webhook_allow=("127.0.0.1",), public_url="https://b.example")
    service = open_service(made)
    service.database.upgrade()
    secrets = _ordered(service, receiver.url)
    everything = embedded(service)
    everything.start()
    while not any(b'"job.f' in message.body for message in receiver.messages):
        time.sleep(0.05)
    everything.stop()
    service.close()
    receiver.down()
    return receiver.messages, secrets


def _ordered(service: Service, url: str) -> tuple[str, ...]:
    sha256 = service.files.put([MODEL.read_bytes()]).sha256
    target = NewTarget(backend="whitelist", options={"deny": "Sin,Abs"})
    wanted = NewJob(
        model_sha256=sha256, targets=(target,), request=SearchSpec().to_json(), labels={"commit": "9f1c2ab"}
    )
    with service.database.transaction() as session:
        endpoint = endpoints.add(session, tenant="", url=url)
        deliveries.ping(session, endpoint)
        rotate(session, endpoint.id, "")
        models.keep(session, tenant="", sha256=sha256, name=MODEL.name, size=1)
        jobs.create(session, wanted, tenant="")
        return tuple(endpoint.secrets)


@pytest.mark.long
@pytest.mark.parametrize("name", RECEIVERS)
def test_receivers_of_the_document_verify_what_is_sent(name: str, sent: tuple[list[Message], tuple[str, ...]]) -> None:
    messages, secrets = sent
    receive = receivers()[name]
    stranger = f"whsec_{'A' * 43}="
    assert len(secrets) == 2
    for message in messages:
        for secret in secrets:
            assert receive(secret, message.headers, message.body) == json.loads(message.body)
        assert receive(stranger, message.headers, message.body) is None
        assert receive(secrets[0], message.headers, message.body.replace(b"9f1c2ab", b"0000000") + b" ") is None
        assert receive(secrets[0], {**message.headers, "webhook-timestamp": "1795303135"}, message.body) is None


def test_payloads_have_the_fields_of_the_document(sent: tuple[list[Message], tuple[str, ...]]) -> None:
    messages, secrets = sent
    payloads = [message.verified(secrets[0]) for message in messages]
    assert sorted(payload["type"] for payload in payloads) == [
        *("culprit.found", "culprit.found", "job.finished", "job.started", "webhook.ping")
    ]
    request, ping = blocks("http")[0].split("\n\n")
    shown = [json.loads(block) for block in (*blocks("json"), ping)]
    assert [example["type"] for example in shown] == ["culprit.found", "job.finished", "webhook.ping"]
    for example in shown:
        for payload in payloads:
            if payload["type"] == example["type"]:
                assert shape(payload) == shape(example)
    for header in re.findall(r"^([\w-]+): ", request, re.MULTILINE):
        assert all(header.lower() in message.headers for message in messages)


def test_the_signature_of_the_document_is_that_of_its_message() -> None:
    request, body = blocks("http")[0].split("\n\n")
    headers = dict(re.findall(r"^(webhook-[\w-]+): (.*)$", request, re.MULTILINE))
    [secret] = re.findall(r"`(whsec_[^`]+)`", DOCUMENT)
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    assert Webhook(secret).sign(headers["webhook-id"], at, body.strip()) == headers["webhook-signature"]


def test_the_document_knows_every_event_and_every_wait() -> None:
    assert set(re.findall(r"^\| `(\w+\.\w+)` \|", DOCUMENT, re.MULTILINE)) == set(ANNOUNCED)
    waits = re.search(r"at once, then after ([^.]*?), each", DOCUMENT.replace("\n", " "))
    assert waits is not None
    unit = {"s": 1, "min": 60, "h": 3600}
    said = [int(number) * unit[name] for number, name in re.findall(r"(\d+) (s|min|h)\b", waits[1])]
    assert said == [int(wait.total_seconds()) for wait in deliveries.SCHEDULE[1:]]
