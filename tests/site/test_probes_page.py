"""The search tree, and the page of one probe."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from onnxbisect.answer import Answer
from onnxbisect.json_form import to_json
from onnxbisect.report.contents import probe_name
from onnxbisect.unitset import full, of
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_api.site.probe_facts import nested, parents
from onnxbisect_api.site.probes import bar, timeline
from onnxbisect_db.probe_queries import ProbeSummary
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import NET, running, uploaded
from support.db.scenes import FAIL, IDENTITY, PASS, answer, asks, claimed, new_job, plan, prepare
from support.engine.report_factory import HOSTILE
from support.site.browser import Look
from support.site.scenery import Scene

AT = datetime(2026, 1, 1, tzinfo=UTC)


def text(html: str) -> str:
    """What a reader sees, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def rows(html: str) -> list[str]:
    """The ids of the tree's rows."""
    return re.findall(r'<tr id="(p[0-9a-f]{10})"', html)


def told(units: int, start: float | None, end: float | None, worker: str = "w", batch: int = 1) -> ProbeSummary:
    moments = [None if at is None else AT + timedelta(seconds=at) for at in (start, end)]
    return ProbeSummary(
        id=f"{units}-{start}",
        units=units,
        attempt=0,
        why="why",
        state=ProbeState.DONE if end is not None else ProbeState.RUNNING if start is not None else ProbeState.QUEUED,
        speculative=False,
        round=batch,
        worker=worker,
        cached=False,
        status=Status.PASS if end is not None else None,
        kind=None,
        message="",
        seconds=None,
        created_at=AT,
        started_at=moments[0],
        ended_at=moments[1],
    )


def test_a_probe_is_within_the_smallest_one_asked_before_that_has_more() -> None:
    asked = [0b1111, 0b0011, 0b0001, 0b0001, 0b0111, 0b0101, 0b10000]
    assert parents(asked) == [None, 0, 1, 1, 0, 4, None]


def test_what_is_not_shown_hands_down_what_is_within_it() -> None:
    parent = [None, 0, 1, 1, 0]
    assert [(place.index, place.parent, place.depth) for place in nested(parent, {0, 2, 3, 4})] == [
        (0, None, 0),
        (2, 0, 1),
        (3, 0, 1),
        (4, 0, 1),
    ]


def test_a_bar_is_as_wide_as_the_model_and_short_for_any_set() -> None:
    assert 'viewBox="0 0 4 8"' in bar(0b0110, 4)
    assert '<path d="M1 4h2"/>' in bar(0b0110, 4)
    assert '<path class="some" d="M0 4h120"/>' in bar(of(range(0, 12_000, 2)), 12_000)
    assert '<path d="M0 4h60"/>' in bar(full(6000), 12_000)
    assert len(bar(of(unit for unit in range(12_000) if unit // 100 % 2), 12_000)) < 900


def test_the_timeline_says_how_parallel_it_was() -> None:
    drawn = timeline(
        [told(1, 0, 4, "a"), told(2, 0, 2, "b"), told(3, 2, 4, "b", 2), told(7, None, None), told(15, 3, None, "b", 3)],
        AT + timedelta(seconds=4),
    )
    assert drawn is not None
    assert (drawn.seconds, drawn.rounds, drawn.at_a_time) == (4.0, 3, 2.25)
    assert [(lane.worker, lane.probes, lane.busy) for lane in drawn.lanes] == [("a", 1, 4.0), ("b", 3, 5.0)]
    assert 'viewBox="0 0 1000 12"' in drawn.lanes[0].picture
    assert 'viewBox="0 0 1000 24"' in drawn.lanes[1].picture  # two at once
    assert "M500.0 0v24" in drawn.lanes[1].picture  # the second round
    assert timeline([told(7, None, None)], AT) is None


@pytest.fixture
def job(service: Service) -> Job:
    """The whole of four units was refused, then a half; the other is being asked, and a part of it waits."""
    stored = service.files.put([json.dumps({"universe": to_json(NET.universe)}).encode()]).sha256
    made = new_job(service.database, model_sha256=uploaded(service))
    prepare(service.database, made.searches[0].id, universe=stored, identity=IDENTITY)
    plan(service.database, made.searches[0].id, asks([0b1111, 0b0011, 0b1100, 0b0100]))
    answer(service.database, claimed(service.database, worker="host-1"), FAIL)
    answer(service.database, claimed(service.database, worker="host-2"), PASS)
    claimed(service.database, worker="host-2")
    return made


WHOLE, HALF, OTHER, PART = (probe_name(units, 0) for units in (0b1111, 0b0011, 0b1100, 0b0100))


def test_the_tree_has_what_was_asked_under_the_names_of_the_report(callers: Callers, job: Job) -> None:
    html = callers.reader().get(f"/jobs/{job.id}/probes").text
    assert rows(html) == [WHOLE, HALF, OTHER]
    assert re.findall(r'class="in-(\d+)"', html) == ["0", "1", "1"]
    seen = text(html)
    assert "asked 3 fail 1 pass 1 running 1 waiting 1" in seen
    assert f"{WHOLE} fail 4 of 9 units units f no Sin" in seen
    assert f"pass , part of {WHOLE}" in seen
    assert "1.50" in seen
    assert "host-1 1 " in seen
    assert "host-2 2 " in seen


def test_the_tree_can_be_filtered(callers: Callers, job: Job) -> None:
    reader = callers.reader()
    found = {
        query: rows(reader.get(f"/jobs/{job.id}/probes?{query}").text)
        for query in ("verdict=fail", "verdict=waiting", "unit=0", "unit=0&verdict=pass", "unit=3&verdict=pass")
    }
    assert found == {
        "verdict=fail": [WHOLE],
        "verdict=waiting": [PART],
        "unit=0": [WHOLE, HALF],
        "unit=0&verdict=pass": [HALF],
        "unit=3&verdict=pass": [],
    }
    assert "Probes with Exp /net/block.1/Exp" in text(reader.get(f"/jobs/{job.id}/probes?unit=1").text)
    assert "Who worked when" not in reader.get(f"/jobs/{job.id}/probes?unit=1").text
    assert reader.get(f"/jobs/{job.id}/probes?unit=99").status_code == 404
    assert reader.get(f"/jobs/{job.id}/probes?target=2").status_code == 404
    assert callers.reader("other").get(f"/jobs/{job.id}/probes").status_code == 404


def test_one_probe_has_its_log_and_its_units(callers: Callers, job: Job) -> None:
    reader = callers.reader()
    answered = reader.get(f"/jobs/{job.id}/probes/{WHOLE}", follow_redirects=False)
    assert answered.status_code == 303
    html = reader.get(answered.headers["location"]).text
    seen = text(html)
    assert f"Probe {WHOLE} fail" in seen
    assert "4 units of 9: 0-3" in seen
    assert "no Sin" in seen[seen.index("What the compiler said") :]
    assert f'download="{WHOLE}.log"' in html
    assert "Exp /net/block.1/Exp pass 1" in seen  # it was in the half that passes
    assert "Tanh /net/block.2/Tanh unknown 2" in seen
    half = reader.get(f"/jobs/{job.id}/probes/{HALF}").text
    assert "Part of fail: units f" in text(half)
    assert "There is no answer yet." in reader.get(f"/jobs/{job.id}/probes/{OTHER}").text
    assert reader.get(f"/jobs/{job.id}/probes/p0123456789").status_code == 404
    assert callers.reader("other").get(answered.headers["location"]).status_code == 404


def test_logs_and_messages_are_text(callers: Callers, service: Service) -> None:
    job = running(service, [0b1])
    refused = Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=HOSTILE, fingerprint=HOSTILE)
    probe = claimed(service.database, worker=HOSTILE.replace("\0", "")[:100])
    answer(service.database, probe, Answer(verdict=refused, log=f"one\n\x1b[31m{HOSTILE}\nthree</pre><script>"))
    for path in ("", f"/{probe.probe.id}"):
        html = callers.reader().get(f"/jobs/{job.id}/probes{path}").text
        assert "&lt;img src=x onerror=alert(1)&gt;" in html
        assert "<img" not in html
        assert "<script>" not in html
        assert not {"\x1b", "\u202e", "\0"} & set(html)
    assert '<pre class="log">one\n' in html


def test_two_thousand_probes_are_one_page_and_what_is_more_is_another(callers: Callers, service: Service) -> None:
    job = running(service, range(1, 2101))
    reader = callers.reader()
    pages = [
        reader.get(f"/jobs/{job.id}/probes?verdict=waiting{start}").text for start in ("", "&start=2000", "&start=4000")
    ]
    assert [len(rows(page)) for page in pages] == [2000, 100, 0]
    assert all(len(page) < 2_000_000 for page in pages)
    assert len({row for page in pages for row in rows(page)}) == 2100
    assert "start=2000" in pages[0]


def test_on_a_phone_the_tree_leads_to_a_probe_and_back(look: Look, scene: Scene) -> None:
    page = look(f"/jobs/{scene.done}/probes", width=375)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    first = page.locator("table.probes tbody tr").first
    reach = first.locator("svg.reach path").bounding_box()
    assert reach is not None
    assert reach["width"] > 100  # the whole model
    assert "of 44 units" in first.inner_text()
    name = first.get_attribute("id")
    page.locator("svg.lane a").first.click()
    assert page.url.endswith(f"#{name}")
    first.get_by_role("link").click()
    page.wait_for_url("**/probes/*")
    assert "simulated" in page.get_by_role("region", name="Log").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the log").click()
    assert download.value.suggested_filename == f"{name}.log"
    page.locator(".crumbs").get_by_role("link", name="Probes").click()
    page.wait_for_url(f"**#{name}")
