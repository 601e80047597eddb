"""What a target minds about a model, for people."""

import re

import numpy as np
import onnx
import pytest

from onnxbisect_service.service import Service
from support.api.callers import Callers
from support.api.given import uploaded
from support.engine.report_factory import HOSTILE

FORM = {"Sec-Fetch-Site": "same-origin"}
NET = """<ir_version: 10, opset_import: ["" : 17]>
g (float[2,3] x) => (bool[2,3] y) <int64[2] i = {0, 1}> { a = Gather <axis = 0> (x, i)  y = IsNaN(a) }"""


@pytest.fixture
def net() -> onnx.ModelProto:
    return onnx.parser.parse_model(NET)


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_findings_of_the_chosen_target_stand_worst_first(
    callers: Callers, service: Service, net: onnx.ModelProto
) -> None:
    model = uploaded(service, net.SerializeToString())
    client = callers.submitter()
    assert f'value="{model}" selected' in client.get(f"/inspect?model={model}").text
    fields = {"model": model, "backend": "whitelist", "options": "profile=edgesam\n"}
    answer = client.post("/inspect", data=fields, headers=FORM)
    assert answer.status_code == 200
    seen = text(answer.text)
    assert "net.onnx for" in seen
    assert seen.index("error Gather: 1 node") < seen.index("warning IsNaN: 1 node")
    assert f"/new?model={model}&amp;backend=whitelist" in answer.text


def test_the_form_brings_the_file(callers: Callers, net: onnx.ModelProto) -> None:
    for node, module in zip(net.graph.node, ("encoder", "decoder"), strict=True):
        node.name = f"/{module}/{node.op_type}"
    client = callers.submitter()
    fields = {"backend": "whitelist", "options": "profile=edgesam"}
    files = {"model": ("net.onnx", net.SerializeToString()), "data": ("", b"")}
    answer = client.post("/inspect", data=fields, files=files, headers=FORM)
    assert (answer.status_code, "error Gather: 1 node" in text(answer.text)) == (200, True)
    assert re.search(r"encoder 1 \W+ decoder 1 ", text(answer.text))
    assert "net.onnx" in client.get("/inspect").text, "it stays"
    wrong = client.post("/inspect", data=fields, files={"model": ("notes.txt", b"no model")}, headers=FORM)
    assert (wrong.status_code, "ONNX" in text(wrong.text)) == (422, True)


def test_a_file_larger_than_a_document_is_inspected(callers: Callers, net: onnx.ModelProto) -> None:
    net.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(1 << 19, np.float32), "w"))
    files = {"model": ("net.onnx", net.SerializeToString()), "data": ("", b"")}
    fields = {"backend": "whitelist", "options": "profile=edgesam"}
    answer = callers.submitter().post("/inspect", data=fields, files=files, headers=FORM)
    assert (answer.status_code, "error Gather: 1 node" in text(answer.text)) == (200, True)


def test_what_cannot_be_is_a_sentence_beside_the_form(callers: Callers, service: Service, net: onnx.ModelProto) -> None:
    client = callers.submitter()
    nothing = client.post("/inspect", data={"model": ""}, headers=FORM)
    assert (nothing.status_code, "Choose a model." in nothing.text) == (422, True)
    model = uploaded(service, net.SerializeToString())
    wrong = client.post("/inspect", data={"model": model, "backend": "whitelist", "options": "prof=x"}, headers=FORM)
    assert (wrong.status_code, "profile" in text(wrong.text)) == (422, True)
    other = callers.submitter(tenant="other").post("/inspect", data={"model": model}, headers=FORM)
    assert other.status_code == 404
    assert callers.reader().get("/inspect").status_code == 403


def test_names_of_nodes_are_text(callers: Callers, service: Service, net: onnx.ModelProto) -> None:
    net.graph.node[0].name = HOSTILE
    model = uploaded(service, net.SerializeToString())
    fields = {"model": model, "backend": "whitelist", "options": "profile=edgesam"}
    html = callers.submitter().post("/inspect", data=fields, headers=FORM).text
    assert "Gather: 1 node" in html
    assert HOSTILE not in html
