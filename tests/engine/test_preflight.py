"""Every preflight check: one small model that triggers it, and one that nearly does."""

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.model import load
from onnxbisect.preflight import Finding, Severity, ToolLimits, after_pass, checks, preflight, structure
from onnxbisect.probe_format import ProbeFormat

PLAIN = "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"


def parse(text: str, opset: int = 17, ir_version: int = 8, domains: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}{domains}]>\n{text}')


def findings(proto: onnx.ModelProto, folder: Path, **shapes: list[int]) -> dict[str, Finding]:
    path = folder / "m.onnx"
    onnx.save(proto, path)
    return {finding.id: finding for finding in preflight(load(path, input_shapes=shapes))}


def with_weight(array: np.ndarray, body: str, **more) -> onnx.ModelProto:
    proto = parse(f"g (float[2,3] x) => (float[2,3] y) {{ {body} }}", **more)
    proto.graph.initializer.append(numpy_helper.from_array(array, "w"))
    return proto


def sparse() -> onnx.ModelProto:
    proto = parse("g (float[2,3] x) => (float[2,3] y) { y = Add(x, s) }")
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [2])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    return proto


def named(*names: str) -> onnx.ModelProto:
    proto = parse("g (float[2,3] x) => (float[2,3] y) { a = Relu(x)  y = Sin(a) }")
    for node, name in zip(proto.graph.node, names, strict=True):
        node.name = name
    return proto


def declared(dims: list[int], dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    proto = named("a", "b")
    proto.graph.value_info.append(helper.make_tensor_value_info("a", dtype, dims))
    return proto


def with_input(name: str) -> onnx.ModelProto:
    proto = named("one", "two")
    proto.graph.input[0].name = proto.graph.node[0].input[0] = name
    return proto


def unsorted_() -> onnx.ModelProto:
    proto = named("first", "second")
    proto.graph.node.reverse()
    return proto


POOL = "g (float[1,1,4,4] x) => (float[1,1,3,3] y) { y = MaxPool <kernel_shape = [2, 2]> (x) }"


def with_unnamed_output(model):
    model.graph.node[0].output.append("")
    return model


def weight_as_input() -> onnx.ModelProto:
    proto = with_weight(np.ones([2, 3], np.float32), "y = Add(x, w)")
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3]))
    return proto


def without_default_domain() -> onnx.ModelProto:
    proto = parse("g (float[2,3] x) => (float[2,3] y) { y = acme.Act(x) }", domains=', "acme" : 1')
    del proto.opset_import[0]
    return proto


def if_(condition: str, then: str = "Relu(x)") -> str:
    return f"""g (float[2,3] x, bool c) => (float[2,3] y) {{
        k = Constant <value = bool {{1}}> ()  y0 = Identity(c)
        y = If({condition}) <
            then_branch = t () => (float[2,3] a) {{ a = {then} }},
            else_branch = e () => (float[2,3] b) {{ b = Constant <value = float[2,3] {{1, 2, 3, 4, 5, 6}}> () }}
        > }}"""


FUNCTION = """g (float[2,3] x) => (float[2,3] y) { y = local.f (x) }
<domain: "local", opset_import: ["" : 17]> f (a) => (b) { b = Relu(a) }"""
SEQUENCE = """g (float[2,3] x) => (float[2,3] y) {
    s = SequenceConstruct(x, x)  i = Constant <value = int64 {0}> ()  y = SequenceAt(s, i) }"""
OPTIONAL = "g (float[2,3] x) => (float[2,3] y) { o = Optional(x)  y = OptionalGetElement(o) }"
STRING = "g (string[2] x) => (string[2] y) { y = Identity(x) }"
SCATTER = """i = Constant <value = int64[1,1] {0}> ()
    u = Constant <value = float[1,3] {1, 2, 3}> ()  y = ScatterND(x, i, u)"""
CONV = (
    """g (float[1,1,4,4] x WEIGHT) => (float y) <float[1,1,1,1] c = {1}> { y = Conv <kernel_shape = [1, 1]> (x, w) }"""
)


def plain(body: str, kind: str = "float[2,3]", out: str = "float[2,3]", **more) -> onnx.ModelProto:
    return parse(f"g ({kind} x) => ({out} y) {{ {body} }}", **more)


#: id, a model that has it, one that has not.
CASES = {
    "dynamic-input-dim": (plain("y = Relu(x)", "float[N,3]"), plain("y = Relu(x)")),
    "unknown-rank": (
        plain("a, b = acme.Two(x)  c = Relu(b)  y = acme.Act(c)", out="float", domains=', "acme" : 1'),
        plain("a = Relu(x)  y = Sin(a)"),
    ),
    "data-dependent-shape-op": (
        plain("y = NonZero(x)", out="int64[2,N]"),
        plain("s = Shape(x)  y = Reshape(x, s)"),
    ),
    "input-decides": (parse(if_("c")), parse(if_("k"))),
    "zero-size-dim": (
        plain("y = Relu(x)", "float[2,0]", "float[2,0]"),
        with_weight(np.zeros([0], np.float32), "y = Relu(x)"),
    ),
    "rank-too-high": (plain("y = Relu(x)", "float[1,1,1,1,2,3]", "float[1,1,1,1,2,3]"), plain("y = Relu(x)")),
    "rank-too-low": (plain("y = Relu(x)", "float[3]", "float[3]"), plain("y = Relu(x)")),
    "batch-not-one": (
        plain("y = Relu(x)", "float[2,3,4,4]", "float[2,3,4,4]"),
        plain("y = Relu(x)", "float[1,3,4,4]", "float[1,3,4,4]"),
    ),
    "dim-too-large": (
        plain("y = Relu(x)", "float[1,65536]", "float[1,65536]"),
        plain("y = Relu(x)", "float[1,65535]", "float[1,65535]"),
    ),
    "large-intermediate": (
        plain("y = Softmax(x)", "float[1025,1024]", "float[1025,1024]"),
        plain("y = Relu(x)", "float[1025,1024]", "float[1025,1024]"),
    ),
    "int64-tensors": (plain("y = Cast <to = 7> (x)", out="int64[2,3]"), plain("s = Shape(x)  y = Reshape(x, s)")),
    "int64-out-of-int32": (
        plain("w = Constant <value = int64[2] {0, 4294967296}> ()  f = Cast <to = 1> (w)  y = Relu(x)"),
        plain(
            "s = Constant <value = int64[1] {0}> ()  e = Constant <value = int64[1] {9223372036854775807}> ()"
            "  y = Slice(x, s, e)"
        ),
    ),
    "double-tensors": (plain("y = Cast <to = 11> (x)", out="double[2,3]"), plain("y = Relu(x)")),
    "bfloat16-tensors": (plain("y = Cast <to = 16> (x)", out="bfloat16[2,3]"), plain("y = Relu(x)")),
    "unsigned-tensors": (
        plain("y = Cast <to = 2> (x)", out="uint8[2,3]"),
        plain("q, s, z = DynamicQuantizeLinear(x)  y = DequantizeLinear(q, s, z)"),
    ),
    "bool-tensors": (plain("y = IsNaN(x)", out="bool[2,3]"), plain("y = Relu(x)")),
    "half-bfloat-weights": (
        with_weight(np.ones([2, 3], np.float16), "f = Cast <to = 1> (w)  y = Add(x, f)"),
        with_weight(np.ones([2, 3], np.float32), "y = Add(x, w)"),
    ),
    "quantized-ops": (plain("q, s, z = DynamicQuantizeLinear(x)  y = DequantizeLinear(q, s, z)"), parse(PLAIN)),
    "sequence-type": (parse(SEQUENCE), parse(PLAIN)),
    "optional-type": (parse(OPTIONAL), parse(PLAIN)),
    "string-type": (parse(STRING), parse(PLAIN)),
    "control-flow": (parse(if_("c")), parse(if_("k"))),
    "control-flow-constant-condition": (parse(if_("k")), parse(if_("c"))),
    "outer-scope-capture": (
        parse(if_("c")),
        parse(if_("c", "Constant <value = float[2,3] {1, 2, 3, 4, 5, 6}> ()")),
    ),
    "local-functions": (parse(FUNCTION, domains=', "local" : 1'), parse(PLAIN)),
    "initializer-as-input": (weight_as_input(), with_weight(np.ones([2, 3], np.float32), "y = Add(x, w)")),
    "unused-input": (
        parse("g (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Relu(x) }"),
        parse(if_("c")),
    ),
    "input-is-output": (
        parse("g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Relu(x)  a = Identity(x)  z = Identity(a) }"),
        plain("a = Relu(x)  y = Identity(a)"),
    ),
    "constant-output": (
        parse("g (float[2,3] x) => (float[2,3] y, int64[2] s) { y = Relu(x)  s = Shape(x) }"),
        plain("s = Shape(x)  y = Reshape(x, s)"),
    ),
    "no-compute-node": (plain("s = Shape(x)  y = Cast <to = 1> (s)", out="float[2]"), parse(PLAIN)),
    "no-input": (
        parse("g () => (float[2] y) { c = Constant <value = float[2] {1, 2}> ()  y = Relu(c) }"),
        parse(PLAIN),
    ),
    "sparse-initializer": (sparse(), with_weight(np.ones([2, 3], np.float32), "y = Add(x, w)")),
    "unbatched-pool": (
        parse("g (float[3,4,4] x) => (float[3,3,3] y) { y = MaxPool <kernel_shape = [2,2]> (x) }"),
        parse("g (float[1,3,4,4] x) => (float[1,3,3,3] y) { y = MaxPool <kernel_shape = [2,2]> (x) }"),
    ),
    "invalid-model": (unsorted_(), parse(PLAIN)),
    "invalid-node": (
        plain("p = Constant <value = int64[2] {1, 1}> ()  a = Pad(x, p)  y = Relu(a)"),
        plain("p = Constant <value = int64[4] {0, 0, 0, 0}> ()  a = Pad(x, p)  y = Relu(a)"),
    ),
    "shape-contradiction": (declared([3, 5]), declared([2, 3])),
    "not-topologically-sorted": (unsorted_(), named("first", "second")),
    "shape-subgraph-not-folded": (
        plain("s = Shape(x)  y = Reshape(x, s)"),
        plain("s = Constant <value = int64[2] {2, 3}> ()  y = Reshape(x, s)"),
    ),
    "custom-domain": (
        plain("y = com.microsoft.Gelu(x)", domains=', "com.microsoft" : 1'),
        parse(FUNCTION, domains=', "local" : 1'),
    ),
    "ml-domain": (plain("y = ai.onnx.ml.Binarizer(x)", domains=', "ai.onnx.ml" : 3'), parse(PLAIN)),
    "schema-function-op": (plain("y = HardSwish(x)"), plain("y = Clip(x)")),
    "random-op": (plain("r = RandomNormalLike(x)  y = Add(x, r)"), plain("y = Dropout(x)")),
    "training-mode": (
        plain("r = Constant <value = float {0.5}> ()  t = Constant <value = bool {1}> ()  y = Dropout(x, r, t)"),
        plain("r = Constant <value = float {0.5}> ()  t = Constant <value = bool {0}> ()  y = Dropout(x, r, t)"),
    ),
    "missing-default-attr": (plain("y = LeakyRelu(x)"), plain("y = LeakyRelu <alpha = 0.01> (x)")),
    "constant-node-not-tensor-value": (
        plain("c = Constant <value_float = 1.0> ()  y = Add(x, c)"),
        plain("c = Constant <value = float {1.0}> ()  y = Add(x, c)"),
    ),
    "explicit-reduction-none": (
        plain(SCATTER.replace("ScatterND", 'ScatterND <reduction = "none">')),
        plain(SCATTER),
    ),
    "empty-input-name": (
        plain("m = Constant <value = float {1.0}> ()  y = Clip(x, , m)"),
        plain("m = Constant <value = float {1.0}> ()  y = Clip(x, m, )"),
    ),
    "empty-output-name": (
        with_unnamed_output(parse(POOL)),
        parse(POOL),
    ),
    "unread-output": (
        plain("y, mask = Dropout(x)"),
        plain("a, mask = Dropout(x)  b = Cast <to = 1> (mask)  y = Add(a, b)"),
    ),
    "non-constant-weights": (
        parse(CONV.replace("WEIGHT", ", float[1,1,1,1] w")),
        parse(CONV.replace("WEIGHT", "").replace("(x, w)", "(x, c)")),
    ),
    "isnan-guard": (
        plain("n = IsNaN(x)  z = Constant <value = float {0}> ()  y = Where(n, z, x)"),
        plain("y = IsNaN(x)", out="bool[2,3]"),
    ),
    "reduction-axes-input": (
        parse("g (float[2,3] x) => (float[2,1] y) <int64[1] a = {1}> { y = ReduceMean(x, a) }", opset=18),
        parse("g (float[2,3] x) => (float[2,1] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }", opset=18),
    ),
    "no-op-node": (
        plain("a = Relu(x)  b = Identity(a)  y = Sin(b)"),
        plain("a, mask = Dropout(x)  b = Cast <to = 1> (mask)  y = Add(a, b)"),
    ),
    "postprocess-tail": (
        parse("g (float[2,3] x) => (float[2,1] v, int64[2,1] i) <int64[1] k = {1}> { v, i = TopK(x, k) }"),
        parse(
            "g (float[2,3] x) => (float[2,2] y) <int64[1] k = {1}, float[1,2] w = {1, 2}> "
            "{ v, i = TopK(x, k)  y = MatMul(v, w) }"
        ),
    ),
    "opset-too-old": (plain("y = Relu(x)", opset=10), plain("y = Relu(x)", opset=11)),
    "opset-too-new": (plain("y = Relu(x)", opset=20), plain("y = Relu(x)", opset=19)),
    "op-newer-than-opset": (plain("y = Mish(x)", opset=17), plain("y = Mish(x)", opset=18)),
    "ir-version-too-new": (plain("y = Relu(x)", ir_version=10), plain("y = Relu(x)", ir_version=9)),
    "missing-default-domain": (without_default_domain(), parse(PLAIN)),
    "duplicate-node-name": (named("twin", "twin"), named("one", "two")),
    "odd-names": (with_input("layer/x:0"), with_input("layer.x-0")),
}


@pytest.mark.parametrize("id_", sorted(CASES))
def test_check(id_, tmp_path):
    has, has_not = CASES[id_]
    assert id_ in findings(has, tmp_path)
    assert id_ not in findings(has_not, tmp_path)


def test_every_check_has_a_case_and_every_text_is_a_sentence():
    assert {check.id for check in checks()} == {*CASES, "model-over-2gb", "external-data", "dynamic-internal-dim"}
    for check in checks():
        assert check.why.endswith("."), check.id
        assert check.fix.endswith("."), check.id


def test_a_small_model_with_external_data_is_not_called_a_large_one(tmp_path, monkeypatch):
    proto = with_weight(np.ones([2, 3], np.float32), "y = Add(x, w)")
    assert not {"model-over-2gb", "external-data"} & findings(proto, tmp_path).keys()
    onnx.save(proto, tmp_path / "e.onnx", save_as_external_data=True, size_threshold=0)
    found = {finding.id: finding for finding in preflight(load(tmp_path / "e.onnx"))}
    assert found["external-data"].tensors == ("w",)
    assert "model-over-2gb" not in found
    monkeypatch.setattr(structure, "_LIMIT", 24)
    assert {"model-over-2gb", "external-data"} <= {finding.id for finding in preflight(load(tmp_path / "e.onnx"))}


@pytest.mark.parametrize("limit", [1, 1 << 30])
def test_sizes_that_values_decide_are_told_once_with_a_run_or_without_one(tmp_path, limit):
    path = tmp_path / "m.onnx"
    onnx.save(plain("a = Relu(x)  b = NonZero(a)  y = Cast <to = 1> (b)", out="float[2,N]"), path)
    found = {finding.id: finding for finding in preflight(load(path, memory_limit=limit))}
    assert found["data-dependent-shape-op"].tensors == ("b", "y")
    assert "dynamic-internal-dim" not in found


def test_binding_the_input_settles_it(tmp_path):
    proto = CASES["dynamic-input-dim"][0]
    assert findings(proto, tmp_path)["dynamic-input-dim"].tensors == ("x",)
    assert "dynamic-input-dim" not in findings(proto, tmp_path, x=[2, 3])


def test_findings_name_nodes_of_the_main_graph_in_model_order(tmp_path):
    """What stands in a body or a function is found at the node that holds or calls it."""
    body = parse(if_("c", "HardSwish(x)"))
    body.graph.node[-1].name = "choose"
    assert findings(body, tmp_path)["schema-function-op"].nodes == ("choose",)
    call = parse(FUNCTION.replace("Relu(a)", "HardSwish(a)"), domains=', "local" : 1')
    call.graph.node[0].name = "call"
    assert findings(call, tmp_path)["schema-function-op"].nodes == ("call",)
    two = plain("a = HardSwish(x)  y = Mish(a)", opset=18)
    two.graph.node[0].name, two.graph.node[1].name = "z", "a"
    assert findings(two, tmp_path)["schema-function-op"].nodes == ("z", "a")


def test_duplicate_names_are_given_as_they_are_called_here(tmp_path):
    found = findings(named("twin", "twin"), tmp_path)["duplicate-node-name"]
    assert found.nodes == ("twin", "twin_1")
    assert "twin" in found.detail


def test_errors_come_first(tmp_path):
    proto = plain("a = HardSwish(x)  b = LeakyRelu(a)  y = acme.Act(b)", domains=', "acme" : 1', ir_version=10)
    severities = [finding.severity for finding in findings(proto, tmp_path).values()]
    assert severities == sorted(severities, key=list(Severity).index)
    assert {Severity.ERROR, Severity.WARNING, Severity.INFO} == set(severities)


def test_a_clean_model_has_no_finding(tmp_path):
    assert findings(named("one", "two"), tmp_path) == {}


def test_functions_that_multiply_are_looked_at_once(tmp_path):
    """30 functions that each call the next one twice stand for a billion nodes."""
    local = '<domain: "local", opset_import: ["" : 17, "local" : 1]> '
    text = "g (float[2,3] x) => (float[2,3] y) { y = local.f0 (x) }" + "".join(
        f"{local} f{i} (a) => (c) {{ b = local.f{i + 1} (a)  c = local.f{i + 1} (b) }}" for i in range(30)
    )
    proto = parse(text + f"{local} f30 (a) => (b) {{ b = HardSwish(a) }}", domains=', "local" : 1')
    proto.graph.node[0].name = "call"
    path = tmp_path / "m.onnx"
    onnx.save(parse(FUNCTION, domains=', "local" : 1'), path)
    model = replace(load(path), proto=proto)  # onnxruntime, which intake asks, inlines functions for ever
    found = {finding.id: finding for finding in preflight(model)}
    assert found["schema-function-op"].nodes == ("call",)


def concerning(reader: ToolLimits, proto: onnx.ModelProto, folder: Path) -> list[Finding]:
    onnx.save(proto, folder / "m.onnx")
    return list(preflight(load(folder / "m.onnx"), reader))


def test_a_file_newer_than_the_tool_reads_is_the_first_thing_said_of_it(tmp_path: Path) -> None:
    reader = ToolLimits(tool="Chipper", newest_ir=9, newest_opset=19)
    proto = parse(PLAIN, opset=20, ir_version=10)
    found = concerning(reader, proto, tmp_path)
    assert [(f.id, f.severity, f.detail) for f in found[:2]] == [
        ("opset-newer-than-tool", Severity.ERROR, "opset 20, Chipper reads up to 19"),
        ("ir-newer-than-tool", Severity.ERROR, "IR version 10, Chipper reads up to 9"),
    ]
    assert "culprits" in found[1].why
    # instead of the remarks about tools in general
    assert not {"ir-version-too-new", "opset-too-new"} & {f.id for f in found}


def test_a_file_older_than_the_tool_reads_in_full_is_a_warning(tmp_path: Path) -> None:
    found = concerning(ToolLimits(tool="Chipper", oldest_opset=17), parse(PLAIN, opset=10), tmp_path)
    assert (found[0].id, found[0].severity) == ("opset-older-than-tool", Severity.WARNING)
    assert found[0].detail == "opset 10, Chipper reads all ops from 17 on"
    assert "opset-too-old" not in {f.id for f in found}
    assert "opset-older-than-tool" not in {
        f.id for f in concerning(ToolLimits(tool="Chipper", oldest_opset=17), parse(PLAIN, opset=17), tmp_path)
    }


def test_what_is_advised_for_a_file_that_is_too_new_makes_it_old_enough(tmp_path: Path) -> None:
    found = concerning(ToolLimits(tool="Chipper", newest_ir=9), parse(PLAIN, ir_version=10), tmp_path)
    (newer,) = [f for f in found if f.id == "ir-newer-than-tool"]
    python, *arguments = shlex.split(newer.fix.partition(": ")[2].removesuffix("."))
    assert python == "python"
    subprocess.run([sys.executable, *arguments], cwd=tmp_path, check=True)
    assert onnx.load(tmp_path / "m.onnx").ir_version == 9


def test_a_file_that_the_tool_reads_gives_no_alarm(tmp_path: Path) -> None:
    reader = ToolLimits(tool="Chipper", newest_ir=10, newest_opset=20)
    ids = {f.id for f in concerning(reader, parse(PLAIN, opset=20, ir_version=10), tmp_path)}
    assert not ids & {"ir-newer-than-tool", "opset-newer-than-tool", "ir-version-too-new", "opset-too-new"}
    # of a tool that does not say what it reads, only what is true of tools in general
    ids = {f.id for f in concerning(ToolLimits(tool="Chipper"), parse(PLAIN, opset=20, ir_version=10), tmp_path)}
    assert {"ir-version-too-new", "opset-too-new"} <= ids


def test_what_the_format_of_probes_hides_is_said_of_the_file(tmp_path: Path) -> None:
    proto = parse("g (float[2,3] x) => (float[2,3] y) { y = LeakyRelu(x) }")
    plain = {f.id: f for f in concerning(ToolLimits(tool="Chipper"), proto, tmp_path)}
    prepared = {
        f.id: f
        for f in concerning(
            ToolLimits(tool="Chipper", probe_format=ProbeFormat(explicit_defaults=True)), proto, tmp_path
        )
    }
    assert plain["missing-default-attr"].severity is Severity.WARNING
    assert prepared["missing-default-attr"].severity is Severity.ERROR
    assert "Probes are written without it" in prepared["missing-default-attr"].why


def test_an_error_is_none_to_a_tool_that_takes_the_model(tmp_path: Path) -> None:
    reader = ToolLimits(tool="Chipper", newest_ir=9, probe_format=ProbeFormat(explicit_defaults=True))
    proto = parse("g (float[2,3] x) => (float[2,3] y) { y = LeakyRelu(x) }", ir_version=10)
    found = {finding.id: finding for finding in after_pass(reader, concerning(reader, proto, tmp_path))}
    assert found["ir-newer-than-tool"].severity is Severity.WARNING
    # what probes were spared may still be an error of the file
    assert found["missing-default-attr"].severity is Severity.ERROR


def test_advice_that_a_remedy_follows_names_the_command_and_the_file(tmp_path: Path) -> None:
    onnx.save(parse(FUNCTION, domains=', "local" : 1'), tmp_path / "my net.onnx")
    (finding,) = [it for it in preflight(load(tmp_path / "my net.onnx")) if it.id == "local-functions"]
    assert "`onnx-bisect fix 'my net.onnx'`" in finding.fix


@pytest.mark.parametrize(
    ("id_", "proto"),
    [
        ("data-dependent-shape-op", plain("y = NonZero(x)", out="int64[2,N]")),
        ("data-dependent-shape-op", parse("g (float[1,3] x, int64[2] s) => (float[N,3] y) { y = Expand(x, s) }")),
        (
            "data-dependent-shape-op",
            parse("g (float[9] x, int64[1] e) => (float[N] y) <int64[1] b = {0}> { y = Slice(x, b, e) }"),
        ),
        ("non-constant-weights", parse(CONV.replace("WEIGHT", ", float[1,1,1,1] w"))),
        ("non-constant-weights", plain("w = Transpose(x)  y = Gemm(x, w)", out="float[2,2]")),
    ],
)
def test_no_command_is_named_for_what_depends_on_the_values_of_inputs(id_, proto, tmp_path) -> None:
    """Folding was promised, which needs constants."""
    finding = findings(proto, tmp_path)[id_]
    assert "onnx-bisect fix" not in finding.fix
    assert not finding.remedy


def test_folding_is_promised_where_sizes_may_yet_be_bound(tmp_path) -> None:
    proto = plain("s = Shape(x)  y = Reshape(x, s)", "float[N,3]", "float[N,3]")
    assert findings(proto, tmp_path)["data-dependent-shape-op"].remedy == "fold-constants"
    assert "data-dependent-shape-op" not in findings(proto, tmp_path, x=[2, 3])


def test_a_loop_whose_condition_is_made_of_itself_is_described(tmp_path: Path) -> None:
    """Identities that lead in a circle, as in a damaged file, were followed for ever."""
    body = "body = b (int64 i, bool c, float[2,3] a) => (bool co, float[2,3] ao) { co, c = Identity(c) ao = Relu(a) }"
    proto = parse(
        f"g (float[2,3] x) => (float[2,3] y) <bool t = {{1}}, int64 n = {{3}}> {{ y = Loop <{body}> (n, t, x) }}"
    )
    assert "control-flow" in findings(proto, tmp_path)


QNN = ToolLimits(tool="Qualcomm QNN (onnxruntime-qnn)")


@pytest.mark.parametrize("id_", [check.id for check in checks() if QNN.tool in check.taken_by])
def test_what_a_tool_was_seen_to_compile_is_no_error_for_it(id_: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(CASES[id_][0], path)
    found = {finding.id: finding for finding in preflight(load(path), QNN)}[id_]
    other = {finding.id: finding for finding in preflight(load(path), ToolLimits(tool="Chipper"))}[id_]
    assert found.severity is Severity.WARNING
    assert found.why.endswith(f"{QNN.tool} was seen to compile a model with it.")
    assert "QNN" not in other.why


def test_a_written_reduction_is_an_error_for_the_tool_that_refuses_it(tmp_path: Path) -> None:
    proto = CASES["explicit-reduction-none"][0]
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    refuses = ProbeFormat(unwritten_defaults=("ScatterND.reduction", "ScatterElements.reduction"))
    seen = {
        tool: {it.id: it for it in preflight(load(path), ToolLimits(tool=tool, probe_format=probe_format))}
        for tool, probe_format in (("refuses", refuses), ("RKNN-Toolkit2", ProbeFormat()))
    }
    severities = [found["explicit-reduction-none"].severity for found in seen.values()]
    assert severities == [Severity.ERROR, Severity.WARNING]
