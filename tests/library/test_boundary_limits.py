"""Compilers that take some tensors between nodes but not at a boundary: only what they really refuse is blamed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

import onnx_bisect
from onnx_bisect.backend_choice import CallableBackend
from onnx_bisect.events import Note
from onnxbisect.cut.required_producers import is_empty, runtime_dtype
from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.contract import Description
from onnxbisect_backends.contract import Limits as CompileLimits
from onnxbisect_backends.probing.boundary_limits import learn_limits
from onnxbisect_backends.probing.traits import Trait, TraitKind
from onnxbisect_backends.registry import make
from support.engine.scalar_graphs import BAD, scalar_graphs
from support.examples import examples


@dataclass(frozen=True)
class Limits:
    """What a compiler of the tests takes at a boundary; the names are those of `ProbeFormat`."""

    input_dtypes: frozenset[str] | None = None
    output_dtypes: frozenset[str] | None = None
    min_input_rank: int = 0
    min_output_rank: int = 0
    longest_name: int | None = None
    max_input_rank: int | None = None
    max_output_rank: int | None = None
    empty_inputs: bool = True
    max_inputs: int | None = None
    max_outputs: int | None = None

    def compiles(self, path: Path) -> bool:
        """Whether the boundary is one that it takes, and no node is refused."""
        graph = onnx.load(path).graph
        for values, dtypes, rank, most in (
            (graph.input, self.input_dtypes, self.min_input_rank, self.max_input_rank),
            (graph.output, self.output_dtypes, self.min_output_rank, self.max_output_rank),
        ):
            for value in values:
                if most is not None and len(value.type.tensor_type.shape.dim) > most:
                    return False
                if dtypes is not None and runtime_dtype(value.type) not in dtypes:
                    return False
                if len(value.type.tensor_type.shape.dim) < rank:
                    return False
                if self.longest_name is not None and len(value.name.encode()) > self.longest_name:
                    return False
        if self.max_inputs is not None and len(graph.input) > self.max_inputs:
            return False
        if self.max_outputs is not None and len(graph.output) > self.max_outputs:
            return False
        if not self.empty_inputs and any(is_empty(value.type) for value in graph.input):
            return False
        return not any(node.op_type == BAD for node in graph.node)


class Declaring(CallableBackend):
    """A compiler that declares its limits."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.compiles)
        self._limits = limits

    def describe(self) -> Description:
        probe_format = ProbeFormat(**vars(self._limits))
        return Description(
            tool="strict", version="", dynamic_shapes=True, boundary_known=True, probe_format=probe_format
        )


_FLOAT, _NUMBERS = frozenset({"float"}), frozenset({"float", "int32", "int64"})
LIMITS = {
    "inputs of rank 0": Limits(min_input_rank=1),
    "inputs and outputs of rank 0": Limits(min_input_rank=1, min_output_rank=1),
    "long names": Limits(longest_name=16),
    "bool inputs": Limits(input_dtypes=_NUMBERS),
    "bool outputs": Limits(output_dtypes=_NUMBERS),
    "all but float": Limits(input_dtypes=_FLOAT, output_dtypes=_FLOAT),
    "everything": Limits(
        input_dtypes=_FLOAT, output_dtypes=_FLOAT, min_input_rank=1, min_output_rank=1, longest_name=16
    ),
}


def found(model: onnx.ModelProto, backend: Callable[[Path], bool] | Declaring, folder: Path) -> onnx_bisect.Result:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return onnx_bisect.diagnose(path, backend=backend, cache=False, as_is=True)


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@given(data=st.data())
@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck), deadline=None)
def test_only_the_refused_op_is_blamed(
    limits: Limits, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = data.draw(scalar_graphs(name_length=30 if limits.longest_name else 1))

    result = found(model, Declaring(limits), tmp_path_factory.mktemp("model"))

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@given(data=st.data())
@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck), deadline=None)
def test_what_nobody_declares_is_measured(
    limits: Limits, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    long = replace(limits, longest_name=70) if limits.longest_name else limits
    model = data.draw(scalar_graphs(name_length=90 if long.longest_name else 1))

    result = found(model, long.compiles, tmp_path_factory.mktemp("model"))

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


def counted(limits: Limits) -> tuple[Callable[[Path], bool], list[Path]]:
    """The compiler as a function, and its calls so far."""
    calls: list[Path] = []

    def compiles(path: Path) -> bool:
        calls.append(path)
        return limits.compiles(path)

    return compiles, calls


def text(body: str, tmp_path: Path, versions: str = 'ir_version: 8, opset_import: ["": 17]') -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f"<{versions}> {body}"), path)
    return path


FLAGS = f"""g (float[2,3] x, float[2,3] z) => (float[2,3] y) {{
    a = Neg(x)
    f = Greater(a, z)
    b = {BAD}(x)
    y = Where(f, a, b)
}}"""


def test_a_compiler_that_minds_nothing_is_asked_once_and_only_after_a_failure(tmp_path: Path) -> None:
    path = text(FLAGS, tmp_path)
    asked, calls = counted(Limits())
    result = onnx_bisect.diagnose(path, backend=asked, as_is=True, files=False)
    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    plain = onnx_bisect.diagnose(path, backend=Declaring(Limits()), as_is=True, files=False)
    assert result.report["stats"]["compiler_calls"] == len(calls)
    assert len(calls) == plain.report["stats"]["compiler_calls"] + 1

    passing, calls = counted(Limits(input_dtypes=frozenset({"float"})))
    onnx_bisect.diagnose(text(FLAGS.replace(BAD, "Abs"), tmp_path), backend=passing)
    assert len(calls) == 1


HIGH = f"""g (float[2,3,4] x) => (float[2,3,4] y) <int64[5] five = {{2, 1, 3, 2, 2}}, int64[3] three = {{2, 3, 4}}> {{
    r = Reshape(x, five)
    a = Abs(r)
    t = Tanh(a)
    n = Add(t, r)
    k = Neg(n)
    m = Reshape(k, three)
    y = {BAD}(m)
}}"""


@pytest.mark.parametrize("declares", [True, False])
def test_ranks_that_are_too_high_at_a_boundary_are_joined(tmp_path: Path, declares: bool) -> None:
    limits = Limits(max_input_rank=4, max_output_rank=4)
    result = onnx_bisect.diagnose(
        text(HIGH, tmp_path), backend=Declaring(limits) if declares else limits.compiles, cache=False, as_is=True
    )
    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


EMPTY = f"""g (float[2,3] x) => (float[2,3] y) <int64[1] none = {{0}}> {{
    a = Neg(x)
    s = Slice(a, none, none, none)
    t = Tanh(s)
    c = Concat<axis=0>(a, t)
    y = {BAD}(c)
}}"""


@pytest.mark.parametrize("declares", [True, False])
def test_an_input_without_elements_comes_with_what_makes_it(tmp_path: Path, declares: bool) -> None:
    limits = Limits(empty_inputs=False)
    result = onnx_bisect.diagnose(
        text(EMPTY, tmp_path), backend=Declaring(limits) if declares else limits.compiles, cache=False, as_is=True
    )
    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


@pytest.mark.parametrize("checked", [True, False])
def test_what_was_measured_counts_beside_what_is_declared(
    checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend was written for a version that took flags; `onnx-bisect backends check` measured that this one does
    not. The model's own flag is what it refuses, so the file compiles with another input.
    """
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "compile.py").write_text(
        "import sys, onnx\n"
        "graph = onnx.load(sys.argv[1]).graph\n"
        "sys.exit(any(i.type.tensor_type.elem_type == 9 for i in graph.input))\n"
    )
    (tmp_path / "older.toml").write_text(
        f"name = 'older'\ncommand = [{sys.executable!r}, {str(tmp_path / 'compile.py')!r}, '{{model}}']\n"
        'boundary_known = true\nversion = "1"\n'
    )
    model = text("g (bool[2,3] f, float[2,3] x) => (float[2,3] y) { n = Neg(x) y = Where(f, n, x) }", tmp_path)
    backend = make(str(tmp_path / "older.toml"), {})
    if checked:
        flags = [Trait(what=TraitKind.DTYPE, output=False, value="bool")]
        assert learn_limits(backend, flags, tmp_path, CompileLimits(), kept=True, anew=True) == 3

    result = onnx_bisect.diagnose(model, backend=str(tmp_path / "older.toml"))

    assert bool(result.report["compiles_after"]) is checked
    assert bool(result.culprits) is not checked


def wide(shape: str, count: int) -> onnx.ModelProto:
    """A model of one input and one output with ops that have many of both, and a refused op."""
    body = {
        "split": [
            f"{', '.join(f's{n}' for n in range(count))} = Split<axis=0>(x)",
            *(f"r{n} = {('Relu', 'Tanh', 'Abs')[n % 3]}(s{n})" for n in range(count)),
            f"c = Concat<axis=0>({', '.join(f'r{n}' for n in range(count))})",
            f"d = {BAD}(c)",
            "y = Neg(d)",
        ],
        "dense": [
            *(f"r{n} = Relu({f'c{n - 1}' if n else 'x'})\nc{n} = Sum(x, {dense(n)} r{n})" for n in range(count)),
            f"y = {BAD}(c{count - 1})",
        ],
        "fan": [
            *(f"a{n} = {('Relu', 'Tanh', 'Abs', 'Neg')[n % 4]}(x)" for n in range(count)),
            f"s = Sum({', '.join(f'a{n}' for n in range(count))})",
            f"t = {BAD}(s)",
            f"y = Sum(t, {', '.join(f'a{n}' for n in range(count))})",
        ],
    }[shape]
    text = f"g (float[{count}, 4] x) => (float[{count}, 4] y) {{ " + "\n".join(body) + " }"
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')


def dense(count: int) -> str:
    return "".join(f"c{n}, " for n in range(count))


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize(("shape", "count"), [("split", 6), ("split", 12), ("dense", 6), ("fan", 8)])
def test_more_inputs_and_outputs_than_are_taken_become_one(most: int, shape: str, count: int, tmp_path: Path) -> None:
    """Concat, Split and Sum were culprits, for what they have at the boundary of a piece."""
    result = found(wide(shape, count), Declaring(Limits(max_inputs=most, max_outputs=most)), tmp_path)

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


@pytest.mark.parametrize("most", [2, 10])
def test_how_many_are_taken_is_asked_with_the_other_traits(most: int, tmp_path: Path) -> None:
    """Nobody declares it; the model has names with signs, so its boundary is measured anyway."""
    model = wide("fan", 14)
    for node in model.graph.node:
        node.input[:] = [f"/{name}" if name[0] in "as" else name for name in node.input]
        node.output[:] = [f"/{name}" if name[0] in "as" else name for name in node.output]
    result = found(model, Limits(max_inputs=most, max_outputs=most).compiles, tmp_path)

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


def test_how_many_are_taken_is_asked_where_one_node_has_many(tmp_path: Path) -> None:
    result = found(wide("split", 12), Limits(max_inputs=4, max_outputs=4).compiles, tmp_path)

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


@pytest.mark.parametrize("length", [40, 90])
@given(data=st.data())
@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck), deadline=None)
def test_names_are_shortened_further_where_the_limit_is_low(
    length: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = data.draw(scalar_graphs(name_length=length))

    result = found(model, Limits(longest_name=30, min_input_rank=1).compiles, tmp_path_factory.mktemp("model"))

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


_NAME = "a" * 42
#: Each has one trait that some compilers mind at a boundary, and no other that is measured.
ALONE = {
    "a long input": (
        f"(float[2,3] x) => (float[2,3] y, float[2,3] z) {{ {_NAME} = {BAD}(x) y = Neg(x) z = Neg({_NAME}) }}",
        Limits(longest_name=30),
    ),
    "a long output": (
        f"(float[2,3] x) => (float[2,3] y) {{ {_NAME} = Abs(x) b = {BAD}({_NAME}) y = Add({_NAME}, b) }}",
        Limits(longest_name=31),
    ),
    "an input of rank 1": (
        f"(float[2,3] x) => (float[3] y) {{ m = ReduceMax<keepdims = 0, axes = [0]>(x) b = {BAD}(m) y = Neg(b) }}",
        Limits(min_input_rank=2),
    ),
    "inputs and outputs of rank 1": (
        f"""(float[2,3] x) => (float[2,3] y) {{
            m = ReduceMax<keepdims = 0, axes = [0]>(x)
            b = {BAD}(x)
            n = Neg(m)
            y = Add(b, n)
        }}""",
        Limits(min_input_rank=2, min_output_rank=2),
    ),
}


@pytest.mark.parametrize(("body", "limits"), ALONE.values(), ids=ALONE)
def test_what_most_compilers_take_is_measured_where_nothing_else_is(body: str, limits: Limits, tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(text(f"g {body}", tmp_path), backend=limits.compiles, cache=False, as_is=True)

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


ROW = f"""g (float[2,3] x) => (float[2,3] y) <int64[1] first = {{0}}> {{
    m = ReduceMax<keepdims = 0, axes = [0]>(x)
    s = ReduceMax<keepdims = 0>(m)
    n = Neg(m)
    t = Mul(n, s)
    b = {BAD}(x)
    y = Add(t, b)
}}"""


@pytest.mark.parametrize("limits", [Limits(min_input_rank=2), Limits(min_input_rank=2, min_output_rank=2)])
def test_rows_that_are_refused_at_a_boundary_get_a_dimension(limits: Limits, tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(text(ROW, tmp_path), backend=limits.compiles, as_is=True)

    assert [culprit.ops for culprit in result.culprits] == [(BAD,)]
    assert result.certificate.proven


@pytest.mark.parametrize(
    ("ir", "opset", "change"),
    [
        (8, 21, "ir_version 10 → 8"),
        (10, 15, "operator set 21 → 15"),
        (9, 17, "operator set 21 → 17; ir_version 10 → 9"),
    ],
)
def test_versions_that_are_read_are_measured(ir: int, opset: int, change: str, tmp_path: Path) -> None:
    """The compiler says nothing of versions, and refuses a file that is too new whatever its nodes are."""

    def compiles(path: Path) -> bool:
        proto = onnx.load(path)
        return proto.ir_version <= ir and proto.opset_import[0].version <= opset and Limits().compiles(path)

    body = "g (float[2,3] x) => (float[2,3] y) { a = Neg(x) b = OP(a) y = Abs(b) }"
    for op, culprits, after in (("Exp", (), change), (BAD, ((BAD,),), None)):
        path = text(body.replace("OP", op), tmp_path, 'ir_version: 10, opset_import: ["": 21]')
        result = onnx_bisect.diagnose(path, backend=compiles)
        assert tuple(culprit.ops for culprit in result.culprits) == culprits
        found_after = result.report["compiles_after"]
        assert (found_after and found_after["sentence"]) == after
        assert result.certificate.proven or after


def test_weights_beside_a_file_that_are_not_read_are_no_matter_of_their_readers(tmp_path: Path) -> None:
    """The pieces have their weights inside then, and the whole file is one change away from compiling."""
    body = """g (float[2,3] x) => (float[2,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}> {
        a = Mul(x, w) b = OP(a) c = Add(b, w) y = Abs(c) }"""

    def compiles(path: Path) -> bool:
        stored = onnx.load(path, load_external_data=False).graph.initializer
        return not any(tensor.external_data for tensor in stored) and Limits().compiles(path)

    for op, culprits in (("Exp", ()), (BAD, ((BAD,),))):
        path = text(body.replace("OP", op), tmp_path)
        proto = onnx.load(path)
        proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
        onnx.save(proto, path, save_as_external_data=True, location="w.data", size_threshold=0)
        result = onnx_bisect.diagnose(path, backend=compiles)
        assert tuple(culprit.ops for culprit in result.culprits) == culprits
        assert culprits or result.compiles_after is not None
        assert result.compiles_after is None or result.compiles_after.remedies == ("weights-inside",)


def test_a_dtype_that_is_refused_everywhere_is_no_matter_of_the_boundary(tmp_path: Path) -> None:
    """No tensor of bool at all: Greater is to blame, which makes one, and Where, which takes one."""

    def no_bool(path: Path) -> bool:
        nodes = onnx.load(path).graph.node
        return not any(
            node.op_type in ("Greater", "Where") or any(it.i == 9 for it in node.attribute) for node in nodes
        )

    result = onnx_bisect.diagnose(text(FLAGS.replace(BAD, "Abs"), tmp_path), backend=no_bool, as_is=True)
    assert {op for culprit in result.culprits for op in culprit.ops} == {"Greater", "Where"}


def test_the_limits_of_a_command_are_known_to_its_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))
    script = tmp_path / "compile.py"
    script.write_text(
        "import sys, onnx\n"
        "graph = onnx.load(sys.argv[1]).graph\n"
        "bad = any(i.type.tensor_type.elem_type == 9 for i in graph.input)\n"
        f"sys.exit(bad or any(n.op_type == {BAD!r} for n in graph.node))\n"
    )
    path, command = text(FLAGS, tmp_path), CommandBackend([sys.executable, str(script), "{model}"])
    notes: list[str] = []

    def told(event: onnx_bisect.Event) -> None:
        if isinstance(event, Note):
            notes.append(event.sentence)

    first = onnx_bisect.diagnose(path, backend=command, as_is=True, progress=told)
    again = CommandBackend([sys.executable, str(script), "{model}"])
    second = onnx_bisect.diagnose(path, backend=again, as_is=True)

    assert [culprit.ops for culprit in first.culprits] == [(BAD,)]
    assert first.certificate.proven
    assert any("takes no bool inputs" in note for note in notes)
    assert [culprit.ops for culprit in second.culprits] == [(BAD,)]
    assert second.report["stats"]["compiler_calls"] == 0


def test_a_piece_of_unknown_size_is_not_asked_where_the_target_would_not_answer(tmp_path: Path) -> None:
    """Nothing tells what the custom op makes, and the tool gives no answer about what is behind it."""
    asked: list[onnx.ModelProto] = []

    def compiles(path: Path) -> bool:
        asked.append(onnx.load(path))
        return all(node.domain != "my" for node in asked[-1].graph.node)

    class Static(CallableBackend):
        def describe(self) -> Description:
            return Description(tool="strict", version="", boundary_known=True, needs_static=True)

    text = """
        <ir_version: 8, opset_import: ["": 17, "my": 1]>
        net (float[2,3] x) => (float[n,n] y) <float[n,n] b, float[n,n] c>
        { a = Relu(x) b, c = my.Odd(a) d = Add(b, c) e = Tanh(d) y = Sigmoid(e) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    result = onnx_bisect.diagnose(tmp_path / "model.onnx", backend=Static(compiles), cache=False, as_is=True)

    assert [culprit.ops for culprit in result.culprits] == [("my::Odd",)]
    assert not result.certificate.proven
    dims = [dim for proto in asked for value in proto.graph.input for dim in value.type.tensor_type.shape.dim]
    assert all(dim.dim_value for dim in dims)
