"""The first question is the user's file: its bytes, its order and its declarations, and what is said is said of it.

The compilers here are functions, doubles of real ones, that mind the form of a file.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_bisect import Verdict, diagnose, fix
from onnx_bisect.backend_choice import CallableBackend
from onnxbisect.diagnosis import Certainty, CertificateStatus
from onnxbisect.model.order import depth_first
from onnxbisect.model.unused import unused
from onnxbisect.session import AS_PART, Ending
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.contract import Description

FLOAT = TensorProto.FLOAT


def chain(*ops: str, shape: tuple[int | str, ...] = (2, 3), prefix: str = "t") -> onnx.ModelProto:
    """A chain of unary ops, without value_info."""
    names = [f"{prefix}{number}" for number in range(len(ops) + 1)]
    nodes = [
        helper.make_node(op, [names[number]], [names[number + 1]], name=f"n{number}") for number, op in enumerate(ops)
    ]
    ends = [helper.make_tensor_value_info(name, FLOAT, shape) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    onnx.save(model, path)
    return path


class Seen:
    """A double of a compiler that says what it refuses, and keeps each file that it was given."""

    def __init__(self, refuses: Callable[[onnx.ModelProto], str]) -> None:
        self.files: list[bytes] = []
        self.models: list[onnx.ModelProto] = []
        self._refuses = refuses

    def __call__(self, path: Path) -> Verdict:
        self.files.append(path.read_bytes())
        self.models.append(onnx.load(path))
        said = self._refuses(self.models[-1])
        if not said:
            return Verdict(status=Status.PASS)
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, message=said)


def undeclared(model: onnx.ModelProto) -> str:
    known = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    missing = [name for node in model.graph.node for name in node.output if name not in known]
    return f"Cannot get the shape of {len(missing)} tensors" if missing else ""


def refused_op(*ops: str) -> Callable[[onnx.ModelProto], str]:
    def refuses(model: onnx.ModelProto) -> str:
        found = next((node.op_type for node in model.graph.node if node.op_type in ops), None)
        return f"{found} is not supported" if found else ""

    return refuses


def test_the_first_file_is_the_users_byte_for_byte(tmp_path: Path) -> None:
    path = saved(chain("Relu", "Sin", "Tanh"), tmp_path)
    compiler = Seen(lambda model: "")
    result = diagnose(path, backend=compiler)
    assert result.verdict is Status.PASS
    assert compiler.files == [path.read_bytes()]
    assert result.stats.compiler_calls == 1


def test_what_compiles_once_its_shapes_are_declared_is_said_to_compile_after_that(tmp_path: Path) -> None:
    compiler = Seen(undeclared)
    result = diagnose(saved(chain("Relu", "Sin", "Tanh"), tmp_path), backend=compiler)
    assert result.verdict is Status.FAIL
    assert result.ending is Ending.COMPILES_AFTER
    assert result.culprits == ()
    assert result.compiles_after is not None
    assert result.compiles_after.remedies == ("declare-shapes",)
    assert result.compiles_after.sentence == "shapes declared of 2 tensors"
    assert not undeclared(compiler.models[-1]), "what is said to compile was compiled"
    assert result.stats.compiler_calls == len(compiler.files) <= 5


def test_a_part_that_fails_as_the_file_does_spares_the_question_about_the_form(tmp_path: Path) -> None:
    compiler = Seen(refused_op("Sin"))
    result = diagnose(saved(chain("Relu", "Sin", "Tanh", "Abs"), tmp_path), backend=compiler)
    assert [culprit.ops for culprit in result.culprits] == [("Sin",)]
    assert AS_PART not in {probe["why"] for probe in result.report["probes"]}


def test_a_file_that_fails_for_its_form_does_not_clear_a_refused_op(tmp_path: Path) -> None:
    def refuses(model: onnx.ModelProto) -> str:
        return undeclared(model) or refused_op("Sin")(model)

    result = diagnose(saved(chain("Relu", "Sin", "Tanh", "Abs"), tmp_path), backend=Seen(refuses))
    assert [culprit.ops for culprit in result.culprits] == [("Sin",)]
    assert result.compiles_after is None


def test_fix_hands_out_a_file_that_was_compiled_as_written(tmp_path: Path) -> None:
    compiler = Seen(undeclared)
    found = fix(saved(chain("Relu", "Sin", "Tanh"), tmp_path), backend=compiler)
    assert found.compiles
    written = found.save(tmp_path / "repaired.onnx")
    assert written.read_bytes() in compiler.files
    assert not undeclared(onnx.load(written))


def test_a_repaired_model_gets_the_form_that_it_needs_too(tmp_path: Path) -> None:
    def refuses(model: onnx.ModelProto) -> str:
        return refused_op("HardSwish")(model) or undeclared(model)

    compiler = Seen(refuses)
    found = fix(saved(chain("Relu", "HardSwish", "Tanh"), tmp_path), backend=compiler)
    assert found.compiles
    written = found.save(tmp_path / "repaired.onnx")
    assert written.read_bytes() in compiler.files
    assert not refuses(onnx.load(written))


def test_only_what_was_bound_is_changed(tmp_path: Path) -> None:
    model = chain("Relu", "Tanh", shape=("batch", 3))
    model.graph.value_info.append(helper.make_tensor_value_info("t1", FLOAT, ("batch", 3)))
    compiler = Seen(lambda model: "")
    diagnose(saved(model, tmp_path), backend=compiler, input_shapes={"t0": [4, 3]})
    for value in (model.graph.input[0], model.graph.value_info[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = 4
    assert compiler.models == [model]


def test_a_bound_value_is_all_that_is_changed(tmp_path: Path) -> None:
    model = chain("Relu", "Tanh", prefix="a/b:")
    model.graph.node.append(helper.make_node("Add", ["a/b:2", "rate"], ["y"], name="n0"))
    model.graph.input.append(helper.make_tensor_value_info("rate", FLOAT, (1,)))
    model.graph.output[0].name = "y"
    compiler = Seen(lambda model: "")
    diagnose(saved(model, tmp_path), backend=compiler, input_values={"rate": 16000})
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(np.array([16000], np.float32), "rate"))
    assert compiler.models == [model]


def test_a_file_at_another_size_declares_no_shapes_of_the_old_one(tmp_path: Path) -> None:
    model = chain("Relu", "Tanh")
    model.graph.value_info.append(helper.make_tensor_value_info("t1", FLOAT, (2, 3)))
    compiler = Seen(lambda model: "")
    diagnose(saved(model, tmp_path), backend=compiler, input_shapes={"t0": [4, 3]})
    (seen,) = compiler.models
    assert [dim.dim_value for dim in seen.graph.input[0].type.tensor_type.shape.dim] == [4, 3]
    assert not seen.graph.value_info[0].type.tensor_type.HasField("shape")


@pytest.mark.parametrize("place", ["weights.bin", "data/weights", "model.onnx"])
def test_data_files_lie_beside_the_file_under_their_own_names(tmp_path: Path, place: str) -> None:
    model = chain("Relu")
    weight = numpy_helper.from_array(np.arange(600, dtype=np.float32).reshape(2, 300)[:, :3].copy(), "w")
    model.graph.node.append(helper.make_node("Add", ["t1", "w"], ["y"], name="add"))
    model.graph.output[0].name = "y"
    model.graph.initializer.append(weight)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location=place, size_threshold=0)
    seen: list[np.ndarray] = []

    def compiler(probe: Path) -> bool:
        loaded = onnx.load(probe)  # with its data
        seen.append(numpy_helper.to_array(loaded.graph.initializer[0]))
        return place == "model.onnx" or probe.read_bytes() == path.read_bytes()

    assert diagnose(path, backend=compiler).verdict is Status.PASS
    assert np.array_equal(seen[0], numpy_helper.to_array(weight))


def test_the_order_of_nodes_is_the_files(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="a"),
        helper.make_node("Tanh", ["x"], ["b"], name="b"),
        helper.make_node("Abs", ["a"], ["c"], name="c"),
        helper.make_node("Sin", ["b"], ["d"], name="d"),
        helper.make_node("Add", ["c", "d"], ["y"], name="e"),
    ]
    ends = [helper.make_tensor_value_info(name, FLOAT, (2,)) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert list(depth_first(model.graph)) != list(range(5)), "the search takes them in another order"

    def refuses(seen: onnx.ModelProto) -> str:
        names = [node.name for node in seen.graph.node]
        return "IndexError" if len(names) == 5 and names != list("abcde") else ""

    assert diagnose(saved(model, tmp_path), backend=Seen(refuses)).verdict is Status.PASS


def test_names_are_the_files_whatever_the_compiler_takes_in_parts(tmp_path: Path) -> None:
    model = chain("Relu", "Tanh", prefix="net/0:t")
    model.graph.node[1].name = model.graph.node[0].name
    compiler = Seen(lambda model: "")
    diagnose(saved(model, tmp_path), backend=compiler)
    assert compiler.models == [model]


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ("names", "name-nodes"),
        ("no names", "name-nameless-nodes"),
        ("order", "sort-nodes"),
        ("weights", "weights-no-inputs"),
    ],
)
def test_each_difference_in_form_has_its_remedy(tmp_path: Path, change: str, remedy: str) -> None:
    model = chain("Relu", "Tanh", "Abs")
    if change == "names":
        model.graph.node[2].name = model.graph.node[0].name
    elif change == "no names":
        for node in model.graph.node:
            node.name = ""
    elif change == "order":
        nodes = [*model.graph.node]
        del model.graph.node[:]
        model.graph.node.extend([nodes[1], nodes[0], nodes[2]])
    else:
        model.graph.node.append(helper.make_node("Add", ["t3", "w"], ["y"], name="add"))
        model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
        model.graph.input.append(helper.make_tensor_value_info("w", FLOAT, (2, 3)))
        model.graph.output[0].name = "y"

    def refuses(seen: onnx.ModelProto) -> str:
        names = [node.name for node in seen.graph.node]
        made = {value.name for value in seen.graph.input} | {tensor.name for tensor in seen.graph.initializer}
        for node in seen.graph.node:
            if not made.issuperset(node.input):
                return "an input is not known yet"
            made.update(node.output)
        if not all(names):
            return "a name is missing"
        if len(set(names)) < len(names):
            return "a name is given twice"
        if {value.name for value in seen.graph.input} & {tensor.name for tensor in seen.graph.initializer}:
            return "an input has a value"
        return ""

    compiler = Seen(refuses)
    result = diagnose(saved(model, tmp_path), backend=compiler)
    assert result.compiles_after is not None
    assert result.compiles_after.remedies == (remedy,)
    assert any(not refuses(seen) and len(seen.graph.node) == len(model.graph.node) for seen in compiler.models)


def _with_unused(kind: str) -> onnx.ModelProto:
    model = chain("Relu", "Tanh", "Abs")
    if kind == "function":
        node, opset = helper.make_node("Neg", ["v"], ["w"]), helper.make_opsetid("", 17)
        model.functions.append(helper.make_function("my", "Unused", ["v"], ["w"], [node], [opset]))
        model.opset_import.append(helper.make_opsetid("my", 1))
    elif kind == "operator set":
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    elif kind == "constant":
        model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
    elif kind == "Constant node":
        value = numpy_helper.from_array(np.ones((2, 3), np.float32))
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], name="constant", value=value))
    else:
        model.graph.value_info.append(helper.make_tensor_value_info("gone", FLOAT, (2, 3)))
    return model


@pytest.mark.parametrize("kind", ["function", "operator set", "constant", "Constant node", "declared type"])
def test_what_a_file_holds_and_no_node_uses_is_left_out_where_a_compiler_minds(tmp_path: Path, kind: str) -> None:
    def refuses(seen: onnx.ModelProto) -> str:
        return "the file holds what it does not use" if unused(seen) else ""

    compiler = Seen(refuses)
    result = fix(saved(_with_unused(kind), tmp_path), backend=compiler)
    assert result.compiles
    assert result.document.file_change is not None
    assert kind == "function" or "left out that no node uses" in result.document.file_change.sentence
    assert len(compiler.models) <= 8


def test_a_size_that_depends_on_values_is_no_matter_of_form(tmp_path: Path) -> None:
    """A file whose parts had the size of one run would compile, for that run only."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 6] x) => (int64[2, n] places, float[2, 6] z)
        { a = Relu(x)  places = NonZero(a)  b = Neg(a)  z = Tanh(b) }"""

    def refuses(seen: onnx.ModelProto) -> str:
        sizes = [dim for value in seen.graph.output for dim in value.type.tensor_type.shape.dim]
        return "" if all(dim.HasField("dim_value") for dim in sizes) else "Cannot get shape"

    path = saved(onnx.parser.parse_model(text), tmp_path)
    result = diagnose(path, backend=Seen(refuses))
    assert result.compiles_after is None
    assert [culprit.ops for culprit in result.culprits] == [("NonZero",)]
    assert result.certificate.proven
    assert "onnx-bisect split" in str(result)
    assert not fix(path, backend=Seen(refuses)).compiles


def test_as_is_names_the_form_without_a_call_for_changed_files(tmp_path: Path) -> None:
    compiler = Seen(undeclared)
    result = diagnose(saved(chain("Relu", "Sin", "Tanh"), tmp_path), backend=compiler, as_is=True)
    assert result.culprits == ()
    assert result.compiles_after is not None
    assert result.compiles_after.calls == 0
    assert result.stats.compiler_calls == 4


class OldTool(CallableBackend):
    """A double of a tool that says how new a file it reads, and refuses any newer one in words of its own."""

    def __init__(self, refuses: Callable[[onnx.ModelProto], str], *, ir: int, opset: int) -> None:
        self._newest = ir, opset

        def compiles(path: Path) -> Verdict:
            model = onnx.load(path)
            return seen(path) if not self._too_new(model) else failing("the version of the file is not supported")

        def failing(said: str) -> Verdict:
            return Verdict(status=Status.FAIL, kind=Kind.ERROR, message=said)

        seen = self.seen = Seen(refuses)
        super().__init__(compiles)

    def describe(self) -> Description:
        ir, opset = self._newest
        return replace(super().describe(), newest_ir=ir, newest_opset=opset)

    def _too_new(self, model: onnx.ModelProto) -> bool:
        ir, opset = self._newest
        return model.ir_version > ir or model.opset_import[0].version > opset


@pytest.mark.parametrize(("ir", "opset"), [(14, 17), (13, 22), (14, 28), (11, 21)])
@pytest.mark.parametrize("bad", ["Sin", "Tanh"])
def test_a_version_that_is_too_new_hides_no_culprit_and_makes_none(
    tmp_path: Path, ir: int, opset: int, bad: str
) -> None:
    model = chain("Relu", "Sin", "Tanh", "Abs")
    model.ir_version, model.opset_import[0].version = ir, opset
    result = diagnose(saved(model, tmp_path), backend=OldTool(refused_op(bad), ir=10, opset=17))
    assert [(culprit.ops, culprit.certainty) for culprit in result.culprits] == [((bad,), Certainty.CONFIRMED)]
    assert result.certificate.status is CertificateStatus.PROVEN
    notes = result.report["model"]["notes"]
    assert "file_after" in result.report or any(note.startswith("Pieces were written at ") for note in notes)


def test_a_file_that_is_only_too_new_compiles_after_it_is_lowered(tmp_path: Path) -> None:
    model = chain("Relu", "Sin")
    model.ir_version, model.opset_import[0].version = 14, 28
    tool = OldTool(lambda model: "", ir=10, opset=17)
    result = diagnose(saved(model, tmp_path), backend=tool)
    assert result.culprits == ()
    assert result.compiles_after is not None
    assert set(result.compiles_after.remedies) == {"lower-opset", "lower-ir-version"}


def test_versions_and_shapes_compose(tmp_path: Path) -> None:
    model = chain("Relu", "Sin", "Abs")
    model.ir_version = 13
    tool = OldTool(undeclared, ir=10, opset=17)
    result = diagnose(saved(model, tmp_path), backend=tool)
    assert result.culprits == ()
    assert result.compiles_after is not None
    assert set(result.compiles_after.remedies) == {"lower-ir-version", "declare-shapes"}
    assert fix(saved(model, tmp_path), backend=tool).compiles


@pytest.mark.parametrize("ops", [("Relu", "Sin"), ("Relu", "Sin", "Tanh")])
def test_a_message_that_every_probe_gets_proves_no_op_guilty(tmp_path: Path, ops: tuple[str, ...]) -> None:
    compiler = Seen(lambda model: "the licence has expired")
    result = diagnose(saved(chain(*ops), tmp_path), backend=compiler)
    assert result.certificate.status is CertificateStatus.BOUNDED
    assert all(culprit.certainty is not Certainty.CONFIRMED for culprit in result.culprits)
    assert "same words" in " ".join(result.certificate.unknown)
