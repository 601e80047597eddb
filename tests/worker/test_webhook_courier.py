"""Webhooks have hands of their own: nobody else waits for a receiver."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxbisect_db import deliveries, endpoints, jobs, models
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.states import DeliveryState, JobState
from onnxbisect_db.tables import Delivery
from onnxbisect_worker.app import make_app
from onnxbisect_worker.bell import SilentBell
from onnxbisect_worker.celery_bell import CeleryBell
from onnxbisect_worker.courier import Courier
from onnxbisect_worker.embedded import Embedded
from onnxbisect_worker.order import Order
from onnxbisect_worker.service import Service, open_service
from onnxbisect_worker.settings import Settings
from support.db.scenes import Clock
from support.worker.webhook_receiver import Receiver, dripping, saying

MODEL = Path(__file__).parent.parent / "models" / "sam_part1_prompt__ts11.onnx"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Settings(data=tmp_path, webhook_allow=("127.0.0.1",), webhook_seconds=300)
    database = Database(made.database, clock=Clock(), durable=False)
    database.upgrade()
    yield Service(settings=made, database=database, files=Files(made.files_folder), bell=SilentBell())
    database.close()


def pings(service: Service, url: str, count: int) -> list[str]:
    with service.database.transaction() as session:
        endpoint = endpoints.add(session, tenant="", url=url)
        return [deliveries.ping(session, endpoint).id for _ in range(count)]


def states(service: Service, messages: list[str]) -> set[str]:
    with service.database.session() as session:
        return {session.get_one(Delivery, message).state for message in messages}


def test_jobs_go_on_while_receivers_are_silent(tmp_path: Path) -> None:
    made = Settings(data=tmp_path, webhook_allow=("127.0.0.1",), webhook_seconds=300)
    service = open_service(made, CeleryBell(make_app(made)))
    service.database.upgrade()
    everything = Embedded(service)
    with saying(dripping(b"", b""), pause=1000) as url:
        pings(service, url, 40)
        everything.start()
        sha256 = service.files.put([MODEL.read_bytes()]).sha256
        target = NewTarget(backend="whitelist", options={"deny": "Sin"})
        wanted = NewJob(model_sha256=sha256, targets=(target,), request=Order().to_json())
        with service.database.transaction() as session:
            models.keep(session, tenant="", sha256=sha256, name=MODEL.name, size=1)
            job = jobs.create(session, wanted, tenant="").job.id
        state = ""
        while state != JobState.DONE:
            time.sleep(0.1)
            with service.database.session() as session:
                found = jobs.get(session, job, "")
                assert found is not None
                state = found.state
    everything.stop()
    service.close()


def test_what_it_is_given_is_sent(service: Service) -> None:
    receiver, courier = Receiver(), Courier(hands=2)
    receiver.up()
    messages = pings(service, receiver.url, 6)
    for message in (*messages, *messages):
        courier.send(service, message)
    while states(service, messages) != {DeliveryState.DELIVERED}:
        time.sleep(0.01)
    courier.close()
    receiver.down()
    assert sorted(message.id for message in receiver.messages) == sorted(messages)


def test_more_than_it_can_hold_is_left_to_the_reconciler(service: Service) -> None:
    courier = Courier(hands=1)
    with saying(dripping(b"", b""), pause=1000) as url:
        for message in pings(service, url, 300):
            courier.send(service, message)  # does not wait
    courier.close()


def test_after_the_end_nothing_begins(service: Service) -> None:
    receiver, courier = Receiver(), Courier()
    receiver.up()
    [message] = pings(service, receiver.url, 1)
    courier.close()
    courier.send(service, message)
    receiver.down()
    assert receiver.messages == []
    assert states(service, [message]) == {DeliveryState.PENDING}


def test_a_database_that_is_away_ends_no_hand(service: Service) -> None:
    receiver, courier = Receiver(), Courier(hands=1)
    receiver.up()
    [message] = pings(service, receiver.url, 1)
    away = Database(f"sqlite:///{service.settings.data / 'empty.sqlite'}", durable=False)
    courier.send(Service(settings=service.settings, database=away, files=service.files, bell=service.bell), message)
    courier.send(service, message)
    while states(service, [message]) != {DeliveryState.DELIVERED}:
        time.sleep(0.01)
    courier.close()
    receiver.down()
    away.close()
