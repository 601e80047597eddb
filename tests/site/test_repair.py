"""A repair on the page of its job: asked for, on its way, ended in each way; and in a browser."""

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import expect
from sqlalchemy import select
from starlette.testclient import TestClient

from onnxbisect.remedies.document import RepairDocument
from onnxbisect_api.site.stage_views import before_and_after
from onnxbisect_db import repairs, searches
from onnxbisect_db.repairs import ChangedModel
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Job, Search
from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import repair_document, repaired, to_repair, uploaded
from support.db.scenes import PASS, answer, asks, claimed, plan, prepare, take
from support.site import hostile
from support.site.browser import Installation, Look


def page_of(client: TestClient, job: Job) -> str:
    answered = client.get(f"/jobs/{job.id}", headers={"accept": "text/html"})
    assert answered.status_code == 200
    return answered.text


def section(text: str) -> str:
    return text[text.index('<section id="repair"') :].partition("</section>")[0]


def test_each_place_is_shown_before_and_after_with_its_numbers(callers: Callers, service: Service) -> None:
    job = repaired(service, repair_document())
    shown = section(page_of(callers.reader(), job))
    assert "does not compile with simulated yet: 1 replaced node, and 1 place with no remedy." in shown
    before, after = re.findall(r"<svg.*?</svg>", shown, re.DOTALL)
    assert re.findall(r'class="op"[^>]*>([^<]+)', before) == ["Abs", "input", "output"]
    assert re.findall(r'class="op"[^>]*>([^<]+)', after) == [
        "Relu",
        "Mul",
        "Relu",
        "Add",
        "input",
        "output",
    ]
    assert "largest difference <b>0</b>" in shown
    assert "<b>exact</b>" in shown
    assert f'href="/v1/jobs/{job.id}/repair/model.onnx?target=1" download' in shown
    assert f"/v1/jobs/{job.id}/repair/report.json?target=1" in shown
    assert "No remedy" in shown
    assert '<code class="dim">model.py:3  torch.abs(x)</code>' in shown
    assert '<code class="dim">model.py:4  torch.erf(x)</code>' in shown
    assert "<code>chip=new</code></th><td>the whole model compiles</td>" in shown


def test_edges_of_a_place_lead_from_its_inputs_to_its_outputs() -> None:
    document = RepairDocument.of_json(repair_document())
    pictures = before_and_after(document.changes[0])
    assert pictures is not None
    before, after = pictures
    assert before["edges"] == [
        {"from": 1, "to": 0, "tensor": "x", "type": "float[2, 3]"},
        {"from": 0, "to": 2, "tensor": "y", "type": "float[2, 3]"},
    ]
    named = [(after["nodes"][it["from"]]["op"], after["nodes"][it["to"]]["op"]) for it in after["edges"]]
    assert sorted(named) == [
        ("Add", "output"),
        ("Mul", "Relu"),
        ("Relu", "Add"),
        ("Relu", "Add"),
        ("input", "Mul"),
        ("input", "Relu"),
    ]


def test_names_in_a_repair_are_text(callers: Callers, service: Service) -> None:
    text = page_of(callers.reader(), repaired(service, repair_document(hostile.LINE)))
    assert "<img src" not in section(text)
    assert "&lt;img" in section(text)


@pytest.mark.parametrize("wrong", [{"changes": 5}, {"format": None, "verdict": ["<b>"]}])
def test_a_document_of_a_process_that_was_taken_over_breaks_nothing(
    callers: Callers, service: Service, wrong: dict[str, Any]
) -> None:
    job = repaired(service, repair_document())
    broken = service.files.put([json.dumps({**repair_document(), **wrong}).encode()]).sha256
    with service.database.transaction() as session:
        search = session.get_one(type(job.searches[0]), job.searches[0].id)
        search.files = {**search.files, "repair/repair.json": broken}
    answered = callers.reader().get(f"/jobs/{job.id}", headers={"accept": "text/html"})
    assert answered.status_code == 200
    assert '<section id="repair"' not in answered.text


def test_a_repair_on_its_way_shows_the_report_and_what_is_asked(callers: Callers, service: Service) -> None:
    job = to_repair(service)
    claimed_search = take(service.database, job.searches[0].id, Stage.REPAIR)
    changed = ChangedModel(question="q", onnx=uploaded(service, b"changed"), data={}, request={})
    service.database.run(lambda session: repairs.ask(session, claimed_search, changed))
    with service.database.session() as session:
        asked = session.scalars(select(Search.id).where(Search.asked_for == claimed_search.search.id)).one()
    prepare(service.database, asked, universe="e" * 64)
    plan(service.database, asked, asks([1, 3]))
    answer(service.database, claimed(service.database, job.searches[0].backend), PASS)
    text = page_of(callers.reader(), job)
    assert '<li aria-current="step">Repair</li>' in text
    assert "1 compiler call</b>" in text
    assert 'class="card culprit"' in text  # of the report
    assert text.index('id="verdict"') < text.index('<section id="repair"') < text.index('id="culprits"')
    assert text.count('id="c1"') == 1
    [log] = set(re.findall(r"/v1/jobs/[^\"]*/log", text))
    assert callers.reader().get(log).text == "compiled\n"


def test_one_that_failed_says_why_and_offers_to_go_on(callers: Callers, service: Service) -> None:
    job = to_repair(service)
    claimed_search = take(service.database, job.searches[0].id, Stage.REPAIR)
    service.database.run(lambda session: searches.fail(session, claimed_search, "onnxruntime does not run <it>."))
    text = page_of(callers.submitter(), job)
    assert "onnxruntime does not run &lt;it&gt;." in section(text)
    assert f'action="/jobs/{job.id}/retry"' in text


def test_the_form_asks_for_a_repair(callers: Callers, service: Service) -> None:
    client = callers.submitter()
    typed = {"model": uploaded(service), "backend": "onnxruntime", "repair": "domain"}
    made = client.post("/new", data=typed, headers={"origin": "http://service.test"}, follow_redirects=False)
    assert made.status_code == 303, made.text
    job = client.get(f"/v1{made.headers['location']}").json()
    assert job["request"]["repair"]["allow"] == "domain"
    assert "alternatives" not in job["request"]["repair"]
    also = {**typed, "alternatives": "all"}
    made = client.post("/new", data=also, headers={"origin": "http://service.test"}, follow_redirects=False)
    assert client.get(f"/v1{made.headers['location']}").json()["request"]["repair"]["alternatives"] == "all"
    lonely = client.post("/new", data={**also, "repair": ""}, headers={"origin": "http://service.test"})
    assert 'id="wrong-alternatives"' in lonely.text
    wrong = client.post("/new", data={**typed, "repair": "all"}, headers={"origin": "http://service.test"})
    assert wrong.status_code == 422
    assert 'id="wrong-repair"' in wrong.text


def saved(path: Path) -> Path:
    nodes = [
        helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=f"n{at}")
        for at, op in enumerate(("Neg", "Abs", "HardSigmoid", "Relu"))
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", "t4")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize("scripts", [True, False])
def test_a_model_is_repaired_and_downloaded(
    installation: Installation, look: Look, tmp_path: Path, scripts: bool
) -> None:
    page = look("/new", scripts=scripts)
    page.get_by_label("ONNX file").set_input_files(saved(tmp_path / "net.onnx"))
    page.get_by_role("checkbox", name=re.compile("^whitelist ")).check()
    options = page.get_by_role("group", name="Options of whitelist")
    options.get_by_label("deny").fill("Abs,HardSigmoid")
    page.get_by_label("Repair what is refused").select_option("exact")
    page.get_by_role("button", name="Find the culprits").click()
    page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}"))
    repair = page.locator("section#repair")
    expect(repair.locator(".sentence")).to_contain_text(
        "compiles with a simulation of whitelist after 2 replaced nodes"
    )
    expect(repair.locator("article.repaired")).to_have_count(2)
    expect(repair.locator("article.repaired svg")).to_have_count(4)
    with page.expect_download() as downloaded:
        repair.get_by_role("link", name="Download repaired.onnx").click()
    assert downloaded.value.suggested_filename == "repaired.onnx"
    ops = {node.op_type for node in onnx.load(downloaded.value.path()).graph.node}
    assert not ops & {"Abs", "HardSigmoid"}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") if scripts else True
