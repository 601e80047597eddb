"""What does not begin like an ONNX file is refused before the rest of it is read; every model of the tests is taken."""

import gzip
from pathlib import Path

import pytest

from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.uploads.model_form import OnnxHead, begins_like_a_model
from support.api.callers import Callers
from support.api.model_bytes import model

MODELS = sorted(Path(__file__).parents[1].joinpath("models").glob("*.onnx"))
TEXTS = [
    b"a text, and nothing else\n",
    b"{}",
    b'{"ir_version": 10}',
    b"<html>",
    b"(a list)",
    b"2026-01-01 a log of what happened, line by line, for some lines",
    b"ir_version: 8\n",
    b"report of a model, which is none\n" * 10,
    b"PK\x03\x04",
    gzip.compress(b"\x08\x0a", mtime=0),
    b"\x00" * 100,
    b"\xff" * 100,
    b"\x89PNG\r\n\x1a\n",
    b"\x7fELF\x02\x01\x01",
    b"\xef\xbb\xbfabc",
    b"version https://git-lfs.github.com/spec/v1\n",
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("form", [False, True])
def test_what_is_no_model_is_refused(callers: Callers, text: bytes, form: bool) -> None:
    client = callers.submitter()
    if form:
        answer = client.post("/v1/models", files=[("model", ("net.onnx", text)), ("data", ("w", b"w"))])
    else:
        answer = client.put("/v1/models", content=text)
    assert answer.status_code == 422
    assert "no ONNX file" in answer.json()["detail"]
    assert client.get("/v1/models").json() == []


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_models_are_taken(path: Path) -> None:
    whole = path.read_bytes()
    for size in (*range(1, 200), len(whole)):
        assert begins_like_a_model(whole[:size])


def test_fields_may_come_in_any_order() -> None:
    assert begins_like_a_model(b"\x12\x05torch\x08\x0a\xa2\x01\x00\xca\x01\x00")
    assert begins_like_a_model(model(b"x"))


def test_a_beginning_in_pieces_is_seen_whole() -> None:
    head = OnnxHead()
    head.see(b"\x12\x05to")
    head.see(b"rch")
    with pytest.raises(Problem):
        head.see(b" and a text")
