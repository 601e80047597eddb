"""Two jobs beside each other, for people."""

import re

from onnxbisect.diagnosis import CertificateStatus, DiagnosisProof
from onnxbisect_db import searches
from onnxbisect_db.states import Stage
from onnxbisect_db.tables.base import new_id
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import NET, done, finish, refusing_exp, report_on, running
from support.db.scenes import new_job, prepare, take
from support.engine.report_factory import HOSTILE, chain, single
from support.site.browser import Look
from support.site.scenery import Scene


def text(html: str) -> str:
    """What a reader sees, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_fixed_new_and_unchanged_culprits_are_told_apart(callers: Callers, service: Service) -> None:
    before = done(service, report_on(single(NET, [1], "no Exp"), single(NET, [2], "no Tanh")))
    after = done(service, report_on(single(NET, [2], "no Tanh"), single(NET, [3], "no Erf")))
    html = callers.reader().get(f"/compare?a={before.id}&b={after.id}").text
    seen = text(html)
    assert "1 fixed, 1 new, 1 unchanged" in seen
    assert re.search(r"Fixed 1 1 Exp 1 place /net/block.1/Exp no Exp New 1", seen)
    assert re.search(r"New 1 2 Erf 1 place /net/block.3/Erf no Erf Unchanged 1", seen)
    assert "1 Tanh 1 ops, inputs and complaint no Tanh" in seen
    assert "Ops with another verdict 2" in seen
    assert "Erf compiles refused Exp refused compiles" in seen
    assert f'href="/jobs/{before.id}#c1"' in html
    assert f'href="/jobs/{after.id}#c2"' in html
    assert f'href="/compare?a={after.id}&amp;b={before.id}"' in html


def test_what_is_not_proven_is_not_called_certain(callers: Callers, service: Service) -> None:
    bounded = DiagnosisProof(status=CertificateStatus.BOUNDED, probes=(), assumes=(), unknown=("the calls ran out",))
    before, after = done(service, refusing_exp()), done(service, report_on(certificate=bounded))
    seen = text(callers.reader().get(f"/compare?a={before.id}&b={after.id}").text)
    assert "search was incomplete, so these may still fail in B" in seen
    assert re.search(r"bounded: (all )?\d.* seen to compile", seen)
    assert "certificate differs" in seen


def test_what_differs_between_the_two_is_marked(callers: Callers, service: Service) -> None:
    new = report_on(single(NET, [1], "no Exp"))
    new["target"]["version"] = "2.0"
    before, after = done(service, refusing_exp()), done(service, new)
    seen = text(callers.reader().get(f"/compare?a={before.id}&b={after.id}").text)
    assert "compiler differs simulator 1.0 simulator 2.0" in seen
    assert "target whitelist (profile=edgesam) whitelist" in seen


def test_jobs_of_the_same_model_are_offered_first(callers: Callers, service: Service) -> None:
    other = done(service, refusing_exp())
    mine = done(service, refusing_exp())
    theirs = done(service, refusing_exp(), tenant="other")
    with service.database.transaction() as session:
        job = session.merge(other)
        job.model_name = "another.onnx"
    newest = done(service, refusing_exp())
    html = callers.reader().get(f"/compare?a={mine.id}&b=").text
    offered = re.findall(r'<option value="([0-9a-f-]+)"', html)
    assert offered == [mine.id, newest.id, other.id] * 2
    assert theirs.id not in html
    assert html.count(" selected") == 1
    assert "the same job" in callers.reader().get(f"/compare?a={mine.id}&b={mine.id}").text


def test_what_cannot_be_compared_is_said_in_a_sentence(callers: Callers, service: Service) -> None:
    before = done(service, refusing_exp(), refusing_exp(), backends=["x", "y"])
    after = new_job(service.database, "x", "y", "z")
    prepare(service.database, after.searches[0].id)
    finish(service, after.searches[0].id, report_on())
    turn = take(service.database, after.searches[1].id, Stage.PREPARE)
    with service.database.transaction() as session:
        searches.fail(session, turn, "y is not installed.")
    reader = callers.reader()
    seen = text(reader.get(f"/compare?a={before.id}&b={after.id}").text)
    assert "x: 1 fixed, 0 new, 0 unchanged" in seen
    assert "There is nothing to compare: job B has failed (y is not installed)." in seen
    assert "Only B has z" in seen
    single_job = done(service, refusing_exp())
    seen = text(reader.get(f"/compare?a={single_job.id}&b={running(service).id}").text)
    assert "There is nothing to compare: job B has no report yet: it is running." in seen
    theirs = done(service, refusing_exp(), tenant="other")
    for unknown in (theirs.id, new_id()):
        assert reader.get(f"/compare?a={before.id}&b={unknown}").status_code == 404


def test_names_and_complaints_are_text(callers: Callers, service: Service) -> None:
    model = chain(["Relu", "Exp"], names={1: HOSTILE})
    culprit = report_on(single(model, [1], HOSTILE), model=model)
    culprit["model"]["name"] = culprit["target"]["tool"] = HOSTILE
    clean, hostile = done(service, report_on()), done(service, culprit)
    for a, b in ((clean, hostile), (hostile, clean), (hostile, done(service, culprit))):
        html = callers.reader().get(f"/compare?a={a.id}&b={b.id}").text
        assert "&lt;img src=x onerror=alert(1)&gt;" in html
        assert "<img" not in html
        assert not {"\x1b", "\u202e", "\0"} & set(html)


def test_two_jobs_are_chosen_and_swapped_on_a_phone(look: Look, scene: Scene) -> None:
    page = look(f"/compare?a={scene.done}", width=375)
    page.get_by_label("B, after").select_option(scene.running)
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(f"**b={scene.running}")
    assert "job B has no report yet: it is running" in page.locator("main").inner_text()
    page.get_by_role("link", name="Swap A and B").click()
    page.wait_for_url(f"**/compare?a={scene.running}&b={scene.done}")
    assert "job A has no report yet: it is running" in page.locator("main").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 375
