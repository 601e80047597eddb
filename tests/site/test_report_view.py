"""A report on the page of its job: the view of report.html, with all that the service has beside it."""

import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from starlette.testclient import TestClient

from onnxbisect.diagnosis import CulpritKind
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.html import html
from onnxbisect.unitset import of
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import NET, ONNX, done, refusing_exp, report_on, to_repair
from support.engine.report_factory import HOSTILE, chain, culprit, job_of, single
from support.site.browser import Look
from support.site.scenery import Scene


class Page(HTMLParser):
    """The tags of a page with their attributes, and its headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @property
    def links(self) -> list[str]:
        return [attributes["href"] or "" for tag, attributes in self.tags if tag == "a" and "href" in attributes]

    @property
    def ids(self) -> list[str | None]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    @property
    def headings(self) -> list[int]:
        return [int(tag[1]) for tag, _ in self.tags if re.fullmatch("h[1-6]", tag)]


def page_of(client: TestClient, job: Job, query: str = "") -> str:
    answer = client.get(f"/jobs/{job.id}{query}", headers={"accept": "text/html"})
    assert answer.status_code == 200, answer.text
    return answer.text


def card(text: str, number: int = 1) -> str:
    found = re.search(rf'<article class="card culprit" id="c{number}".*?</article>', text, re.DOTALL)
    assert found is not None
    return found[0]


def test_a_culprit_s_card_leads_to_all_that_there_is_of_it(callers: Callers, service: Service) -> None:
    job = done(service, report_on(single(NET, [1], "no Exp"), culprit(NET, [of([2, 3])], CulpritKind.INTERACTION, "")))
    client = callers.reader()
    text = page_of(client, job)
    first = Page(card(text))
    files = f"/v1/jobs/{job.id}/culprits/1"
    assert {f"{files}/model.onnx?target=1", f"{files}/compiler.log?target=1", "#graph"} <= set(first.links)
    assert client.get(f"{files}/model.onnx?target=1").content == ONNX
    assert f"/jobs/{job.id}/culprits/1/netron?target=1" in first.links
    assert ("a", {"href": "#graph", "data-graph-culprit": "1"}) in first.tags
    assert "no Exp" in card(text)
    assert "onnx-bisect run model.onnx --backend whitelist" in card(text)
    assert "Tanh" in card(text, 2)


def test_every_link_leads_somewhere(callers: Callers, service: Service) -> None:
    job = done(service, report_on(single(NET, [1], "no Exp"), single(NET, [2], "no Tanh")))
    client = callers.reader()
    page = Page(page_of(client, job))
    inside = {link[1:] for link in page.links if link.startswith("#")} - {"graph"}
    assert inside <= set(page.ids)
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    ours = [link for link in page.links if re.match(r"/(v1|jobs)/", link) and "/probes/" not in link]
    assert len([link for link in ours if "/report?" in link]) >= 6
    for link in ours:
        assert client.get(link, headers={"accept": "text/html"}).status_code == 200, link


def test_headings_are_in_order_and_there_is_one_h1(callers: Callers, service: Service) -> None:
    job = done(service, report_on(single(NET, [1], "no Exp"), single(NET, [2], "no Tanh")))
    headings = Page(page_of(callers.reader(), job)).headings
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_tables_that_move_sideways_are_reached_by_the_keyboard(callers: Callers, service: Service) -> None:
    job = done(service, report_on(single(NET, [1], "no Exp")))
    tags = Page(page_of(callers.reader(), job)).tags
    moved = [attributes for _, attributes in tags if "scroll" in (attributes.get("class") or "").split()]
    assert moved
    assert all(it.get("tabindex") == "0" and it.get("role") == "region" and it.get("aria-label") for it in moved)
    assert all("scope" in attributes for tag, attributes in tags if tag == "th")


def test_the_file_and_the_page_say_the_same(callers: Callers, service: Service) -> None:
    report = report_on(single(NET, [1], "no Exp"))
    online, file = page_of(callers.reader(), done(service, report)), html(report)
    for text in (online, file):
        assert report["headline"] in unescape(text)
        assert "What can run on the NPU" in text
        assert "the list is complete" in text
    assert "/v1/" not in file
    assert "netron" not in file


def test_names_of_a_model_and_words_of_a_compiler_are_text(callers: Callers, service: Service) -> None:
    model = chain(["Relu", "Exp"], {1: HOSTILE})
    text = page_of(callers.reader(), done(service, report_on(single(model, [1], HOSTILE), model=model)))
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ufeff\ufffe]", text)


def long_report() -> Report:
    """600 culprits and 4 000 probes, among these the proof of every culprit."""
    model = chain([name for number in range(600) for name in (f"Op{number}", "Relu")])
    found = [single(model, [2 * number], f"no Op{number} " + "x" * 100) for number in range(600)]
    more = [(3 << unit, job_of(NET).probes[0].verdict, "asked besides") for unit in range(1199)]
    return document(job_of(model, found, more=[*more, *more]))


@pytest.mark.long
def test_a_long_report_is_a_page_that_can_be_opened(callers: Callers, service: Service) -> None:
    report = long_report()
    assert len(report["probes"]) > 3000
    text = page_of(callers.reader(), done(service, report))
    assert len(text) < 3_000_000
    page = Page(text)
    assert "c500" in page.ids
    assert "c501" not in page.ids
    assert "and 100 more in report.json" in text
    assert f"All {len(report['probes'])} probes" in text
    assert {link[1:] for link in page.links if link.startswith("#")} - {"graph"} <= set(page.ids)


def test_every_link_of_a_job_that_was_done_leads_somewhere(look: Look, scene: Scene) -> None:
    page = look(f"/jobs/{scene.done}")
    hrefs = page.evaluate("[...document.querySelectorAll('#content a')].map(link => link.getAttribute('href'))")
    links = {href for href in hrefs if not href.startswith("#")}
    assert [link for link in links if "model-explorer/verdicts.json" in link]
    assert [link for link in links if re.search(r"/probes/p[0-9a-f]{10}", link)]
    answers = {link: page.request.get(link, headers={"accept": "text/html"}).status for link in sorted(links)}
    assert {link: status for link, status in answers.items() if status != 200} == {}


@pytest.mark.parametrize("width", [375, 1280])
def test_a_page_is_no_wider_than_its_window(look: Look, scene: Scene, width: int) -> None:
    page = look(f"/jobs/{scene.hostile}?target=2", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_command_is_copied_by_the_keyboard_and_that_is_said(look: Look, scene: Scene) -> None:
    page = look(f"/jobs/{scene.done}", permissions=["clipboard-read", "clipboard-write"])
    command = page.locator("[data-copy]").first
    button = page.get_by_role("button", name="Copy").first
    button.focus()
    page.keyboard.press("Enter")
    page.get_by_role("status").get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == command.inner_text()


def test_without_scripts_a_command_is_text_and_nothing_offers_to_copy_it(look: Look, scene: Scene) -> None:
    page = look(f"/jobs/{scene.done}", scripts=False)
    assert page.locator("[data-copy]").first.inner_text().startswith("onnx-bisect ")
    assert page.get_by_role("button", name="Copy").count() == 0


def test_the_next_step_is_the_button_of_the_page(callers: Callers, service: Service) -> None:
    client = callers.submitter()
    asked = page_of(client, done(service, refusing_exp()))
    assert "</b> To see what replaces them, and prove the result: press Repair.</p>" in asked
    assert "onnx-bisect fix" not in asked
    assert "press Repair" not in page_of(client, to_repair(service))
