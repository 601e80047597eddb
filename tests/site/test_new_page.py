"""A new job from the page: what is typed makes the job that REST makes, and what is wrong is said beside its field."""

import hashlib
import html
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import FilePayload, Locator, Page
from starlette.testclient import TestClient

from onnxbisect_api.site.new_fields import MORE, FieldsError, FormValues, field_name, terms
from onnxbisect_db import workers
from onnxbisect_db.workers import Presence
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api import model_bytes
from support.api.callers import Callers
from support.api.given import uploaded
from support.site.browser import Look

ONNX = model_bytes.model(b"a file")
SHA256 = hashlib.sha256(ONNX).hexdigest()


@pytest.fixture
def client(callers: Callers) -> TestClient:
    client = callers.submitter()
    client.headers["accept"] = "text/html"
    client.follow_redirects = False
    return client


def job_at(client: TestClient, location: str) -> dict[str, Any]:
    """The job whose page an answer led to."""
    found: dict[str, Any] = client.get(f"/v1{location}").json()
    return found


def complaint(text: str, field: str) -> str:
    """What the page says beside a field, which is marked."""
    assert f'aria-describedby="wrong-{field}"' in text
    found = re.search(f'id="wrong-{field}" role="alert">([^<]*)<', text)
    assert found is not None
    return found[1]


def test_compilers_are_offered_with_their_options_and_whether_anybody_has_them(
    client: TestClient, service: Service
) -> None:
    with service.database.transaction() as session:
        workers.record_heartbeat(
            session, Presence(id="host", backends=("iree",), slots=1, tools={"iree": "IREE 3.13.0"})
        )
    ready, waiting = client.get("/new").text.split("others that no worker has now")
    assert "IREE 3.13.0" in ready
    assert re.search(r'name="option:iree:backend">\s*<option selected>llvm-cpu</option><option>vmvx', ready)
    assert 'value="vela"' not in ready
    assert 'name="option:vela:accelerator" type="text"' in waiting
    assert "option:vela:converter" not in waiting  # a program of the worker's machine


def test_every_term_with_a_label_has_a_field(client: TestClient) -> None:
    names = re.findall(r' name="([^"]*)"', client.get("/new").text)
    assert [name for name in names if name in set(map(field_name, MORE))] == list(map(field_name, MORE))


def test_what_is_typed_makes_the_job(client: TestClient, service: Service) -> None:
    answer = client.post(
        "/new",
        data={
            "model": uploaded(service),
            "backend": ["onnxruntime", "whitelist"],
            "option:onnxruntime:optimization": "enable_all",  # as it is anyway
            "option:whitelist:profile": "edgesam",
            "option:whitelist:max_nodes": " 9 ",
            "option:whitelist:ops": "",
            "option:iree:backend": "vmvx",  # not ticked
            "input_shapes": "x=1,3,224,224\r\na=b=2\r\n",
            "input_values": "sr=16000\r\nstarts=0, 1\r\nfast=true\r\nlow=0.5",
            "labels": "repo:net\nbranch=main",
            "budget_calls": "100",
            "budget_seconds": "",
            "seconds": "30",
            "recheck": "yes",
        },
    )
    assert answer.status_code == 303, answer.text
    job = job_at(client, answer.headers["location"])
    assert [(target["backend"], target["options"]) for target in job["targets"]] == [
        ("onnxruntime", {}),
        ("whitelist", {"profile": "edgesam", "max_nodes": "9"}),
    ]
    asked = job["request"]
    assert asked["input_shapes"] == {"x": [1, 3, 224, 224], "a=b": [2]}
    assert asked["input_values"] == {"sr": 16000, "starts": [0, 1], "fast": True, "low": 0.5}
    assert (asked["budget_calls"], asked["budget_seconds"], asked["seconds"], asked["recheck"]) == (100, None, 30, True)
    assert job["labels"] == {"repo": "net", "branch": "main"}


def test_a_job_is_run_again_with_changes(client: TestClient, service: Service) -> None:
    """The form has the terms of the job; what is not among its fields goes along, unless the model is another one."""
    sample = client.put("/v1/files", content=b"samples").json()["sha256"]
    values = {"low": 0.5, "sr": 16000}
    asked = {
        "model": uploaded(service),
        "targets": [
            {"backend": "whitelist", "options": {"ops": "Relu,Exp", "max_nodes": "9"}},
            {"backend": "whitelist", "options": {"ops": "Relu"}},
            {"backend": "onnxruntime"},
        ],
        "input_shapes": {"x": [1, 3], "y": [2]},
        "input_values": values,
        "calibration": {"a.npz": sample},
        "budget": {"calls": 1234567},
        "seconds": 7.5,
        "as_is": True,
        "repair": {
            "allow": "exact",
            "alternatives": "all",
            "samples": {"b.npz": sample},
            "count": 7,
            "absolute": 0.5,
        },
        "confirm_causes": 3,
        "priority": -5,
        "labels": {"repo": "net"},
    }
    answer = client.post("/v1/jobs", json=asked)
    assert answer.status_code == 202, answer.text
    job = answer.json()["id"]
    text = client.get(f"/new?job={job}").text
    assert "With the 2 samples of the job that this repeats" in text
    form = fields_of(text)
    assert form["option:whitelist:ops"] == ["Relu,Exp"]
    again = {**form, "option:whitelist:max_nodes": "10"}
    made = job_at(client, client.post("/new", data=again).headers["location"])
    before = job_at(client, f"/jobs/{job}")
    assert made["request"] == before["request"]
    assert made["request"]["calibration"] == {"a.npz": sample}
    assert [(it["backend"], it["options"]) for it in made["targets"]] == [
        ("onnxruntime", {}),
        ("whitelist", {"ops": "Relu,Exp", "max_nodes": "10"}),
        ("whitelist", {"ops": "Relu"}),
    ]
    assert (made["request"]["repair"]["count"], made["priority"]) == (7, -5)
    other = {**form, "model": uploaded(service, b"another"), "repair": "domain", "alternatives": ""}
    changed = job_at(client, client.post("/new", data=other).headers["location"])["request"]
    assert (changed["calibration"], changed["repair"]["samples"], changed["confirm_causes"]) == ({}, {}, 3)
    assert (changed["repair"]["allow"], changed["repair"].get("alternatives")) == ("domain", None)


def test_what_is_wrong_with_the_second_target_of_a_backend_is_said_there(client: TestClient, service: Service) -> None:
    typed = {
        "model": uploaded(service),
        "backend": ["whitelist", "whitelist#2"],
        "option:whitelist:ops": "Conv",
        "option:whitelist#2:ops": "Conv",
        "option:whitelist#2:max_nodes": "many",
    }
    answer = client.post("/new", data=typed)
    assert answer.status_code == 422
    assert re.findall(r'id="wrong-([^"]*)"', answer.text) == ["option:whitelist#2:max_nodes"]


def test_a_second_target_without_the_first_is_none(client: TestClient, service: Service) -> None:
    typed = {"model": uploaded(service), "backend": ["onnxruntime", "whitelist#2"], "option:whitelist#2:ops": "Conv"}
    job = job_at(client, client.post("/new", data=typed).headers["location"])
    assert [target["backend"] for target in job["targets"]] == ["onnxruntime"]


def fields_of(text: str) -> dict[str, list[str]]:
    """What a browser would send if the form is not touched."""
    found: dict[str, list[str]] = {}
    form = text.partition('action="/new"')[2].partition("</form>")[0]
    for tag in re.findall(r"<input[^>]*>", form):
        of = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if "name" in of and of.get("type") != "file" and (of.get("type") != "checkbox" or " checked" in tag):
            found.setdefault(of["name"], []).append(html.unescape(of.get("value", "")))
    for name, value in re.findall(r'<textarea[^>]*name="([^"]*)"[^>]*>([^<]*)</textarea>', form):
        found[name] = [html.unescape(value)]
    for name, options in re.findall(r'<select[^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r"<option([^>]*) selected[^>]*>([^<]*)", options)
        if chosen is not None:
            value = re.search(r'value="([^"]*)"', chosen[1])
            found[name] = [html.unescape(value[1] if value else chosen[2])]
    return found


@pytest.mark.parametrize(
    ("typed", "field", "says"),
    [
        ({"backend": []}, "backend", "at least one"),
        ({"model": ""}, "model", "Choose a model"),
        ({"model": "f" * 64}, "model", "upload it first"),
        ({"backend": "nowhere"}, "backend", "nowhere"),
        ({"backend": "whitelist"}, "backend:whitelist", "profile"),
        (
            {"backend": "whitelist", "option:whitelist:ops": "Conv", "option:whitelist:max_nodes": "many"},
            "option:whitelist:max_nodes",
            "many",
        ),
        ({"backend": "qnn", "option:qnn:soc_model": "x" * 5000}, "option:qnn:soc_model", "4096"),
        ({"input_shapes": "x: 1, 3"}, "input_shapes", "NAME=1,3,224,224"),
        ({"input_shapes": "x=1\nx=2"}, "input_shapes", "two shapes"),
        ({"input_values": "sr: 16000"}, "input_values", "NAME=16000"),
        ({"input_values": "=1"}, "input_values", "NAME=16000"),
        ({"input_values": "sr=1\nsr=2"}, "input_values", "two values"),
        ({"labels": "net"}, "labels", "name:value"),
        ({"budget_calls": "0"}, "budget_calls", "greater than"),
        ({"budget_seconds": "soon"}, "budget_seconds", "number"),
        ({"seconds": "-1"}, "seconds", "greater than 0"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(
    client: TestClient, service: Service, typed: dict[str, Any], field: str, says: str
) -> None:
    answer = client.post("/new", data={"model": uploaded(service), "backend": "onnxruntime", "labels": "a:b", **typed})
    assert answer.status_code == 422
    assert says in complaint(answer.text, field)
    assert client.get("/v1/jobs").json() == []


def test_all_that_is_wrong_is_said_at_once_and_all_that_is_typed_stays() -> None:
    typed = FormValues([("backend", "a"), ("labels", "net"), ("seconds", "x"), ("input_shapes", "x")])
    with pytest.raises(FieldsError) as refused:
        terms(typed, {}, lambda target: target, {})
    assert set(refused.value.complaints) == {"labels", "seconds", "input_shapes"}


def test_what_was_typed_is_shown_again_as_text(client: TestClient, service: Service) -> None:
    model, hostile = uploaded(service, name="<img onerror=x>.onnx"), "<script>x</script>\u202e"
    answer = client.post("/new", data={"model": model, "backend": "qnn", "labels": hostile, "seconds": '"><b>'})
    assert f'<option value="{model}" selected>&lt;img' in answer.text
    assert "<script>x" not in answer.text
    assert "<b>" not in answer.text.split("Search</legend>")[1]
    assert 'value="qnn" checked' in answer.text


def form(*fields: tuple[str, str], data: dict[str, bytes] | None = None, onnx: bytes | None = ONNX) -> list[Any]:
    """What a browser without scripts sends."""
    model = ("net.onnx", onnx) if onnx is not None else ("", b"")
    files = [("data", (name, content)) for name, content in (data or {"": b""}).items()]
    return [("model", model), *files, *((name, (None, text.encode())) for name, text in fields)]


def test_without_scripts_the_form_brings_the_file(client: TestClient) -> None:
    fields = (("model", ""), ("backend", "onnxruntime"), ("labels", "repo:net"))
    answer = client.post("/new", files=form(*fields, data={"w.bin": b"w"}))
    assert answer.status_code == 303, answer.text
    job = job_at(client, answer.headers["location"])
    named = hashlib.sha256(ONNX + b"w").hexdigest()
    assert (job["model"], job["labels"]) == ({"sha256": named, "name": "net.onnx"}, {"repo": "net"})
    assert set(client.get(f"/v1/models/{named}").json()["files"]) == {"w.bin"}


def test_without_scripts_a_model_that_is_here_may_be_chosen(client: TestClient, service: Service) -> None:
    model = uploaded(service)
    answer = client.post("/new", files=form(("model", model), ("backend", "onnxruntime"), onnx=None))
    assert job_at(client, answer.headers["location"])["model"]["sha256"] == model


def test_an_upload_is_not_lost_on_a_wrong_field(client: TestClient) -> None:
    answer = client.post("/new", files=form(("backend", "onnxruntime"), ("seconds", "x")))
    assert answer.status_code == 422
    assert complaint(answer.text, "seconds")
    assert f'<option value="{SHA256}" selected>net.onnx' in answer.text


def test_a_form_with_more_text_than_anybody_types_is_refused(client: TestClient) -> None:
    answer = client.post("/new", files=form(("labels", "x" * (1 << 20))))
    assert answer.status_code == 413
    plain = client.post("/new", data={"labels": "x" * (1 << 20)})
    assert plain.status_code == 413


class TestBounds:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"upload_bytes": 10, "compile_seconds": 60.0, "tenant_jobs": 1})

    def test_a_file_that_is_too_large_is_said_beside_the_file(self, client: TestClient) -> None:
        answer = client.post("/new", files=form(("backend", "onnxruntime")))
        assert answer.status_code == 413
        assert "larger than 10 bytes" in complaint(answer.text, "model")

    def test_what_no_field_is_to_blame_for_is_said_above(self, client: TestClient, service: Service) -> None:
        model = uploaded(service)
        slow = client.post("/new", data={"model": model, "backend": "onnxruntime", "seconds": "100"})
        assert (slow.status_code, "60 seconds" in slow.text) == (422, True)
        asked = [client.post("/new", data={"model": model, "backend": "onnxruntime"}) for _ in range(2)]
        assert [each.status_code for each in asked] == [303, 429]
        assert "1 jobs wait or run already" in asked[1].text


def test_a_reader_is_told_that_he_cannot(callers: Callers) -> None:
    reader = callers.reader()
    for answer in (reader.get("/new", headers={"accept": "text/html"}), reader.post("/new", data={})):
        assert answer.status_code == 403
        assert "scope" in answer.text


# In a browser.

_DROP = """([where, files]) => {
  const transfer = new DataTransfer();
  for (const [name, size] of files) {
    const content = new Uint8Array(size);
    content.set([8, 10, 58, 255, 255, 255, 127].slice(0, size)); // as a model begins
    transfer.items.add(new File([content], name));
  }
  for (const type of ["dragover", "drop"])
    document.querySelector(where).dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true }));
}"""


def slow(page: Page) -> Callable[[], object]:
    """As over a line of 200 kB/s, until what it returns is called."""
    network = page.context.new_cdp_session(page)

    def line(upload: int) -> object:
        conditions = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": upload}
        return network.send("Network.emulateNetworkConditions", conditions)

    line(200_000)
    return lambda: line(-1)


def tick(page: Page, backend: str) -> Locator:
    """Its options."""
    page.get_by_role("checkbox", name=re.compile(f"^{backend} ")).check()
    return page.get_by_role("group", name=f"Options of {backend}")


def test_a_model_is_dropped_and_uploaded_while_the_rest_is_filled_in(look: Look) -> None:
    page = look("/new")
    go_on = slow(page)
    page.evaluate(_DROP, ["#drop", [["dropped.onnx", 3_000_000], ["weights.bin", 1_000_000]]])
    page.get_by_text(re.compile(r"(0\.[1-9]|[1-3]\.\d) of 4\.0 MB")).wait_for()
    assert page.get_by_text("dropped.onnx").is_visible()
    assert 0 < page.get_by_role("progressbar").evaluate("it => it.position") < 1
    tick(page, "onnxruntime").get_by_label("optimization").select_option("disable_all")
    page.get_by_label("Labels").fill("way:dropped")
    page.get_by_role("button", name="Find the culprits").click()  # once the model is here
    assert page.get_by_text("once the model is here").is_visible()
    go_on()
    page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}$"))
    job = page.request.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").json()  # the page itself may go on to its report
    assert job["model"]["name"] == "dropped.onnx"
    model = page.request.get(f"/v1/models/{job['model']['sha256']}").json()
    assert set(model["files"]) == {"weights.bin"}
    assert job["labels"] == {"way": "dropped"}
    assert job["targets"][0]["options"] == {"optimization": "disable_all"}


def test_an_upload_is_cancelled_and_a_wrong_choice_is_said(look: Look) -> None:
    page = look("/new")
    slow(page)
    page.get_by_label("ONNX file").set_input_files(
        {"name": "a.onnx", "mimeType": "", "buffer": model_bytes.model(size=3_000_000)}
    )
    page.get_by_role("button", name="Cancel").click()
    page.get_by_label("ONNX file").wait_for(state="visible")
    page.evaluate(_DROP, ["main", [["a.onnx", 1], ["b.onnx", 1]]])
    page.get_by_text("a.onnx and b.onnx are two").wait_for()
    assert page.get_by_role("progressbar").count() == 0


def test_external_data_that_are_missing_are_asked_for_before_the_upload(look: Look, tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    value = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[1, 64])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [value("x")], [value("y")], [weights]))
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    page = look("/new")
    page.get_by_label("ONNX file").set_input_files(tmp_path / "net.onnx")
    page.get_by_text("net.onnx keeps weights in net.data: choose, or drop, all files together.").wait_for()
    page.get_by_label("ONNX file").set_input_files([tmp_path / "net.onnx", tmp_path / "net.data"])
    page.get_by_text("net.onnx is uploaded.").wait_for()


def test_a_wrong_option_is_said_beside_its_field_and_the_upload_stays(look: Look) -> None:
    page = look("/new", width=375, refused=422)
    model: FilePayload = {"name": "kept.onnx", "mimeType": "", "buffer": model_bytes.model(b"kept")}
    page.get_by_label("ONNX file").set_input_files(model)
    page.get_by_text("kept.onnx is uploaded.").wait_for(state="attached")
    options = tick(page, "whitelist")
    options.get_by_label("ops").fill("Conv")
    options.get_by_text("more options").click()
    options.get_by_label("max_nodes").fill("many")
    with page.expect_response(lambda answer: answer.request.method == "POST") as posted:
        page.get_by_role("button", name="Find the culprits").click()
    assert posted.value.status == 422
    field = options.get_by_label("max_nodes")
    assert field.is_visible()
    assert field.input_value() == "many"
    said = page.locator(f"[id='{field.get_attribute('aria-describedby')}']")
    assert "cannot be 'many'" in (said.text_content() or "")
    assert "kept.onnx" in (
        page.get_by_label("or one that was uploaded before").locator("option:checked").text_content() or ""
    )


def test_a_browser_without_scripts_makes_a_job(look: Look) -> None:
    page = look("/new", scripts=False)
    page.get_by_label("ONNX file").set_input_files(
        {"name": "plain.onnx", "mimeType": "", "buffer": model_bytes.model(b"plain")}
    )
    tick(page, "onnxruntime")
    page.get_by_role("button", name="Find the culprits").click()
    page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}$"))
    assert page.get_by_text("plain.onnx").first.is_visible()
