"""`serve` as a program and `submit` as its client, over real sockets: the answers of `run`."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import onnx
import pytest
from jsonschema import Draft202012Validator
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import onnx_bisect
from onnxbisect_db.database import Database
from onnxbisect_db.states import WebhookFormat
from support.cli.command_line import PROGRAM, Done, Shell
from support.cli.gateway import gateway
from support.precision import planted_pair
from support.worker.chat_schemas import SCHEMAS
from support.worker.process_tree import within
from support.worker.webhook_receiver import Receiver

MODELS = Path(__file__).parents[1] / "models"
DOCS = Path(__file__).parents[2] / "docs" / "library.md"
SAM = MODELS / "sam_part1_prompt__ts11.onnx"
EDGESAM = ("--backend", "whitelist", "--option", "profile=edgesam")
SEVERAL = ("--backend", "whitelist", "--backend", "onnxruntime", "--option", "whitelist.profile=edgesam")


@dataclass(frozen=True)
class Serving:
    url: str
    token: str
    process: subprocess.Popen[str]
    data: Path


@dataclass(frozen=True)
class Server(Serving):
    """With a shell in which it is spoken to."""

    shell: Shell

    def submit(self, *arguments: str | Path) -> Done:
        with self.shell.monkeypatch.context() as patch:
            patch.setenv("ONNXBISECT_SERVER", self.url)
            patch.setenv("ONNXBISECT_TOKEN", self.token)
            return self.shell.call("submit", *map(str, arguments))

    def run(self, *arguments: str | Path) -> Done:
        """What it is held against: the same in this process."""
        return self.shell.call("run", "--no-cache", *map(str, arguments))


def serve(data: Path, **settings: str) -> Serving:
    others = {key: value for key, value in os.environ.items() if not key.startswith("ONNXBISECT_")}
    with (data.parent / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [PROGRAM, "serve", "--data", str(data), "--port", "0"],
            # without vendors' compilers, of which each would be tried when it starts
            env={**others, "ONNXBISECT_CACHE_DIR": str(data.parent / "cache"), **settings},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    address = process.stdout.readline()
    return Serving(address.split()[-1], (data / "token").read_text().strip(), process, data)


def ended(server: Serving) -> int:
    server.process.send_signal(signal.SIGINT)
    code = server.process.wait(timeout=60)
    assert server.process.stdout is not None
    server.process.stdout.close()
    return code


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    found = serve(tmp_path_factory.mktemp("serve") / "data")
    yield found
    assert ended(found) == 0


@pytest.fixture
def server(serving: Serving, shell: Shell) -> Server:
    return Server(**vars(serving), shell=shell)


def culprits(folder: Path) -> bytes:
    return json.dumps(json.loads((folder / "report.json").read_bytes())["culprits"]).encode()


def with_weights(folder: Path, byte: bytes) -> Path:
    """A model with external data, whose bytes are all the same."""
    copied = Path(shutil.copy(MODELS / "external" / "external_data.onnx", folder))
    weights = (MODELS / "external" / "external_data.bin").read_bytes()
    (folder / "external_data.bin").write_bytes(byte * len(weights))
    return copied


def files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def without_costs(text: str) -> str:
    return re.sub(r"\d+ compiler calls?.*", "", text)


def overview(folder: Path) -> dict[str, Any]:
    """Without what the search cost."""
    found: dict[str, Any] = json.loads((folder / "overview.json").read_bytes())
    for target in found["targets"]:
        del target["report"]["stats"]
    return found


@pytest.mark.long
def test_what_a_server_finds_is_what_run_finds_byte_for_byte(server: Server, tmp_path: Path) -> None:
    here = server.run(SAM, *EDGESAM, "--out", tmp_path / "here")
    there = server.submit(SAM, *EDGESAM, "--wait", "--out", tmp_path / "there")
    assert (there.code, here.code) == (1, 1), there.err
    assert culprits(tmp_path / "there") == culprits(tmp_path / "here")
    models = {path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.onnx")}
    assert models
    files = models | {Path("model-explorer/graph.json"), Path("model-explorer/verdicts.json")}
    for file in files:
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()
    assert there.out.splitlines()[0] == here.out.splitlines()[0]
    assert there.out.count("culprit") == here.out.count("culprit")


def test_a_model_that_compiles_ends_with_0(server: Server) -> None:
    done = server.submit(SAM, "--backend", "onnxruntime")
    assert done.code == 0, done.err
    assert "compiles for onnxruntime" in done.out


def test_a_server_is_asked_in_chinese(server: Server) -> None:
    done = server.submit(SAM, "--backend", "whitelist", "--option", "deny=Abs", "--lang", "zh_CN")
    assert done.code == 1
    assert "下一步" in done.out
    assert "次编译器调用" in done.err
    said = re.sub(r"(?m)^ *onnx-bisect .*$|unsupported ops: Abs|a simulation of whitelist", "", done.out)
    assert not re.search("[a-z]{3,} [a-z]{3,}", said)
    wrong = server.submit(SAM, "--backend", "nobody", "--lang", "zh_CN")
    assert "不是有效的该服务器的后端" in wrong.err


@pytest.mark.long
def test_the_jobs_own_webhook_gets_messages_of_the_chat(tmp_path: Path, shell: Shell) -> None:
    receiver = Receiver()
    receiver.up()
    serving = serve(tmp_path / "data", ONNXBISECT_WEBHOOK_ALLOW="127.0.0.1")
    try:
        server = Server(**vars(serving), shell=shell)
        for number, (form, schema) in enumerate(SCHEMAS.items(), 1):
            receiver.answer_bodies = [b"ok" if form is WebhookFormat.SLACK else b'{"code": 0, "errcode": 0}']
            done = server.submit(SAM, *EDGESAM, "--webhook", receiver.url, "--webhook-format", form)
            assert done.code == 1, done.err
            assert within(60, lambda: len(receiver.messages) >= number)  # noqa: B023 - called at once
            said = json.loads(receiver.messages[-1].body)
            Draft202012Validator(schema).validate(said)
            assert SAM.name in json.dumps(said, ensure_ascii=False)
            assert "Sin" in json.dumps(said)
    finally:
        assert ended(serving) == 0
        receiver.down()


def test_a_budget_that_ends_before_anything_is_found_is_no_answer(server: Server) -> None:
    unasked = ("--backend", "whitelist", "--option", "deny=Sin,Cos,Abs")
    there, here = (ask(SAM, *unasked, "--budget-calls", "1") for ask in (server.submit, server.run))
    assert (there.code, here.code) == (3, 3), there.err


def test_external_data_goes_along(server: Server, tmp_path: Path) -> None:
    model = next((MODELS / "external").glob("*.onnx"))
    done = server.submit(model, *EDGESAM, "--format", "json", "--out", tmp_path)
    assert done.code in (0, 1), done.err
    here = server.run(model, *EDGESAM, "--format", "json")
    assert json.loads(done.out)["culprits"] == json.loads(here.out)["culprits"]
    assert json.loads(done.out)["model"]["sha256"] == json.loads(here.out)["model"]["sha256"]


def test_a_model_is_sent_once_and_with_other_weights_is_another_one(server: Server, tmp_path: Path) -> None:
    model = with_weights(tmp_path, b"1")
    assert server.submit(model, *EDGESAM, "--no-wait").code == 0
    with gateway(server.url) as between:
        there = replace(server, url=between.url)
        assert there.submit(model, *EDGESAM, "--no-wait").code == 0
        assert "/v1/models" not in between.troubles
        with_weights(tmp_path, b"2")
        assert there.submit(model, *EDGESAM, "--no-wait").code == 0
        assert "/v1/models" in between.troubles


def test_a_model_that_another_name_was_sent_under_has_its_own_in_the_report(server: Server, tmp_path: Path) -> None:
    for name in ("theirs.onnx", "mine.onnx"):
        done = server.submit(shutil.copy(SAM, tmp_path / name), *EDGESAM, "--format", "gitlab")
        assert {each["location"]["path"] for each in json.loads(done.out)} == {name}


def test_findings_are_at_the_path_that_was_given(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    shutil.copy(SAM, tmp_path / "models" / "net.onnx")
    monkeypatch.chdir(tmp_path)
    forms = {form: server.submit("models/net.onnx", *EDGESAM, "--format", form) for form in ("gitlab", "sarif")}
    assert {it["location"]["path"] for it in json.loads(forms["gitlab"].out)} == {"models/net.onnx"}
    [run] = json.loads(forms["sarif"].out)["runs"]
    places = [location["physicalLocation"] for it in run["results"] for location in it["locations"]]
    assert {it["artifactLocation"]["uri"] for it in places} == {"models/net.onnx"}


def test_what_the_server_does_not_have_is_said_before_anything_is_uploaded(server: Server, tmp_path: Path) -> None:
    unreadable = tmp_path / "net.onnx"  # reading it comes before uploading it
    unreadable.write_bytes(b"no model")
    for target, says in (
        (("--backend", "whitelst"), "'whitelst' is no backend of this server; did you mean 'whitelist'?"),
        (("--backend", "whitelist", "--option", "profil=edgesam"), "did you mean 'profile'?"),
        ((*SEVERAL, "--option", "onnxruntime.providr=x"), "'providr' is no option of the backend 'onnxruntime'"),
        (("--backend", "whitelist", "--fix", "--option", "profil=edgesam"), "did you mean 'profile'?"),
    ):
        done = server.submit(unreadable, *target)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
        assert done.err.count("\n") == 1


@pytest.mark.long
def test_what_fails_on_the_way_is_tried_again(server: Server, tmp_path: Path) -> None:
    model = with_weights(tmp_path, b"7")
    deny = ("--backend", "whitelist", "--option", "deny=Relu")
    with gateway(server.url) as between:
        there = replace(server, url=between.url).submit(model, *deny, "--out", tmp_path / "there")
    here = server.run(model, *deny, "--out", tmp_path / "here")
    assert (there.code, here.code) == (1, 1), there.err
    assert set(between.troubles.values()) == {"busy", "cut"}
    assert files(tmp_path / "there") == files(tmp_path / "here")
    for file in ("culprits/01-Relu/model.onnx", "model-explorer/graph.json"):
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()


def test_a_file_that_cannot_be_had_does_not_cost_the_report(server: Server, tmp_path: Path) -> None:
    server.submit(SAM, *EDGESAM, "--no-wait")  # the gateway takes no uploads
    with gateway(server.url) as between:
        between.forbidden = "/culprits/"
        done = replace(server, url=between.url).submit(SAM, *EDGESAM, "--out", tmp_path)
    assert done.code == 2
    assert "403" in done.err.splitlines()[-1]
    assert "does not compile for whitelist" in done.out


def test_several_targets_make_an_overview_and_a_report_each(server: Server, tmp_path: Path) -> None:
    done = server.submit(SAM, *SEVERAL, "--out", tmp_path)
    assert done.code == 1, done.err
    assert "compiles for 1 of 2 targets" in done.out
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["onnxruntime", "whitelist"]
    assert (tmp_path / "overview.html").is_file()
    assert json.loads((tmp_path / "whitelist" / "report.json").read_text())["culprits"]


@pytest.mark.long
def test_several_models_end_in_the_table_that_run_makes(server: Server, tmp_path: Path) -> None:
    models = [SAM, MODELS.parent / "cases" / "c1_chain100_1bad.onnx", MODELS / "interleaved.onnx"]
    done = server.submit(*models, *SEVERAL, "--out", tmp_path / "there")
    here = server.run(*models, *SEVERAL, "--out", tmp_path / "here")
    assert (done.code, here.code) == (1, 1), done.err
    tables = [json.loads((tmp_path / where / "parts.json").read_text()) for where in ("here", "there")]
    for table in tables:
        for row in table["models"]:
            for cell in row["cells"].values():
                del cell["compiler_calls"], cell["wall_seconds"]
    assert tables[0] == tables[1]
    assert [row["label"] for row in tables[0]["models"]] == [model.stem for model in models]
    named = {path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*")}
    assert named == {path.relative_to(tmp_path / "there") for path in (tmp_path / "there").rglob("*")}


def test_the_client_has_several_models_diagnosed(server: Server) -> None:
    parts = [onnx_bisect.Part(label=path.stem, model=path) for path in (SAM, MODELS / "interleaved.onnx")]
    with onnx_bisect.Client(server.url, server.token) as client:
        jobs = client.submit_parts(parts, backend="whitelist", options={"profile": "edgesam"})
        results = {part.label: job.result() for part, job in zip(parts, jobs, strict=True)}
    table = onnx_bisect.parts_table(results)
    assert [row.label for row in table.models] == [part.label for part in parts]
    assert {cause.text for cause in table.causes} >= {"Sin", "Cos"}


def test_targets_are_called_as_in_run(server: Server, tmp_path: Path) -> None:
    asked = ("-b", "bf=whitelist", "-b", "fp=whitelist", "--option", "bf.deny=Sin", "--option", "fp.deny=Cos")
    there = server.submit(SAM, *asked, "--out", tmp_path / "there")
    here = server.run(SAM, *asked, "--out", tmp_path / "here")
    assert (there.code, here.code) == (1, 1), there.err
    assert overview(tmp_path / "there") == overview(tmp_path / "here")
    assert without_costs(there.out).replace("there", "here") == without_costs(here.out)
    assert "bf: done" in there.err
    for label in ("bf", "fp"):
        assert culprits(tmp_path / "there" / label) == culprits(tmp_path / "here" / label)
        assert f"{label}/report.html" in (tmp_path / "there" / "overview.html").read_text()


def test_who_waits_is_told_of_a_page_to_look_at_meanwhile(server: Server) -> None:
    done = server.submit(SAM, *EDGESAM)
    page = re.search(r"http\S+", done.err.splitlines()[0])
    assert page is not None
    answer = httpx2.get(page[0], headers={"accept": "text/html", "authorization": f"Bearer {server.token}"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert SAM.name in answer.text


def test_several_targets_have_no_report_in_the_form_of_one(server: Server) -> None:
    with httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}) as client:
        before = client.get("/v1/jobs").json()
        done = server.submit(SAM, *SEVERAL, "--format", "sarif")
        assert done.code == 2
        assert "--format sarif is for one model and one target" in done.err
        assert client.get("/v1/jobs").json() == before


def test_without_waiting_the_job_is_named(server: Server) -> None:
    done = server.submit(SAM, *EDGESAM, "--no-wait", "--label", "repo=a/b")
    assert done.code == 0
    job = httpx2.get(done.out.strip(), headers={"Authorization": f"Bearer {server.token}"}).json()
    assert job["labels"] == {"repo": "a/b"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((SAM, "--backend", "qmm"), 2, "qnn"),
        ((SAM, "--backend", "whitelist", "--option", "profil=edgesam"), 2, "profile"),
        ((Path(__file__), *EDGESAM), 2, "not an ONNX model"),
        ((SAM, *EDGESAM, "--token", "obk_0_0"), 2, "token"),
        ((SAM, *EDGESAM, "--server", "http://127.0.0.1:9"), 3, "cannot be reached"),
        ((SAM, *EDGESAM, "--server", "ftp://x"), 2, "no address"),
        ((SAM, *EDGESAM, "--webhook-format", "slack"), 2, "add --webhook URL"),
        (
            (SAM, *EDGESAM, "--webhook", "https://x.test", "--webhook-format", "slack", "--webhook-secret", "s"),
            2,
            "only robots of Feishu, Lark and DingTalk have a secret",
        ),
        ((SAM, "--backend", "chip=./examples/mychip.toml"), 2, "The backend ./examples/mychip.toml is a file"),
    ],
)
def test_a_mistake_is_one_sentence(server: Server, arguments: tuple[str | Path, ...], code: int, said: str) -> None:
    done = server.submit(*arguments)
    assert done.code == code, done.err
    assert done.err.startswith("onnx-bisect: ")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


@pytest.mark.long
@pytest.mark.parametrize("targets", [EDGESAM, SEVERAL])
def test_what_is_wrong_with_the_model_is_a_mistake_as_in_run(
    server: Server, tmp_path: Path, targets: tuple[str, ...]
) -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    model = tmp_path / "dynamic.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    there, here = server.submit(model, *targets), server.run(model, *targets)
    assert (there.code, here.code) == (2, 2), there.err
    sentence = here.err.splitlines()[-1].removeprefix("onnx-bisect: ")
    assert "--input-shape x=1,3" in sentence
    assert there.err.splitlines()[-1].endswith(sentence)
    assert server.submit(model, *targets, "--input-shape", "x=1,3").code in (0, 1)


def test_ctrl_c_cancels_the_job(server: Server, tmp_path: Path) -> None:
    environment = {**os.environ, "ONNXBISECT_SERVER": server.url, "ONNXBISECT_TOKEN": server.token}
    slow = ("--backend", "whitelist", "--option", "deny=Sin,Unasked", "--option", "delay=30")
    process = subprocess.Popen(
        [PROGRAM, "submit", str(SAM), *slow], env=environment, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stderr is not None
    url = re.search(r"http\S+/jobs/(\S+)", process.stderr.readline())
    assert url is not None
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cancelled" in rest
    job = httpx2.get(f"{server.url}/v1/jobs/{url[1]}", headers={"Authorization": f"Bearer {server.token}"}).json()
    assert job["state"] == "cancelled"


@pytest.mark.long
def test_it_goes_on_where_it_was_killed(tmp_path: Path, shell: Shell) -> None:
    first = Server(**vars(serve(tmp_path / "data")), shell=shell)
    slow = (*EDGESAM, "--option", "delay=0.3", "--no-wait")
    url = first.submit(SAM, *slow).out.strip()
    time.sleep(2)
    first.process.kill()
    first.process.communicate()
    second = serve(tmp_path / "data")
    assert second.token == first.token
    again = url.replace(first.url, second.url)
    headers = {"Authorization": f"Bearer {second.token}"}
    deadline = time.monotonic() + 120
    while (job := httpx2.get(again, params={"wait": 10}, headers=headers, timeout=30).json())["state"] != "done":
        assert time.monotonic() < deadline, job
    assert job["verdict"] == "fail"
    assert ended(second) == 0


@pytest.mark.long
def test_the_commands_of_the_empty_page_work_as_they_are_pasted(tmp_path: Path) -> None:
    server = serve(tmp_path / "data")
    try:
        with httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}) as browser:
            page = browser.get("/jobs", headers={"Accept": "text/html"}).text
            pasted = [html.unescape(it) for it in re.findall(r'<pre class="cmd">(.*?)</pre>', page, re.DOTALL)]
            assert len(pasted) == 3
            shutil.copy(SAM, tmp_path / "model.onnx")
            path = {"PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
            script = ["bash", "-ec", "\n".join(pasted)]
            done = subprocess.run(
                script, cwd=tmp_path, env=path, text=True, capture_output=True, check=False, input=f"{server.token}\n"
            )
            assert done.returncode == 0, done.stderr
            assert "model.onnx compiles for onnxruntime" in done.stdout
            assert json.loads(done.stdout.splitlines()[-1])["model"]["name"] == "model.onnx"
            jobs = browser.get("/v1/jobs").json()
            assert [job["model"]["name"] for job in jobs] == ["model.onnx"] * 2
    finally:
        assert ended(server) == 0


def test_an_address_that_is_taken_is_said(server: Server, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    taken = subprocess.run(
        [PROGRAM, "serve", "--data", str(tmp_path), "--port", port], text=True, capture_output=True, check=False
    )
    assert taken.returncode == 2
    assert "--port" in taken.stderr.splitlines()[-1]


def test_the_token_is_for_its_owner_only(server: Server) -> None:
    assert (server.data / "token").stat().st_mode & 0o077 == 0
    database = Database(f"sqlite:///{server.data / 'onnx-bisect.sqlite'}")
    assert database.is_current()
    database.close()


@pytest.mark.long
def test_who_listens_is_let_go_when_the_server_ends(tmp_path: Path, shell: Shell) -> None:
    server = Server(**vars(serve(tmp_path / "data")), shell=shell)
    url = server.submit(SAM, *EDGESAM, "--option", "delay=100", "--no-wait").out.strip()
    with (
        httpx2.Client(headers={"Authorization": f"Bearer {server.token}"}, timeout=30) as client,
        client.stream("GET", f"{url}/events") as events,
    ):
        lines = events.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: job.queued"
        server.process.send_signal(signal.SIGINT)
        assert "event: job.finished" not in list(lines)
    assert server.process.wait(timeout=60) == 0
    assert server.process.stdout is not None
    server.process.stdout.close()
    assert "Traceback" not in (tmp_path / "serve.log").read_text()


@pytest.mark.long
def test_the_client_of_the_library_brings_what_is_found_here(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/library.md shows it."""
    (example,) = re.findall(r"```python\n(with onnx_bisect.Client\(.*?)```", DOCS.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(DOCS.parents[1] / "examples")
    names: dict[str, Any] = {"onnx_bisect": onnx_bisect, "token": server.token}
    exec(example.replace("https://onnx-bisect.example.org", server.url), names)  # noqa: S102 - our own documentation
    assert [node.op_type for node in onnx.load("culprit.onnx").graph.node] == ["Sin"]
    here = onnx_bisect.diagnose(
        "examples/sam_decoder.onnx", backend="whitelist", options={"profile": "edgesam"}, cache=False
    )
    with onnx_bisect.Client(server.url, server.token) as client:
        there = client.submit("examples/sam_decoder.onnx", backend="whitelist", options={"profile": "edgesam"}).result()
        assert json.dumps(there.report["culprits"]) == json.dumps(here.report["culprits"])
        assert there.culprits == here.culprits
        assert (there.verdict, there.certificate) == (here.verdict, here.certificate)
        for mine, theirs in zip(here.culprits, there.culprits, strict=True):
            saved = mine.save("here.onnx").rename("saved.onnx").read_bytes()
            assert theirs.save("here.onnx").read_bytes() == saved, mine.id
        here.write("here")
        there.write("there")
    assert files(tmp_path / "here") == files(tmp_path / "there")
    with pytest.raises(onnx_bisect.OptionError, match="closed"):
        there.culprits[0].save("theirs.onnx")


def test_a_job_that_asks_for_what_is_not_there_raises(server: Server) -> None:
    with onnx_bisect.Client(server.url, server.token) as client:
        with pytest.raises(onnx_bisect.OptionError, match="nobody"):
            client.submit(SAM, backend="nobody")
        with pytest.raises(onnx_bisect.OptionError, match=r"my\.toml is a file"):
            client.submit(SAM, backend="my.toml")


def refused(folder: Path, *ops: str) -> Path:
    """A model whose weights lie in a file of their own, before a chain of these ops."""
    weights = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    external_data_helper.set_external_data(weights, "w.bin", offset=0, length=24)
    (folder / "w.bin").write_bytes(weights.raw_data)
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    nodes = [helper.make_node("Add", ["x", "w"], ["t0"], name="add")]
    nodes += [helper.make_node(op, [f"t{at}"], [f"t{at + 1}"], name=f"n{at}") for at, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", f"t{len(ops)}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weights])
    path = folder / "net.onnx"
    path.write_bytes(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    return path


def test_a_server_repairs_what_fix_repairs(server: Server, tmp_path: Path) -> None:
    model, denied = refused(tmp_path, "Neg", "Abs", "Relu"), ("--backend", "whitelist", "--option", "deny=Abs")
    there = server.submit(model, *denied, "--fix", "--allow", "exact", "--out", tmp_path / "there")
    here = server.shell.call("fix", str(model), *denied, "--allow", "exact", "--out", str(tmp_path / "here"))
    assert (there.code, here.code) == (0, 0), there.err + here.err
    assert here.out.splitlines()[0] in there.out
    assert "net.onnx compiles with a simulation of whitelist after 1 replaced node." in there.out
    assert files(tmp_path / "there" / "repair") == files(tmp_path / "here" / "repair")
    for name in ("repaired.onnx", "w.bin"):
        made = [(tmp_path / place / "repair" / name).read_bytes() for place in ("here", "there")]
        assert made[0] == made[1]
    assert (tmp_path / "there" / "report.json").exists()


def test_a_server_says_what_no_repair_takes_away(server: Server, tmp_path: Path) -> None:
    model = refused(tmp_path, "Abs", "Erf")
    denied = ("--backend", "whitelist", "--option", "deny=Abs,Erf,Exp,Tanh")
    run = server.submit(model, *denied, "--fix", "--out", tmp_path / "out")
    assert run.code == 1
    assert "\n\nErf\n  at " in run.out
    assert "  no remedy  " in run.out
    assert Path("report.json") in files(tmp_path / "out" / "repair")
    alone = server.submit(model, *denied, "--count", "2")
    assert (alone.code, "add --fix" in alone.err) == (2, True)


def test_a_repair_is_fetched_from_python(server: Server, tmp_path: Path) -> None:
    model = refused(tmp_path, "Neg", "Abs")
    np.savez(tmp_path / "0.npz", x=np.zeros((2, 3), np.float32))
    with onnx_bisect.Client(server.url, server.token) as client:
        terms = onnx_bisect.RepairTerms(samples=tmp_path, count=1)
        job = client.submit(model, backend="whitelist", options={"deny": "Abs"}, repair=terms)
        repair = job.repair()
        assert (repair.compiles, repair.repaired, repair.document.samples) == (True, True, 3)
        assert "Abs" not in {node.op_type for node in onnx.load(repair.save(tmp_path / "repaired.onnx")).graph.node}
        other = client.submit(model, backend="whitelist", options={"deny": "Abs"})
        with pytest.raises(onnx_bisect.OptionError, match="No repair was asked for"):
            other.repair()
        other.cancel()
        assert other.wait()["state"] == "done", "it had ended before"


@pytest.mark.long
def test_a_server_finds_the_nodes_that_precision_finds(server: Server, tmp_path: Path) -> None:
    model = planted_pair(tmp_path)
    given = ("--backend", "onnxruntime", "--samples", tmp_path / "samples")
    run = server.submit(model, *given, "--precision", "--at-least", "25", "--out", tmp_path / "out")
    assert run.code == 0, run.err
    assert "2 nodes of 9 have to stay in high precision" in run.out
    report = json.loads((tmp_path / "out" / "precision" / "precision.json").read_text())
    assert [it["node"] for it in report["members"]] == ["Mul_3", "Mul_5"]
    assert {"mixed.onnx", "pulsar2.json"} <= {it.name for it in (tmp_path / "out" / "precision").iterdir()}
    alone = server.submit(model, *given, "--at-least", "25")
    assert (alone.code, "add --precision" in alone.err) == (2, True)
    without = server.submit(model, "--backend", "onnxruntime", "--precision")
    assert (without.code, "samples of the inputs" in without.err) == (2, True)
    own = server.submit(model, *given, "--precision", "--metric", "masks.py:iou", "--at-least", "0.9")
    assert (own.code, "runs no code of yours" in own.err) == (2, True)
