"""Messages of the outbox reach real receivers, who verify them; nothing that a receiver does stops the service."""

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from standardwebhooks import Webhook, WebhookVerificationError

from onnxbisect_db import deliveries, endpoints, lifecycle
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.states import DeliveryState, EventType, WebhookFormat
from onnxbisect_db.tables import Delivery, Endpoint
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.delivering import deliver, next_delivery
from support.db.scenes import Clock, asking, end, new_job
from support.examples import examples
from support.worker.webhook_receiver import Receiver, dripping, saying

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere"


class Sender:
    """The service as the sender of webhooks, on a clock that only the test moves."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.database = Database(f"sqlite:///{folder / 'db.sqlite'}", clock=self.clock, durable=False)
        self.database.upgrade()
        self.service = self.with_settings()

    def with_settings(self, **changed: Any) -> Service:
        made = Settings(**{"webhook_allow": ("127.0.0.1",), "public_url": "https://bisect.example/", **changed})
        self.service = Service(settings=made, database=self.database, files=Files(Path()))
        return self.service

    def endpoint(self, url: str, *events: EventType) -> Endpoint:
        return self.database.run(lambda session: endpoints.add(session, tenant="", url=url, events=events))

    def ping(self, endpoint: Endpoint) -> str:
        return self.database.run(lambda session: deliveries.ping(session, session.get_one(Endpoint, endpoint.id)).id)

    def pinged(self, url: str) -> dict[str, Any]:
        """The only try of a message to that URL."""
        message = self.ping(self.endpoint(url))
        self.send(message)
        [tried] = self.row(message).tries
        return dict(tried)

    def send(self, message: str, **how: Any) -> None:
        """Send what is due, which is to be this message if anything."""
        sending = self.database.run(lambda session: deliveries.claim(session, seconds=30))
        if sending is not None:
            assert sending.delivery.id == message
            deliver(self.service, sending, **how)

    def row(self, message: str) -> Delivery:
        with self.database.session() as session:
            return session.get_one(Delivery, message)

    def rows(self) -> list[Delivery]:
        with self.database.session() as session:
            return list(session.scalars(select(Delivery).order_by(Delivery.id)))

    def work(self, seconds: float, step: float = 1) -> None:
        """Time goes by: at each step what is due is sent."""
        until = self.clock.at + timedelta(seconds=seconds)
        while self.clock.at < until:
            while (send := next_delivery(self.service)) is not None:
                send()
            self.clock.forward(step)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sender]:
    made = Sender(tmp_path_factory.mktemp("outbox"))
    yield made
    made.database.close()


@pytest.fixture
def sender(opened: Sender) -> Sender:
    """One database serves all tests: each adds to it what is its own, and finds no endpoint of those before."""
    with opened.database.transaction() as session:
        for endpoint in session.scalars(select(Endpoint)):
            session.delete(endpoint)
    opened.with_settings()
    return opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    made.up()
    yield made
    made.down()


def test_a_receiver_verifies_what_happens_to_a_job(sender: Sender, receiver: Receiver) -> None:
    endpoint = sender.endpoint(receiver.url)
    job = asking(sender.database, [], labels={"commit": "0123abc"})
    end(sender.database, job.searches[0].id)
    sender.work(1)
    payloads = [message.verified(endpoint.secrets[0]) for message in receiver.messages]
    assert [payload["type"] for payload in payloads] == ["job.started", "job.finished"]
    assert payloads[1]["timestamp"] == sender.rows()[1].created_at.isoformat()
    assert payloads[1]["data"] == {
        "job": job.id,
        "model": "net.onnx",
        "state": "done",
        "verdict": "pass",
        "labels": {"commit": "0123abc"},
        "targets": [
            {
                "headline": "",
                "refused": [],
                "more": 0,
                "backend": "npu",
                "options": {},
                "tool": "t",
                "version": "1",
                "verdict": "pass",
                "problem": "",
                "precision": "",
                "repaired": None,
            }
        ],
        "url": f"https://bisect.example/v1/jobs/{job.id}",
        "page": f"https://bisect.example/jobs/{job.id}",
    }
    assert receiver.messages[0].path == "/hook?a=1"
    assert receiver.messages[0].headers["content-type"] == "application/json"
    assert [message.id for message in receiver.messages] == [row.id for row in sender.rows()]
    assert all(row.state == DeliveryState.DELIVERED for row in sender.rows())


def test_a_signature_is_worth_nothing_for_another_message(sender: Sender, receiver: Receiver) -> None:
    endpoint = sender.endpoint(receiver.url)
    sender.send(sender.ping(endpoint))
    [message] = receiver.messages
    verifier = Webhook(endpoint.secrets[0])
    verifier.verify(message.body, message.headers)
    for body, headers in [
        (message.body + b" ", message.headers),
        (message.body, {**message.headers, "webhook-id": "other"}),
        (message.body, {**message.headers, "webhook-timestamp": str(int(message.headers["webhook-timestamp"]) + 1)}),
    ]:
        with pytest.raises(WebhookVerificationError):
            verifier.verify(body, headers)


@pytest.mark.parametrize("public_url", [None, ""])
def test_without_a_public_address_there_is_no_link(sender: Sender, receiver: Receiver, public_url: str | None) -> None:
    sender.with_settings(public_url=public_url)
    endpoint = sender.endpoint(receiver.url)
    end(sender.database, asking(sender.database, []).searches[0].id)
    sender.work(1)
    assert "url" not in receiver.messages[0].verified(endpoint.secrets[0])["data"]


def test_while_a_secret_is_rotated_old_and_new_verify(sender: Sender, receiver: Receiver) -> None:
    endpoint = sender.endpoint(receiver.url)
    [old] = endpoint.secrets
    with sender.database.transaction() as session:
        rotated = endpoints.rotate(session, endpoint.id, "")
        assert rotated is not None
        new = rotated.secrets[0]
    sender.send(sender.ping(endpoint))
    for secret in (old, new):
        assert receiver.messages[0].verified(secret)["type"] == "webhook.ping"
    with sender.database.transaction() as session:
        endpoints.retire(session, endpoint.id, "")
    sender.send(sender.ping(endpoint))
    assert receiver.messages[1].verified(new)["type"] == "webhook.ping"
    with pytest.raises(WebhookVerificationError):
        receiver.messages[1].verified(old)


def test_a_receiver_that_was_down_gets_every_message_once_it_is_up(sender: Sender, receiver: Receiver) -> None:
    endpoint = sender.endpoint(receiver.url)
    receiver.down()
    for _ in range(3):
        end(sender.database, asking(sender.database, []).searches[0].id)
    sender.work(12)
    assert [len(row.tries) for row in sender.rows()] == [2] * 6  # at once, and after 5 s
    assert "no connection" in sender.rows()[0].tries[0]["problem"]
    receiver.answers = [(503, {})] * 6
    receiver.up()
    sender.work(400, step=20)  # it is there, and says that it is not ready
    assert {row.state for row in sender.rows()} == {DeliveryState.PENDING}
    sender.work(2100, step=60)
    assert [(row.state, len(row.tries)) for row in sender.rows()] == [(DeliveryState.DELIVERED, 4)] * 6
    refused, taken = receiver.messages[:6], receiver.messages[6:]
    assert {message.id for message in taken} == {row.id for row in sender.rows()} == {message.id for message in refused}
    assert len(taken) == 6
    bodies = {message.id: message.body for message in refused}
    for message in taken:
        assert message.verified(endpoint.secrets[0])["type"] in ("job.started", "job.finished")
        assert message.body == bodies[message.id]


def test_what_was_given_up_is_sent_again_by_hand(sender: Sender, receiver: Receiver) -> None:
    endpoint = sender.endpoint(receiver.url)
    receiver.answers = [(500, {})] * 10
    message = sender.ping(endpoint)
    for _ in deliveries.SCHEDULE:
        sender.send(message)
        sender.clock.forward(2 * 86_400)
    sender.send(message)
    assert sender.row(message).state == DeliveryState.FAILED
    assert len(receiver.messages) == 10
    with sender.database.transaction() as session:
        assert deliveries.redeliver(session, message, "") is not None
    sender.send(message)
    assert sender.row(message).state == DeliveryState.DELIVERED
    assert {each.id for each in receiver.messages} == {message}


def test_a_sender_that_died_is_replaced_and_the_id_stays(sender: Sender, receiver: Receiver) -> None:
    message = sender.ping(sender.endpoint(receiver.url))
    seconds = sender.service.settings.webhook_seconds
    sender.database.run(lambda session: deliveries.claim(session, seconds=seconds + 30))  # and no more of it
    sender.work(seconds + 29, step=7)
    assert receiver.messages == []
    sender.work(10)
    assert [each.id for each in receiver.messages] == [message]


def test_of_many_senders_one_sends(sender: Sender, receiver: Receiver) -> None:
    message = sender.ping(sender.endpoint(receiver.url))
    threads = [threading.Thread(target=sender.send, args=(message,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.id for each in receiver.messages] == [message]


def test_gone_disables_the_endpoint(sender: Sender, receiver: Receiver) -> None:
    endpoint = sender.endpoint(receiver.url)
    receiver.answers = [(410, {})]
    first, second = sorted(sender.ping(endpoint) for _ in range(2))
    sender.send(first)
    sender.send(second)
    assert len(receiver.messages) == 1
    with sender.database.session() as session:
        assert session.get_one(Endpoint, endpoint.id).disabled_at is not None


def test_what_was_sent_beside_one_that_is_gone_is_on_record(sender: Sender, receiver: Receiver) -> None:
    receiver.answers = [(410, {}), (204, {})]
    endpoint = sender.endpoint(receiver.url)
    first, second, third = sorted(sender.ping(endpoint) for _ in range(3))

    def resolve(host: str) -> list[str]:
        sender.send(second)  # while the first is on its way
        return [host]

    sender.send(first, resolve=resolve)
    sender.send(third)
    rows = [sender.row(message) for message in (first, second, third)]
    assert [[tried["status"] for tried in row.tries] for row in rows] == [[204], [410], []]
    assert [row.state for row in rows] == [DeliveryState.DELIVERED, DeliveryState.FAILED, DeliveryState.FAILED]


def test_a_redirect_is_not_followed(sender: Sender, receiver: Receiver) -> None:
    inside = Receiver()
    inside.up()
    try:
        for status in (301, 302, 303, 307, 308):
            receiver.answers = [(status, {"Location": inside.url})]
            tried = sender.pinged(receiver.url)
            assert tried["status"] == status
            assert f"It redirects to {inside.url}" in tried["problem"]
    finally:
        inside.down()
    assert inside.messages == []
    assert {row.state for row in sender.rows()} == {DeliveryState.PENDING}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (dripping(b"", b"H"), None),
        (dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"), None),
        (dripping(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), None),
        (dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), 200),
    ],
    ids=["nothing", "header", "informational", "body"],
)
def test_one_that_drips_is_left_in_time(sender: Sender, answer: Callable[[], Iterator[bytes]], status: int) -> None:
    """It would go on for ever: that this ends is what is tested. A status that came counts."""
    sender.with_settings(webhook_seconds=0.5)
    with saying(answer, pause=0.05) as url:
        tried = sender.pinged(url)
    assert tried["status"] == status
    assert tried["problem"] == ("" if status else "It took longer than 0.5 s.")


def test_one_that_never_answers_is_left_in_time(sender: Sender) -> None:
    sender.with_settings(webhook_seconds=0.3)
    with saying(dripping(b"", b""), pause=60) as url:
        assert sender.pinged(url)["problem"] == "It took longer than 0.3 s."


def test_a_name_server_that_never_answers_is_left_in_time(sender: Sender) -> None:
    sender.with_settings(webhook_seconds=0.3)
    message = sender.ping(sender.endpoint("http://slow.example/"))
    asleep = threading.Event()

    def resolve(host: str) -> list[str]:
        asleep.wait()
        return []

    sender.send(message, resolve=resolve)
    asleep.set()
    assert sender.row(message).tries[0]["problem"] == "It took longer than 0.3 s."


def test_of_an_answer_without_end_the_beginning_is_read(sender: Sender) -> None:
    endless = dripping(b"HTTP/1.1 500 Oh\r\n\r\n", b"y" * 65536)
    with saying(endless) as url:
        tried = sender.pinged(url)
    assert (tried["status"], tried["answer"]) == (500, "y" * 2000)


def test_a_compressed_answer_is_not_unpacked(sender: Sender) -> None:
    bomb = gzip.compress(bytes(10**6))
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with saying(lambda: [answer, bomb]) as url:
        tried = sender.pinged(url)
    assert tried["status"] == 200
    assert len(tried["answer"]) <= 2000


def test_hostile_text_of_an_answer_is_made_safe(sender: Sender) -> None:
    body = b"a\0b\x1b[31mc\r\nd\xffe\xe2\x80\xaef"
    with saying(lambda: [b"HTTP/1.1 500 \x1b\r\nContent-Length: %d\r\n\r\n" % len(body), body]) as url:
        sender.pinged(url)
    with saying(lambda: [b"HTTP/1.1 500 Oh\r\nContent-Length: %d\r\n\r\n" % len(body), body]) as url:
        tried = sender.pinged(url)
    assert tried["answer"] == "a\\x00b\\x1b[31mc\nd\N{REPLACEMENT CHARACTER}e\\u202ef"
    with saying(lambda: ["HTTP/1.1 302 Oh\r\nLocation: http://x/\x9b2J\r\n\r\n".encode("latin-1")]) as url:
        assert "http://x/\\x9b2J" in sender.pinged(url)["problem"]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 No\r\nRetry-After: ", OK]),
    rest=st.binary(max_size=40),
    finish=st.sampled_from([b"", b"\r\n\r\n"]),
)
def test_whatever_it_says_is_a_try(sender: Sender, start: bytes, rest: bytes, finish: bytes) -> None:
    with saying(lambda: [start + rest + finish]) as url:
        tried = sender.pinged(url)
    assert (tried["status"] is not None) or "It does not speak HTTP as it should" in tried["problem"]
    json.dumps(tried)


def test_a_host_that_is_not_there_is_said(sender: Sender) -> None:
    assert sender.pinged("http://nowhere.invalid/")["problem"] == "The name nowhere.invalid leads to no address."


def test_a_refused_host_names_the_setting(sender: Sender, receiver: Receiver) -> None:
    sender.with_settings(webhook_allow=())
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        tried = sender.pinged(f"http://{host}:{receiver.port}/")
        assert "ONNXBISECT_WEBHOOK_ALLOW" in tried["problem"]
        assert tried["status"] is None
    message = sender.ping(sender.endpoint(f"http://ci.example:{receiver.port}/"))
    sender.send(message, resolve=lambda host: ["127.0.0.1"])
    assert "ONNXBISECT_WEBHOOK_ALLOW" in sender.row(message).tries[0]["problem"]
    assert sender.pinged("ftp://ci.example/")["problem"].startswith("The webhook's URL must begin with")
    assert receiver.messages == []


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("3600", 3600),
        ("0", 5),
        ("99999999", 86_400),
        ("9" * 5000, 5),
        ("-5", 5),
        ("soon", 5),
        ("", 5),
        ("²", 5),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 5),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 5),
        ("Fri, 31 Dec 9999 23:59:59 -0000", 86_400),
    ],
)
def test_a_receiver_may_ask_for_more_time(sender: Sender, receiver: Receiver, asked: str, seconds: int) -> None:
    receiver.answers = [(429, {"Retry-After": asked})]
    message = sender.ping(sender.endpoint(receiver.url))
    sender.send(message)
    wait = (sender.row(message).due_at - sender.clock.at).total_seconds()
    assert seconds <= wait <= seconds * 1.1


def test_a_receiver_may_name_the_moment(sender: Sender, receiver: Receiver) -> None:
    at = datetime.now(UTC) + timedelta(hours=2)
    receiver.answers = [(503, {"Retry-After": format_datetime(at, usegmt=True)})]
    message = sender.ping(sender.endpoint(receiver.url))
    sender.send(message)
    wait = sender.row(message).due_at - sender.clock.at
    assert timedelta(minutes=110) < wait < timedelta(minutes=121)


def test_a_message_that_would_be_too_large_is_cut_to_what_counts(sender: Sender, receiver: Receiver) -> None:
    endpoint = sender.endpoint(receiver.url)
    job = new_job(sender.database, labels={"notes": "x" * 30_000})
    sender.database.run(lambda session: lifecycle.cancel(session, job.id, ""))
    sender.work(1)
    [message] = receiver.messages
    assert len(message.body) < 20_000
    assert message.verified(endpoint.secrets[0])["data"] == {
        "job": job.id,
        "model": "net.onnx",
        "state": "cancelled",
        "verdict": None,
        "url": f"https://bisect.example/v1/jobs/{job.id}",
        "page": f"https://bisect.example/jobs/{job.id}",
        "cut": True,
    }


def test_a_chat_gets_its_own_form_and_says_in_its_answer_whether_it_takes_it(
    sender: Sender, receiver: Receiver
) -> None:
    receiver.answer_bodies = [b'{"errcode": 310000, "errmsg": "sign not match"}', b'{"errcode": 0, "errmsg": "ok"}']
    robot = "SECabc"
    endpoint = sender.database.run(
        lambda session: endpoints.add(session, tenant="", url=receiver.url, form=WebhookFormat.DINGTALK, secret=robot)
    )
    message = sender.ping(endpoint)
    sender.send(message)
    refused = sender.row(message)
    assert refused.state == DeliveryState.PENDING
    assert refused.tries[0]["status"] == 200
    assert refused.tries[0]["problem"] == "DingTalk refuses it: 310000 sign not match"
    sender.work(8)
    assert sender.row(message).state == DeliveryState.DELIVERED
    first, _ = receiver.messages
    assert json.loads(first.body)["msgtype"] == "text"
    assert re.fullmatch(r"/hook\?a=1&timestamp=[0-9]{13}&sign=[A-Za-z0-9%]+", first.path)
    assert "webhook-signature" not in first.headers
    assert robot not in first.path + str(first.headers) + first.body.decode()


def test_a_chat_hears_of_ends_where_no_events_are_named(sender: Sender, receiver: Receiver) -> None:
    sender.database.run(lambda session: endpoints.add(session, tenant="", url=receiver.url, form=WebhookFormat.SLACK))
    job = asking(sender.database, [])
    end(sender.database, job.searches[0].id)
    sender.work(1)
    [message] = receiver.messages
    assert json.loads(message.body)["text"] == "onnx-bisect: net.onnx: compiles for 1 target"


def test_secrets_are_in_no_log(sender: Sender, receiver: Receiver) -> None:
    endpoint = sender.endpoint(receiver.url)
    sender.ping(endpoint)
    sending = sender.database.run(lambda session: deliveries.claim(session, seconds=30))
    assert sending is not None
    assert endpoint.secrets[0].removeprefix("whsec_") not in repr(sending) + repr(endpoint)
    assert re.fullmatch("whsec_[A-Za-z0-9+/]{43}=", sending.endpoint.secrets[0])
