"""Messages to chats, held to what the vendors' documents say of them."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from onnxbisect_db.states import ANNOUNCED, CHAT_EVENTS, EventType, WebhookFormat
from onnxbisect_service.chat_messages import WITH_SECRET, chat_message, refusal
from support import TESTS
from support.worker.chat_schemas import SCHEMAS

AT = datetime(2026, 11, 21, 23, 18, 54, tzinfo=UTC)
ROBOT = "this is secret"
PAGE = "https://bisect.example/jobs/01a2"
CHATS = [form for form in WebhookFormat if form is not WebhookFormat.JSON]
#: Bytes of a body: Feishu takes 20 kB, Teams 28 kB, as the same documents say.
LARGEST = 20_000

HOSTILE = "<@all> <!channel> [x](http://evil) **b** `c` @13800000000 & <at id=all></at> \u202e"


def target(**said: Any) -> dict[str, Any]:
    return {
        "headline": "net.onnx does not compile for npu",
        "refused": [{"ops": ["Sin"], "places": 6, "message": "no Sin", "cause": "Sin of rank 6 or more"}],
        "more": 3,
        "backend": "npu",
        "options": {},
        "tool": "npuc",
        "version": "1",
        "verdict": "fail",
        "problem": "",
        "repaired": "pass",
        **said,
    }


def events(name: str = "net.onnx", words: str = "no Sin", *, page: str | None = PAGE) -> Iterator[dict[str, Any]]:
    """One of each type, as the service writes them."""
    job = {"job": "01a2", "model": name, "state": "done", "verdict": "fail", "labels": {"repo": words[:255]}}
    refused = {"ops": [words[:120]] * 10, "places": 6, "message": words[:300], "cause": words[:300]}
    culprit = {"ops": ["Sin", words], "message": words}
    said: dict[EventType, dict[str, Any]] = {
        EventType.JOB_STARTED: {**job, "verdict": None},
        EventType.CULPRIT_FOUND: {**job, "search": "s", "name": "n", "culprit": culprit},
        EventType.JOB_REPAIRED: {**job, "target": 1, "verdict": None, "changes": 1, "left": 0, "problem": words},
        EventType.JOB_MEASURED: {
            **job,
            **{"target": 1, "ending": "minimal", "headline": words, "keep": 1, "asks": 9, "problem": ""},
        },
        EventType.JOB_FINISHED: {**job, "targets": [target(refused=[refused] * 10, headline=words)] * 32},
        EventType.JOB_FAILED: {**job, "state": "failed", "problem": words},
        EventType.CULPRIT_FIXED: {**job, "backend": "npu", "tool": "t", "version": "2", "culprit": culprit},
        EventType.CULPRIT_RETURNED: {**job, "backend": "npu", "tool": "t", "version": "2", "culprit": culprit},
        EventType.PING: {"endpoint": "e"},
    }
    for kind, data in said.items():
        yield {"type": kind, "timestamp": AT.isoformat(), "data": {**data, **({"page": page} if page else {})}}


@pytest.mark.parametrize("form", CHATS)
def test_every_event_is_as_the_vendor_says(form: WebhookFormat) -> None:
    validator = Draft202012Validator(SCHEMAS[form])
    names = ["net.onnx", HOSTILE, "模型" * 500, "x" * 5000]
    secrets = [None, "SEC0123"] if form in WITH_SECRET else [None]
    told = [event for name in names for page in (PAGE, None) for event in events(name, name, page=page)]
    assert {event["type"] for event in told} == set(ANNOUNCED)
    for event in told:
        for secret in secrets:
            body = chat_message(form, event, secret=secret, at=AT).body
            assert list(validator.iter_errors(body)) == []
            assert len(json.dumps(body).encode()) <= LARGEST
            if form is WebhookFormat.WECOM:
                assert len(body["text"]["content"].encode()) <= 2048


def shown(form: WebhookFormat, event: dict[str, Any]) -> str:
    """All text that the chat shows."""

    def strings(value: Any) -> Iterator[str]:
        match value:
            case dict():
                for inner in value.values():
                    yield from strings(inner)
            case list():
                for inner in value:
                    yield from strings(inner)
            case str():
                yield value

    return "\n".join(strings(chat_message(form, event, secret=None, at=AT).body))


@pytest.mark.parametrize("form", CHATS)
def test_the_end_of_a_job_says_model_verdict_ops_causes_and_where_it_is(form: WebhookFormat) -> None:
    [event] = [it for it in events() if it["type"] == EventType.JOB_FINISHED]
    event["data"]["targets"] = [target(), target(headline="", verdict=None, problem="no licence", refused=[], more=0)]
    seen = shown(form, event)
    for words in (
        "onnx-bisect: net.onnx: 1 of 2 targets fails",
        "net.onnx does not compile for npu",
        "- Sin at 6 places: Sin of rank 6 or more (no Sin)",
        "- and 3 more",
        "The repaired model compiles.",
        "npu: no licence",
        "repo: no Sin",
        PAGE,
    ):
        assert words in seen


@pytest.mark.parametrize(
    ("verdict", "targets", "title"),
    [
        ("fail", [target(headline="net.onnx compiles for npu, and computes other numbers")], "computes other numbers"),
        ("pass", [target(headline="net.onnx compiles for npu", verdict="pass")], "net.onnx compiles for npu"),
        ("fail", [target(), target(), target(verdict="pass")], "net.onnx: 2 of 3 targets fail"),
        ("pass", [target(verdict="pass")] * 2, "net.onnx: compiles for 2 targets"),
        ("unresolved", [target(verdict="pass"), target(verdict="unresolved")], "net.onnx: no verdict"),
        ("unresolved", [target(verdict="unresolved", repaired="unresolved")], "net.onnx does not compile for npu"),
    ],
)
def test_the_title_says_what_the_reports_say(verdict: str, targets: list[dict[str, Any]], title: str) -> None:
    data = {"job": "01a2", "model": "net.onnx", "state": "done", "verdict": verdict, "labels": {}, "targets": targets}
    event = {"type": EventType.JOB_FINISHED, "timestamp": AT.isoformat(), "data": data}
    body = chat_message(WebhookFormat.WECOM, event, secret=None, at=AT).body["text"]["content"]
    first, *rest = body.splitlines()
    assert first.endswith(title)
    assert rest
    assert "repaired model does not" not in body


@pytest.mark.parametrize("form", CHATS)
def test_a_name_is_never_markup(form: WebhookFormat) -> None:
    for event in events(HOSTILE, HOSTILE):
        seen = shown(form, event)
        assert "\u202e" not in seen
        if form is WebhookFormat.WECOM:
            assert "<@" not in seen
        if form is WebhookFormat.SLACK:
            body = chat_message(form, event, secret=None, at=AT).body
            marked = [it["text"]["text"] for it in body["blocks"] if it["text"]["type"] == "mrkdwn"]
            assert marked == [f"<{PAGE}|Open the job>"]
            assert "<" not in body["text"]


def test_feishu_signs_as_its_document_does() -> None:
    body = chat_message(WebhookFormat.FEISHU, next(events()), secret=ROBOT, at=AT).body
    # the document's Python, for timestamp and secret
    to_sign = f"{body['timestamp']}\n{ROBOT}"
    code = hmac.new(to_sign.encode("utf-8"), digestmod=hashlib.sha256).digest()
    assert body["sign"] == base64.b64encode(code).decode("utf-8")
    assert body["timestamp"] == str(int(AT.timestamp()))


def test_dingtalk_signs_as_its_document_does() -> None:
    query = chat_message(WebhookFormat.DINGTALK, next(events()), secret=ROBOT, at=AT).query
    to_sign = f"{query['timestamp']}\n{ROBOT}"
    code = hmac.new(ROBOT.encode(), to_sign.encode("utf-8"), digestmod=hashlib.sha256).digest()
    assert query["sign"] == base64.b64encode(code).decode()
    assert query["timestamp"] == str(int(AT.timestamp() * 1000))


@pytest.mark.parametrize(
    ("form", "answer", "says"),
    [
        (WebhookFormat.FEISHU, '{"code":0,"msg":"success","data":{},"StatusCode":0}', ""),
        (WebhookFormat.FEISHU, '{"code":19021,"msg":"sign match fail or timestamp is not within one hour"}', "19021"),
        (WebhookFormat.DINGTALK, '{"errcode":0,"errmsg":"ok"}', ""),
        (WebhookFormat.DINGTALK, '{"errcode":310000,"errmsg":"sign not match"}', "sign not match"),
        (WebhookFormat.WECOM, '{"errcode":0,"errmsg":"ok"}', ""),
        (WebhookFormat.WECOM, '{"errcode":93000,"errmsg":"invalid webhook url"}', "93000"),
        (WebhookFormat.WECOM, "<html>", "is the format right?"),
        (WebhookFormat.FEISHU, '["x"]', "is the format right?"),
        (WebhookFormat.SLACK, "ok", ""),
        (WebhookFormat.TEAMS, "", ""),
        (WebhookFormat.JSON, "anything", ""),
    ],
)
def test_what_a_chat_answers_with_status_200_may_be_a_refusal(form: WebhookFormat, answer: str, says: str) -> None:
    found = refusal(form, answer)
    assert (says in found) if says else (found == "")


def test_the_document_names_every_format() -> None:
    document = (TESTS.parent / "docs" / "webhooks.md").read_text(encoding="utf-8")
    assert all(f"`{form}`" in document for form in WebhookFormat)
    assert all(f"`{kind}`" in document for kind in CHAT_EVENTS)
