"""What a real installation has to show: a job in every state, an endpoint that was called, a token."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from support import TESTS
from support.api import model_bytes
from support.site import hostile
from support.site.browser import Installation
from support.worker.webhook_receiver import saying

#: The prompt encoder of Segment Anything: 44 units, of which three ops are refused here.
NET = (TESTS / "models" / "sam_part1_prompt__ts11.onnx").read_bytes()
REFUSED = {"deny": "Sin,Cos,Abs", "report": "none"}
_ANSWER = f"HTTP/1.1 500 No\r\nContent-Type: text/html\r\n\r\n{hostile.LINE}</pre><script>alert('answer')</script>"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Ids of what is there. `done` has one target, `several` two, which ended apart."""

    done: str
    several: str
    hostile: str
    failed: str
    running: str
    webhook: str
    probe: str
    hostile_probe: str
    culprit: str


def submit(client: httpx2.Client, content: bytes, *targets: tuple[str, dict[str, str]], **wanted: Any) -> str:
    """A new job; its id. `name` is the model's, `files` are its external data."""
    name, data = wanted.pop("name", "prompt_encoder.onnx"), wanted.pop("files", {})
    asked = {"targets": [{"backend": backend, "options": options} for backend, options in targets], **wanted}
    answer = client.post("/v1/jobs", data={"job": json.dumps(asked)}, files={"model": (name, content), **data})
    assert answer.status_code == 202, answer.text
    job: str = answer.json()["id"]
    return job


def ended(client: httpx2.Client, job: str) -> dict[str, Any]:
    """The job, once it has."""
    for _ in range(6):
        found: dict[str, Any] = client.get(f"/v1/jobs/{job}", params={"wait": 20}).json()
        if found["ended_at"] is not None:
            return found
    raise AssertionError(f"the job does not end: {found}")


@pytest.fixture(scope="session")
def scene(installation: Installation) -> Iterator[Scene]:
    """Made once, and then only looked at."""
    with installation.client() as client, saying(lambda: [_ANSWER.encode()]) as receiver:
        webhook = client.post("/v1/webhooks", json={"url": f"{receiver}{'long' * 60}"}).json()["id"]
        client.post("/v1/tokens", json={"name": hostile.LINE, "scopes": ["read"]}).raise_for_status()
        done = submit(client, NET, ("whitelist", REFUSED), labels={"repo": "net", "branch": "main"})
        several = submit(client, NET, ("whitelist", {"profile": "pulsar2-ax650"}), ("whitelist", {"deny": "Sin"}))
        attack = submit(
            client,
            hostile.model(),
            ("hostile", {}),
            ("whitelist", {"deny": f"Exp,{hostile.LINE}"}),
            name=f"{hostile.LINE}.onnx",
            labels={"repo": hostile.LINE, "long": "x" * 255},
        )
        failed = submit(
            client, model_bytes.model(b"no model"), ("whitelist", {"deny": "Exp"}), name=f"{hostile.LINE}.onnx"
        )
        asked = submit(client, NET, ("slow", REFUSED), budget={"calls": 6})
        for job in (done, several, attack, failed, asked):
            ended(client, job)
        # what was asked before is known at once; the next question is asked until the installation ends
        client.patch("/v1/backends/slow", json={"at_most": 1}).raise_for_status()
        running = submit(client, NET, ("slow", {**REFUSED, "delay": "500"}), labels={"repo": "net"})
        probes = [client.get(f"/v1/jobs/{job}/probes?target=1").json() for job in (done, attack)]
        failing = [next(probe["id"] for probe in asked if probe["verdict"] == "fail") for asked in probes]
        _until(lambda: client.get(f"/v1/jobs/{running}").json()["targets"][0]["units"] > 0)
        _until(lambda: client.get(f"/v1/webhooks/{webhook}/deliveries").json()[0]["tries"])
        yield Scene(
            done=done,
            several=several,
            hostile=attack,
            failed=failed,
            running=running,
            webhook=webhook,
            probe=failing[0],
            hostile_probe=failing[1],
            culprit=client.get("/v1/culprits?target=hostile").json()[0]["id"],
        )


def _until(holds: Any) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, "it does not come"
        time.sleep(0.1)
