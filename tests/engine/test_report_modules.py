"""What a report says of each module of the network."""

import jsonschema
import onnx
from onnx import helper

from onnx_bisect import report_schema
from onnxbisect.model.modules import parts, path_of, path_of_node, spelled
from onnxbisect.report.contents import Report
from onnxbisect.report.document import document
from onnxbisect.report.html import html
from onnxbisect.report.markdown import markdown
from onnxbisect.report.terminal import lines
from support.engine.report_factory import HOSTILE, chain, job_of, single

NAMES = ["/encoder/Relu", "/prompt/Exp", "/prompt/Tanh", "/decoder/layers.0/Erf", "/decoder/layers.1/Exp"]
NET = chain(["Relu", "Exp", "Tanh", "Erf", "Exp"], dict(enumerate(NAMES)))


def modules(found: Report) -> dict[str, tuple[str, dict[str, int]]]:
    jsonschema.validate(found, report_schema())
    return {it["name"]: (it["verdict"], {op["op"]: op["nodes"] for op in it["refused"]}) for it in found["modules"]}


def test_each_module_has_its_verdict_and_what_is_refused() -> None:
    found = document(job_of(NET, [single(NET, [1, 4], "no Exp")]))
    assert modules(found) == {
        "/encoder": ("pass", {}),
        "/prompt": ("fail", {"Exp": 1}),
        "/decoder": ("fail", {"Exp": 1}),
    }
    shown = lines(found)
    place = shown.index("Modules")
    assert [line.split() for line in shown[place + 1 : place + 4]] == [
        ["/prompt", "2", "units", "Exp"],
        ["/decoder", "2", "units", "Exp"],
        ["/encoder", "1", "unit", "compiles"],
    ]
    assert "| `/prompt` | 2 | `Exp` |" in markdown(found)
    assert "<h2>Modules</h2>" in html(found)


def test_they_are_not_shown_where_the_ops_say_as_much() -> None:
    """All compile, or none does, or the network has no several modules."""
    flat = chain(["Relu", "Exp"], {0: "n0", 1: "n1"})
    for found in (document(job_of(NET, [])), document(job_of(flat, [single(flat, [1], "no Exp")]))):
        assert "Modules" not in lines(found)
        assert "## Modules" not in markdown(found)
    assert document(job_of(flat, []))["modules"] == []


def test_a_report_of_an_earlier_version_is_shown_without_them() -> None:
    found = document(job_of(NET, [single(NET, [1], "no Exp")]))
    del found["modules"]
    assert "Modules" not in lines(found)


def test_names_of_modules_are_not_trusted() -> None:
    evil = chain(["Relu", "Exp"], {0: f"/{HOSTILE.replace('/', '')}/Relu", 1: "/b/Exp"})
    found = document(job_of(evil, [single(evil, [1], "no Exp")]))
    assert "\x1b" not in "\n".join(lines(found)) + markdown(found)
    assert "<img" not in html(found)


def test_names_of_a_thousand_modules_are_none() -> None:
    """Each entry looks at all units: a made-up model could make a report take hours."""
    paths = {unit: (f"m{unit}",) for unit in range(1001)}
    assert parts(paths) == {}
    del paths[1000]
    assert len(parts(paths)) == 1000


class TestPaths:
    """Exporters spell one module in several ways."""

    def test_a_list_of_modules_names_each_in_the_network_or_in_the_one_before(self) -> None:
        assert node(["", "x", "transformer", "transformer.layers.0", "transformer.layers.0.norm", "add"]) == (
            "x",
            "transformer",
            "layers.0",
            "norm",
        )
        assert node(["", "layers", "layers.0", "layers.0.1", "add"]) == ("layers.0.1",)
        assert node(["", "add"]) == ()

    def test_the_namespace_serves_where_there_is_no_list(self) -> None:
        entry = onnx.StringStringEntryProto(key="namespace", value=": a.Net/enc: b.Enc/enc.mlp.2: c.Mlp/add: aten.add")
        made = helper.make_node("Add", ["a", "b"], ["c"], name="node_add")
        made.metadata_props.append(entry)
        assert path_of_node(made) == ("enc", "mlp.2")

    def test_else_the_name_has_it(self) -> None:
        assert path_of_node(helper.make_node("Add", [], ["c"], name="/enc/layers.0/Add")) == ("enc", "layers.0")
        assert path_of_node(helper.make_node("Add", [], ["c"], name="Add_7")) == ()

    def test_both_spellings_are_one(self) -> None:
        for text in ("decoder.layers.0.norm", "/decoder/layers.0/norm", "decoder/layers.0/norm/"):
            assert spelled(path_of(text)) == "/decoder/layers.0/norm"


def node(scopes: list[str]) -> tuple[str, ...]:
    made = helper.make_node("Add", ["a", "b"], ["c"], name="/not/this/one")
    made.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value=str(scopes)))
    return path_of_node(made)
