"""The simulated compiler, through its Backend contract: what it refuses and what its log admits of it."""

import pickle
import signal
import time
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbisect.errors import OptionError
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.simulator.backend import WhitelistBackend


def model(text: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "acme" : 1]>\n{text}')


def chain(*ops: str) -> onnx.ModelProto:
    """Unary ops one after the other; node names are `n0_Relu` and so on."""
    nodes = [
        helper.make_node(op.rpartition("::")[2], [f"t{i}"], [f"t{i + 1}"], f"n{i}_{op}", domain=op.rpartition("::")[0])
        for i, op in enumerate(ops)
    ]
    x = helper.make_tensor_value_info("t0", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info(f"t{len(ops)}", TensorProto.FLOAT, [2, 3])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=imports, ir_version=8)


@pytest.fixture
def ask(tmp_path: Path):
    def run(proto: onnx.ModelProto, limits: Limits | None = None, **options: str) -> Verdict:
        path = tmp_path / "probe.onnx"
        onnx.save(proto, path)
        backend = WhitelistBackend(options)
        return backend.judge(backend.compile(path, tmp_path, limits or Limits()))

    return run


def test_all_lists_every_op_type_once_and_no_node(ask):
    verdict = ask(chain("Relu", "Sinh", "Cosh", "Sinh"), profile="tpu-mlir-1.8.1")
    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.UNSUPPORTED)
    assert verdict.message == "RuntimeError: Op not support:{'Cosh', 'Sinh'}"
    assert set(verdict.hints.ops) == {"Sinh", "Cosh"}
    assert not verdict.hints.nodes


def test_first_names_the_first_offending_node_only(ask):
    verdict = ask(chain("Relu", "Sinh", "Cosh"), profile="pulsar2-ax650")
    assert verdict.message == "KeyError: 'dont support Sinh opr in AXOPS/ONNXOPS/CUSTOM_OPS'"
    assert (verdict.hints.ops, verdict.hints.nodes) == (("Sinh",), ("n1_Sinh",))


def test_none_is_a_crash_without_a_word(ask):
    verdict = ask(chain("Relu", "Sinh"), profile="pulsar2-ax650", report="none")
    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.CRASH)
    assert not verdict.hints
    assert "Sinh" not in verdict.message


def test_a_log_that_names_nodes_hints_at_all_of_them(ask):
    verdict = ask(chain("Sinh", "Relu", "Sinh"), profile="rknn-2.1.0")
    assert verdict.hints.nodes == ("n0_Sinh", "n2_Sinh")


@pytest.mark.parametrize("report", ["all", "first", "none"])
def test_what_is_supported_passes_in_every_mode(ask, report):
    assert ask(chain("Relu", "Sigmoid"), profile="edgesam", report=report).passed


def test_failures_of_one_op_share_a_fingerprint_and_those_of_two_do_not(ask):
    one = ask(chain("Sinh"), profile="pulsar2-ax650")
    other = ask(chain("Relu", "Relu", "Sinh"), profile="pulsar2-ax650")
    assert one.fingerprint == other.fingerprint != ""
    assert one.fingerprint != ask(chain("Cosh"), profile="pulsar2-ax650").fingerprint


def test_ops_and_deny_stand_in_for_a_profile(ask):
    assert ask(chain("Relu", "Sinh"), ops="Relu, Sinh").passed
    assert ask(chain("Relu", "Sinh"), ops="Relu").hints.ops == ("Sinh",)
    assert ask(chain("Relu", "Sinh"), deny="Cosh").passed
    assert ask(chain("Relu", "Sinh"), deny="Sinh").hints.ops == ("Sinh",)
    assert ask(chain("Relu"), profile="edgesam", deny="Relu").failed


def test_custom_domains_are_off_every_list_unless_the_tool_ignores_them(ask):
    assert ask(chain("acme::Relu"), profile="pulsar2-ax650").hints.ops == ("acme::Relu",)
    assert ask(chain("acme::Relu"), profile="tpu-mlir-1.8.1").passed
    assert ask(chain("acme::Relu"), deny="Relu").failed
    assert ask(chain("acme::Relu", "Relu"), deny="acme::Relu", report="first").hints.nodes == ("n0_acme::Relu",)


def test_chains_fail_only_where_one_feeds_the_other(ask):
    for ops, fails in [
        (("Sinh", "Cosh"), True),
        (("Sinh", "Relu", "Cosh"), False),
        (("Cosh", "Sinh"), False),
        (("Sinh",), False),
    ]:
        assert ask(chain(*ops), fail_patterns="ReduceMean>BatchNormalization;Sinh>Cosh").failed is fails, ops


def test_ops_that_cannot_be_together_fail_however_far_apart(ask):
    assert ask(chain("Asinh", "Relu", "Relu", "Cosh"), fail_patterns="Asinh&Cosh").failed
    assert ask(chain("Asinh", "Relu"), fail_patterns="Asinh&Cosh").passed
    assert ask(chain("Asinh", "Relu"), fail_patterns="Asinh&Asinh").passed
    assert ask(chain("Asinh", "Relu", "Asinh"), fail_patterns="Asinh&Asinh").failed


GELU = """g (float[2] x, float[2] c) => (float[2] y) { a = Div(x, c)  b = Erf(a)  y = Add(b, c) }"""


def test_an_op_that_needs_its_context_fails_without_either_neighbour(ask):
    option = {"ops": "Div,Add", "needs_context": "Erf:Div>Erf>Add"}
    assert ask(model(GELU), **option).passed
    for lacking in (
        "g (float[2] x, float[2] c) => (float[2] y) { b = Erf(x)  y = Add(b, c) }",
        "g (float[2] x, float[2] c) => (float[2] y) { b = Div(x, c)  y = Erf(b) }",
        "g (float[2] x) => (float[2] y) { y = Erf(x) }",
    ):
        assert ask(model(lacking), **option).hints.ops == ("Erf",)


def test_capacity_is_a_failure_of_another_kind_without_hints(ask):
    assert ask(chain(*["Relu"] * 5), deny="Sinh", max_nodes="5").passed
    verdict = ask(chain(*["Relu"] * 6), deny="Sinh", max_nodes="5")
    assert (verdict.kind, bool(verdict.hints)) == (Kind.RESOURCE, False)


def test_input_dtypes_are_declared_and_enforced(ask):
    proto = model("g (int64[2] x) => (int64[2] y) { y = Neg(x) }")
    assert ask(proto, deny="Sinh", input_dtypes="float").hints.tensors == ("x",)
    assert ask(proto, deny="Sinh", input_dtypes="float,int64").passed
    probe_format = WhitelistBackend({"deny": "Sinh", "input_dtypes": "float"}).describe().probe_format
    assert probe_format.input_dtypes == frozenset({"float"})


BODY = """g (float[2] x, bool c) => (float[2] y) {
    y = If(c) <then_branch = t () => (float[2] a) { a = Sinh(x) }, else_branch = e () => (float[2] b) { b = Relu(x) }>
}"""


def test_bodies_are_judged_and_the_node_that_holds_them_is_named(ask):
    proto = model(BODY)
    proto.graph.node[0].name = "choose"
    verdict = ask(proto, ops="If,Relu", report="first")
    assert (verdict.hints.ops, verdict.hints.nodes) == (("Sinh",), ("choose",))
    assert ask(proto, ops="If,Relu,Sinh").passed


FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2,3] x) => (float[2,3] y) { y = local.block <axis: int = AXIS> (x) }
<domain: "local", opset_import: ["" : 17]> block <axis> (a) => (b) {
    s = LpNormalization <axis: int = @axis> (a)
    b = BODY(s)
}"""


def test_a_call_is_judged_by_the_functions_body_with_the_callers_attributes(ask):
    def calling(axis: int, body: str = "Relu") -> onnx.ModelProto:
        proto = onnx.parser.parse_model(FUNCTION.replace("AXIS", str(axis)).replace("BODY", body))
        proto.graph.node[0].name = "call"
        return proto

    assert ask(calling(-1), profile="pulsar2-ax650").passed
    assert ask(calling(0), profile="pulsar2-ax650").hints.nodes == ("call",)
    assert ask(calling(-1, "Sinh"), profile="pulsar2-ax650").hints.ops == ("Sinh",)


def nested(depth: int, innermost: str = "Relu") -> onnx.ModelProto:
    """`f0` calls `f1` twice, which calls `f2` twice, and so on."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[2] x) => (float[2] y) { y = local.f0 (x) }'
        + "".join(
            f'<domain: "local", opset_import: ["" : 17, "local" : 1]> '
            f"f{i} (a) => (c) {{ b = local.f{i + 1} (a)  c = local.f{i + 1} (b) }}"
            for i in range(depth)
        )
        + f'<domain: "local", opset_import: ["" : 17]> f{depth} (a) => (b) {{ b = {innermost}(a) }}'
    )
    proto.graph.node[0].name = "call"
    return proto


def test_calls_that_multiply_are_judged_once_and_all_count(ask):
    assert ask(nested(30), deny="Sinh").passed
    assert ask(nested(30, "Sinh"), deny="Sinh", report="first").hints.nodes == ("call",)
    assert ask(nested(4), deny="Sinh", max_nodes="30").kind is Kind.RESOURCE
    assert ask(nested(4), deny="Sinh", max_nodes="60").passed


def test_functions_that_call_themselves_fail(ask):
    proto = nested(1, "local.f0")
    proto.functions[1].opset_import.append(helper.make_opsetid("local", 1))
    assert ask(proto, deny="Sinh").failed


SHAPES = """g (float[4,6] x) => (float[N] y) {
    s = Shape(x)  n = Size(x)  m = Mod(s, n)
    flat = Constant <value = int64[1] {-1}> ()  z = Add(m, flat)  y = Reshape(x, flat)
}"""


def test_what_is_computed_from_static_shapes_folds_where_the_tool_folds(ask):
    assert ask(model(SHAPES), profile="tpu-mlir-1.8.1").passed
    assert set(ask(model(SHAPES), profile="tpu-mlir-1.8.1", folds="false").hints.ops) == {"Mod", "Size"}
    assert ask(model(SHAPES.replace("[4,6]", "[N,6]")), profile="tpu-mlir-1.8.1").failed


def test_a_file_too_new_for_the_bundled_onnx_is_not_folded(ask):
    """The failure of the second record: at IR 10, Mod and Size stay; at IR 8 they are gone."""
    verdict = ask(model(SHAPES, ir_version=10), profile="tpu-mlir-1.8.1")
    assert verdict.message == "RuntimeError: Op not support:{'Mod', 'Size'}"


def test_shapes_are_inferred_where_the_file_leaves_them_out(ask):
    proto = model("g (float[4,6] x) => (int64[2] y) { a = Relu(x)  y = Shape(a) }")
    assert ask(proto, profile="pulsar2-ax650").passed


def test_an_opset_that_the_tool_does_not_read_says_nothing_of_the_ops(ask):
    verdict = ask(model(GELU, opset=20), profile="rknn-2.1.0")
    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.INVALID)
    assert verdict.message == "ValueError: Unsupport onnx opset 20, need <= 19!"


def test_hostile_names_stay_apart_and_on_their_line(ask):
    proto = chain("Relu", "Sinh")
    evil = 'a", "b\n[whitelist] {"kind": "error"}\x1b[2J'
    proto.graph.node[1].name = evil
    verdict = ask(proto, profile="rknn-2.1.0")
    assert verdict.hints.nodes == (evil,)
    assert "\n" not in verdict.message
    assert "\x1b" not in verdict.message


def test_a_probe_that_is_no_onnx_file_is_unresolved(tmp_path):
    path = tmp_path / "probe.onnx"
    path.write_bytes(b"\xff\xff\xff not a model")
    backend = WhitelistBackend({"deny": "Sinh"})
    assert backend.judge(backend.compile(path, tmp_path, Limits())).status is Status.UNRESOLVED


def test_delay_is_bounded_by_the_time_limit_and_makes_no_other_target(ask):
    started = time.monotonic()
    verdict = ask(chain("Relu"), Limits(seconds=0.1), deny="Sinh", delay="60")
    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.TIMEOUT)
    assert time.monotonic() - started < 5
    slow, fast = WhitelistBackend({"deny": "Sinh", "delay": "60"}), WhitelistBackend({"deny": "Sinh"})
    assert slow.options == fast.options


def test_a_log_cut_at_its_end_still_gives_a_failure():
    verdict = WhitelistBackend({"deny": "Sinh"}).judge(Outcome(exit_code=1, log="half a li", log_truncated=True))
    assert (verdict.status, verdict.kind) == (Status.FAIL, Kind.ERROR)


def test_a_crash_of_the_process_is_named_by_its_signal():
    verdict = WhitelistBackend({"deny": "Sinh"}).judge(Outcome(signal=signal.SIGABRT))
    assert (verdict.kind, "SIGABRT" in verdict.message) == (Kind.CRASH, True)


def test_the_list_is_advertised_unless_that_would_give_an_opaque_compiler_away():
    def advertised(**options: str):
        return WhitelistBackend(options).describe().ops

    assert "Relu" in advertised(profile="edgesam")
    assert "Relu" not in advertised(profile="edgesam", deny="Relu")
    assert advertised(profile="edgesam", advertise="false") is None
    assert advertised(deny="Sinh") is None


def test_an_edited_profile_is_another_target(tmp_path):
    path = tmp_path / "mine.toml"
    text = 'profile = "mine"\ntool = "t"\nversion = "1"\nsource = "me"\n[ops]\nRelu = {}\n'
    path.write_text(text)
    before = WhitelistBackend({"profile": str(path)}).describe()
    path.write_text(text + "Tanh = {}\n")
    after = WhitelistBackend({"profile": str(path)}).describe()
    assert before.version != after.version
    assert after.ops == frozenset({"Relu", "Tanh"})


def test_backends_travel_between_processes():
    backend = pickle.loads(pickle.dumps(WhitelistBackend({"profile": "edgesam"})))  # noqa: S301 - made here
    assert backend.options == {"profile": "edgesam", "report": "first"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"profil": "edgesam"}, "did you mean 'profile'"),
        ({"profile": "edgsam"}, "did you mean 'edgesam'"),
        ({"profile": "edgesam", "report": "some"}, "report"),
        ({"profile": "edgesam", "ops": "Relu"}, "not both"),
        ({"profile": "edgesam", "max_nodes": "0"}, "max_nodes"),
        ({}, "profile=NAME"),
        ({"fail_patterns": "A>>B"}, "lacks an op name"),
        ({"fail_patterns": "A&"}, "lacks an op name"),
        ({"fail_patterns": "Relu -> Sinh"}, "'Relu -' is no op name"),
        ({"fail_patterns": "Relu,Sinh"}, "must join two ops"),
        ({"needs_context": "Erf:Div>Add"}, "Op in the chain"),
        ({"needs_context": "Erf"}, "Op in the chain"),
        ({"profile": "nowhere.toml"}, "cannot be read"),
    ],
)
def test_wrong_options_are_explained(options, says):
    with pytest.raises(OptionError, match=says):
        WhitelistBackend(options)


def test_a_thousand_nodes_are_judged_in_a_blink(ask):
    proto = chain(*["Relu", "Sigmoid", "Tanh", "Exp"] * 250)
    started = time.perf_counter()
    assert ask(proto, profile="pulsar2-ax650").passed
    assert time.perf_counter() - started < 1.0


def test_lists_may_be_written_with_commas_as_reports_print_them():
    rules = {"fail_patterns": "Relu>Sinh,Asinh&Cosh", "needs_context": "Erf:Div>Erf>Add,Erf:Erf>Mul"}
    options = WhitelistBackend(rules).options
    assert (
        options["fail_patterns"] == WhitelistBackend({"fail_patterns": "Relu>Sinh;Asinh&Cosh"}).options["fail_patterns"]
    )
    assert len(options["needs_context"]) == 2


def record(folder: Path, ops: str) -> str:
    """A profile that lists what was seen, and nothing more."""
    path = folder / "seen.toml"
    text = f'profile = "seen"\ntool = "t"\nversion = "1"\nsource = "s"\nunlisted = "unknown"\n{ops}'
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("report", ["all", "first", "none"])
def test_what_a_record_does_not_settle_is_no_answer(ask, tmp_path, report):
    seen = record(tmp_path, "[ops]\nRelu = {}\n[refused]\nSin = 'no'\n")
    verdict = ask(chain("Relu", "Cosh", "Abs"), profile=seen, report=report)
    assert (verdict.status, verdict.kind) == (Status.UNRESOLVED, Kind.UNKNOWN)
    assert verdict.message == "not known to this profile: Abs, Cosh"
    assert verdict.final
    assert ask(chain("Relu"), profile=seen, report=report).passed
    assert ask(chain("Cosh", "Sin"), profile=seen, report=report).failed


def test_a_model_with_something_refused_fails_whatever_else_is_not_known(ask, tmp_path):
    seen = record(tmp_path, "[ops]\nRelu = {}\n[refused]\nSin = 'no'\n")
    verdict = ask(chain("Cosh", "Sin"), profile=seen)
    assert verdict.hints.ops == ("Sin",)
    assert "Cosh" not in verdict.message


def test_beyond_what_was_seen_of_an_op_it_is_not_known(ask, tmp_path):
    limit = '{ kind = "input", name = "X", rule = "rank_in", value = [2], effect = "unknown" }'
    refused = '{ variant = "(FLOAT[?,?])", message = "no such Elu" }'
    seen = record(tmp_path, f"[ops]\nRelu = {{ constraints = [{limit}] }}\nElu = {{ refuses = [{refused}] }}\n")
    assert ask(chain("Relu"), profile=seen).passed
    cube = model("g (float[2,3,4] x) => (float[2,3,4] y) { y = Relu(x) }")
    verdict = ask(cube, profile=seen)
    assert verdict.message == "not known to this profile: Relu (input X has rank 3, takes 2)"
    assert verdict.kind is Kind.UNKNOWN
    assert ask(chain("Elu"), profile=seen).failed
