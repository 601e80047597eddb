"""The page of compilers and workers."""

import re
from datetime import timedelta

from sqlalchemy import update

from onnxbisect_db import workers
from onnxbisect_db.database import now
from onnxbisect_db.tables import Worker
from onnxbisect_db.workers import Presence
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import running
from support.db.scenes import claimed
from support.engine.report_factory import HOSTILE
from support.site.browser import Look

OWN = {"origin": "http://service.test"}


def text(html: str) -> str:
    """What a reader sees, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def row(html: str, name: str) -> str:
    found = re.search(rf'<tr id="(?:backend|worker)-{name}">.*?</tr>', html, re.DOTALL)
    assert found is not None
    return text(found[0])


def present(service: Service) -> None:
    tools = {"onnxruntime": "onnxruntime 1.31.1", "vela": "vela is not on PATH."}
    with service.database.transaction() as session:
        for name in ("host-1", "host-2"):
            mine = ("npu", "onnxruntime", "vela")
            without = frozenset({"vela"})
            isolation = {"onnxruntime": "namespaces" if name == "host-1" else "none"}
            here = Presence(id=name, backends=mine, slots=2, tools=tools, unusable=without, isolation=isolation)
            workers.record_heartbeat(session, here)
        workers.record_heartbeat(session, Presence(id="host-3", backends=("npu",), slots=1))
        past = now(session) - timedelta(minutes=5)
        session.execute(update(Worker).where(Worker.id == "host-3").values(seen_at=past))


def test_each_backend_says_whether_it_can_be_asked_and_why_not(callers: Callers, service: Service) -> None:
    present(service)
    html = callers.reader().get("/backends").text
    assert "onnxruntime usable" in row(html, "onnxruntime")
    assert "onnxruntime 1.31.1 on host-1, host-2" in row(html, "onnxruntime")
    assert "Its models are read and compiled in isolation on host-1" in row(html, "onnxruntime")
    assert "isolation" not in row(html, "vela")
    assert "not usable" in row(html, "vela")
    assert "vela is not on PATH. on host-1, host-2" in row(html, "vela")
    assert html.index('id="backend-onnxruntime"') < html.index('id="backend-vela"')
    assert "One of allow , forbid ." in row(html, "vela")


def test_queues_and_workers_are_counted(callers: Callers, service: Service) -> None:
    present(service)
    running(service, [1, 2, 3])
    claimed(service.database, worker="host-1")
    html = callers.reader().get("/backends").text
    assert "is asked for its version on host-1, host-2 2 1 no bound" in row(html, "npu")
    assert "alive npu, onnxruntime 1 of 2" in row(html, "host-1")
    assert "gone npu 0 of 1 5 min ago" in row(html, "host-3")
    assert "2 workers with 4 slots, 1 busy; 2 probes waiting." in text(html)


def test_an_admin_bounds_a_backend_with_a_form(callers: Callers, service: Service) -> None:
    present(service)
    admin = callers.admin()
    for at_most, shown in (("3", " 3 "), ("0", "paused"), ("", "no bound")):
        answer = admin.post("/backends/npu", data={"at_most": at_most}, headers=OWN, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/backends")
        assert shown in row(callers.reader().get("/backends").text, "npu").partition("host-2")[2]
    for wrong in ("-1", "x", "100001", "\N{SUPERSCRIPT TWO}", "9" * 5000):
        assert admin.post("/backends/npu", data={"at_most": wrong}, headers=OWN).status_code == 422
    assert admin.post("/backends/nowhere", data={"at_most": "1"}, headers=OWN).status_code == 404
    assert callers.submitter().post("/backends/npu", data={"at_most": "1"}, headers=OWN).status_code == 403
    assert '<form method="post" action="/backends/' not in callers.submitter().get("/backends").text


def test_a_field_is_found_again_when_its_row_moves(callers: Callers, service: Service) -> None:
    """What is typed is kept by the field's id across a refresh; usable backends move to the top of the table."""

    def fields() -> list[tuple[str, str]]:
        html = callers.admin().get("/backends").text
        return re.findall(r'<tr id="backend-(.*?)">.*?<input id="most-(.*?)"', html, re.DOTALL)

    before = fields()
    present(service)
    after = fields()
    moved = [field for field in after if field in set(before)]
    assert moved != before
    assert set(moved) == set(before)


def test_what_workers_say_is_text(callers: Callers, service: Service) -> None:
    with service.database.transaction() as session:
        tools = {"npu": HOSTILE, "other": HOSTILE}
        workers.record_heartbeat(
            session, Presence(id=HOSTILE.replace("\0", ""), backends=("npu",), slots=1, tools=tools)
        )
    html = callers.reader().get("/backends").text
    assert "&lt;img src=x onerror=alert(1)&gt;\\n\\x1b[31m" in html
    assert "<img" not in html
    assert not {"\x1b", "\u202e"} & set(html)


def test_the_tables_stay_up_to_date_and_leave_what_is_open_open(look: Look) -> None:
    page = look("/backends")
    row = page.locator("#backend-onnxruntime")
    row.locator("summary").first.click()
    row.get_by_text("change", exact=True).click()
    row.get_by_label("At a time").fill("7")
    with page.expect_response(lambda response: response.url.endswith("/backends")):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(50)
    assert row.locator("dl").is_visible()
    assert row.get_by_label("At a time").input_value() == "7"
    row.get_by_role("button", name="Set").click()
    page.wait_for_load_state()
    assert row.locator("td").last.inner_text().startswith("7")
    row.get_by_text("change", exact=True).click()
    row.get_by_label("At a time").fill("")
    row.get_by_role("button", name="Set").click()
    assert page.get_by_text("no bound").first.is_visible()
