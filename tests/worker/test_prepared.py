"""What is stored of a prepared search is what was prepared."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Description
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import search_context
from onnxbisect_worker.context import LatestPrepared
from onnxbisect_worker.model_requests.protocol import OtherVersionError, Prepared

MODELS = Path(__file__).parent.parent / "models"

DEMANDING = Description(
    tool="a tool",
    version="1",
    environment="0123",
    probe_format=ProbeFormat(
        input_dtypes=frozenset({"float", "int64"}),
        self_contained=True,
        unwritten_defaults=("Softmax.axis", "Cast.saturate"),
        covered=("Resize",),
    ),
    weights_matter=True,
    newest_ir=8,
    samples=3,
)


@pytest.mark.parametrize("description", [None, DEMANDING], ids=["whitelist", "demanding"])
def test_what_comes_back_is_what_was_stored(description: Description | None) -> None:
    backend = registry.make("whitelist", {"profile": "pulsar2-ax650"})
    context = search_context(LoadedModel(MODELS / "sam_part1_prompt__ts11.onnx", {}), backend)
    prepared = Prepared(
        target=context.target,
        description=description or context.description,
        universe=replace(context.universe, required_producers={1: 0b101}),
        identity=context.identity,
        established=context.loaded.model.established.to_bytes(),
    )
    back = Prepared.from_bytes(prepared.to_bytes())
    assert (back.target, back.description, back.identity, back.established) == (
        prepared.target,
        prepared.description,
        prepared.identity,
        prepared.established,
    )
    for field in fields(prepared.universe):
        assert getattr(back.universe, field.name) == getattr(prepared.universe, field.name)
    assert back.to_bytes() == prepared.to_bytes()


@pytest.mark.parametrize("raw", [b"{}\n", b'{"made_by": "0.0.1, probe files 3", "target": 7}\n', b"[]"])
def test_what_another_version_stored_is_not_read(raw: bytes) -> None:
    """Whatever its fields are: another version may number units otherwise."""
    with pytest.raises(OtherVersionError, match="start the job again"):
        Prepared.from_bytes(raw)


def test_the_latest_are_kept_as_far_as_memory_allows() -> None:
    backend = registry.make("whitelist", {"profile": "pulsar2-ax650"})
    context = search_context(LoadedModel(MODELS / "sam_part1_prompt__ts11.onnx", {}), backend)
    read: list[str] = []

    def stored(sha256: str) -> Prepared:
        read.append(sha256)
        return Prepared(
            target=context.target,
            description=context.description,
            universe=replace(context.universe, op=context.universe.op),
            identity=sha256,
        )

    each = len(context.universe) * (2000 + len(context.universe) // 8)
    few = LatestPrepared(stored, memory=2 * each)
    assert [few(name).identity for name in "abacab"] == list("abacab")
    assert read == ["a", "b", "c", "b"]  # `a` was used before each other one
    del read[:]
    one = LatestPrepared(stored, memory=0)
    assert [one(name).identity for name in "aabb"] == list("aabb")
    assert read == ["a", "b"]
