"""A compiler that compiles everything and computes one op wrong: `verify` finds that op and no other."""

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_bisect import Result, diagnose
from onnxbisect.proof import Tolerance, fault
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend, Limits, Outcome, verification
from onnxbisect_backends.options import VerifyOptions
from onnxbisect_backends.registry import LoadedBackend, available, make
from onnxbisect_backends.testing import ComputesWrong, with_op

#: Copies the model in place of compiling it, and computes it with onnxruntime, what some op gives changed.
COMPILER = """
import json, shutil, sys
from pathlib import Path
import numpy as np, onnx, onnxruntime
from onnx import helper, numpy_helper

def main(model, samples, numbers, op, how):
    proto = onnx.load(model)
    graph = proto.graph
    for node in [it for it in graph.node if it.op_type == op]:
        wrong, right = node.output[0] + "_right", node.output[0]
        node.output[0] = wrong
        constants = dict(zero=0.0, half=0.5, limit=0.7, big=1e38)
        for name, value in constants.items():
            if name not in [it.name for it in graph.initializer]:
                graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
        made = dict(
            scaled=[("Mul", [wrong, "half"])],
            nan=[("Mul", [wrong, "zero"]), ("Div", ["0", "zero"])],
            infinite=[("Mul", [wrong, "big"]), ("Mul", ["0", "big"])],
            saturated=[("Min", [wrong, "limit"])],
            constant=[("Mul", [wrong, "zero"]), ("Add", ["0", "half"])],
            overflow=[("Cast16", [wrong]), ("Cast32", ["0"])],
        )[how]
        last = ""
        for place, (kind, reads) in enumerate(made):
            out = right if place == len(made) - 1 else right + "_" + str(place)
            reads = [last if it == "0" else it for it in reads]
            if kind.startswith("Cast"):
                to = onnx.TensorProto.FLOAT16 if kind == "Cast16" else onnx.TensorProto.FLOAT
                graph.node.append(helper.make_node("Cast", reads, [out], to=to))
            else:
                graph.node.append(helper.make_node(kind, reads, [out]))
            last = out
    nodes, known = list(graph.node), {it.name for it in (*graph.input, *graph.initializer)}
    ordered = []
    while nodes:
        node = next(it for it in nodes if all(not name or name in known for name in it.input))
        nodes.remove(node)
        ordered.append(node)
        known.update(node.output)
    del graph.node[:]
    graph.node.extend(ordered)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    Path(numbers).mkdir()
    for file in Path(samples).glob("*.npz"):
        values = session.run(None, dict(np.load(file)))
        np.savez(Path(numbers) / file.name, **{str(place): it for place, it in enumerate(values)})

if sys.argv[1] == "compile":
    shutil.copyfile(*sys.argv[2:])
else:
    main(*sys.argv[2:])
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The TOML file of such a compiler; its options say which op is wrong, and how."""
    (tmp_path / "wrong.py").write_text(COMPILER)
    start = [sys.executable, "{here}/wrong.py"]
    lines = [
        'name = "wrong"',
        f"command = {json.dumps([*start, 'compile', '{model}', '{out}.bin'])}",
        f"compute = {json.dumps([*start, 'run', '{out}.bin', '{samples}', '{numbers}', '{op}', '{how}'])}",
        'boundary_known = true\nversion = "1"\n[success]\nfiles = ["out.bin"]',
        '[options.op]\ndefault = "Tanh"\n[options.how]\ndefault = "scaled"',
    ]
    path = tmp_path / "wrong.toml"
    path.write_text("\n".join(lines))
    return path


def net(folder: Path, *, scale: float = 1.0) -> Path:
    """Two branches of different ops; `scale` is what the last Mul multiplies by."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Tanh", ["a"], ["b"], name="tanh"),
        helper.make_node("Sigmoid", ["a"], ["c"], name="sigmoid"),
        helper.make_node("Add", ["b", "c"], ["d"], name="add"),
        helper.make_node("Softplus", ["d"], ["e"], name="softplus"),
        helper.make_node("MatMul", ["e", "w2"], ["f"], name="second"),
        helper.make_node("Mul", ["f", "s"], ["g"], name="small"),
        helper.make_node("Mul", ["g", "t"], ["h"], name="large"),
        helper.make_node("Div", ["h", "t"], ["y"], name="back"),
    ]
    weights = {
        "w1": rng.standard_normal((8, 8)),
        "w2": rng.standard_normal((8, 8)),
        "s": np.array(1.5),
        "t": np.array(scale),
    }
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 8))],
        [numpy_helper.from_array(it.astype(np.float32), name) for name, it in weights.items()],
    )
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def found(model: Path, backend: Path, **options: str) -> Result:
    return diagnose(
        model, backend=backend, options={"verify": "true", **options}, cache=False, files=False, budget_calls=14
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("op", "how", "said"),
    [
        ("Tanh", "scaled", "differs by up to"),
        ("Sigmoid", "nan", "is NaN in 32 of 32 places"),
        ("Softplus", "infinite", "is infinite in 32 of 32 places"),
        ("Tanh", "saturated", "saturates at 0.7"),
        ("Sigmoid", "constant", "is 0.5 everywhere"),
    ],
)
def test_the_op_that_is_computed_wrong_is_found_and_no_other(
    tmp_path: Path, wrong: Path, op: str, how: str, said: str
) -> None:
    result = found(net(tmp_path), wrong, op=op, how=how)

    assert [culprit.ops for culprit in result.culprits] == [(op,)]
    assert result.culprits[0].failure == Kind.NUMERIC
    assert said in result.culprits[0].message


@pytest.mark.long
def test_an_op_that_overflows_in_one_place_is_found_there_alone(tmp_path: Path, wrong: Path) -> None:
    """The numbers that reach an op decide, so that equal nodes are different questions."""
    result = found(net(tmp_path, scale=1e5), wrong, op="Mul", how="overflow", tolerance="0.05")

    assert [culprit.nodes for culprit in result.culprits] == [("large",)]
    assert "'h' is infinite" in result.culprits[0].message


@pytest.mark.long
def test_without_verify_or_within_the_tolerance_it_compiles(tmp_path: Path, wrong: Path) -> None:
    model = net(tmp_path)

    assert diagnose(model, backend=wrong, cache=False, files=False).verdict is Status.PASS
    assert found(model, wrong, op="None").verdict is Status.PASS


BEFORE = np.array([-3.0, -1.0, 0.0, 2.0, 5.0, 6.0], np.float32)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (BEFORE + 1e-3, ""),
        (BEFORE * 1.1, "'y' differs by up to 0.6, in numbers up to 6"),
        (np.where(BEFORE > 5, np.nan, BEFORE), "'y' is NaN in 1 of 6 places where it should be a number"),
        (np.where(BEFORE > 5, np.inf, BEFORE), "'y' is infinite in 1 of 6 places where it should be a number"),
        (np.clip(BEFORE, -3, 4), "'y' saturates at 4, and should reach from -3 to 6"),
        (np.clip(BEFORE, -0.5, 6), "'y' saturates at -0.5, and should reach from -3 to 6"),
        # one place is no limit, nor is the largest number of others
        (np.clip(BEFORE, -3, 5.5), "'y' differs by up to 0.5, in numbers up to 6"),
        (np.full(6, 2.5), "'y' is 2.5 everywhere, and should reach from -3 to 6"),
        (BEFORE[:5], "'y' has the shape [5], not [6]"),
    ],
)
def test_what_is_wrong_is_named(after: np.ndarray, said: str) -> None:
    assert fault("y", BEFORE, after, Tolerance(absolute=1e-6, relative=0.01)) == said


def test_where_there_is_no_number_to_compare_with_nothing_is_wrong() -> None:
    before = np.array([np.nan, np.inf, 1.0])

    assert fault("y", before, np.array([0.0, np.nan, 1.0]), Tolerance()) == ""


def with_verify() -> list[str]:
    """The backends whose `verify` is ours; TPU-MLIR compares by itself, while it compiles."""
    found = {name for name, it in available().items() if isinstance(it, LoadedBackend) and option(it, "verify")}
    return sorted(found - {"tpu-mlir"})


def option(it: LoadedBackend, name: str) -> bool:
    return any(option.name == name for option in it.options)


def test_verify_is_off_unless_it_is_wanted() -> None:
    assert {"qnn", "rknn", "onnxruntime"} <= set(with_verify())
    for name in with_verify():
        assert verification(make(name, {})) is None
        assert verification(make(name, {"verify": "true"})) == VerifyOptions().tolerance


@pytest.mark.long  # the conformance suite asks each node alone, in less time
@pytest.mark.compiler
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", with_verify())
def test_an_op_that_a_real_compiler_computes_wrong_is_found_and_no_other(tmp_path: Path, name: str) -> None:
    backend = make(name, {"verify": "true"})
    if complaint := backend.check():
        pytest.skip(complaint)
    model = tmp_path / "net.onnx"
    onnx.save(with_op("Sigmoid"), model)

    right = diagnose(model, backend=backend, cache=False, files=False, budget_calls=3)
    result = diagnose(model, backend=ComputesWrong(backend, "Sigmoid"), cache=False, files=False, budget_calls=20)

    assert right.verdict is Status.PASS
    assert [culprit.ops for culprit in result.culprits] == [("Sigmoid",)]
    assert result.culprits[0].failure == Kind.NUMERIC
    assert result.certificate.proven


class WithTable:
    """A backend whose tool has a table of errors by layer: cosine 1, but for these tensors."""

    def __init__(self, backend: Backend, wrong: Collection[str]) -> None:
        self._backend, self._wrong = backend, wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def compare_layers(
        self, model: Path, sample: Path, _workdir: Path, _limits: Limits
    ) -> tuple[Outcome, dict[str, float]]:
        assert sample.is_file()
        tensors = [name for node in onnx.load(model).graph.node for name in node.output]
        return Outcome(exit_code=0, log=""), {it: 0.5 if it in self._wrong else 1.0 for it in tensors}


def chain(folder: Path) -> Path:
    """Twenty nodes in a row, of which the Mul `n8` overflows float16."""
    factors = [*["s", ""] * 4, "t", "u", *["", "s"] * 5]
    nodes = [
        helper.make_node(*("Mul", [f"t{it}", by]) if by else ("Tanh", [f"t{it}"]), [f"t{it + 1}"], name=f"n{it}")
        for it, by in enumerate(factors)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 8)) for name in ("t0", f"t{len(factors)}")]
    values = {"s": 1.5, "t": 1e7, "u": 1e-7}
    weights = [numpy_helper.from_array(np.array(it, np.float32), name) for name, it in values.items()]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    path = folder / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_tools_own_table_leads_to_the_op_and_decides_nothing(tmp_path: Path, wrong: Path) -> None:
    model = chain(tmp_path)
    plain = TomlBackend(wrong, {"verify": "true", "op": "Mul", "how": "overflow", "tolerance": "0.05"})
    honest = WithTable(plain, {f"t{place}" for place in range(9, 20)})
    liar = WithTable(plain, {"t3"})
    silent = WithTable(plain, ())

    found = [
        diagnose(model, backend=backend, cache=False, files=False, budget_calls=30)
        for backend in (plain, honest, liar, silent)
    ]

    assert {tuple(culprit.nodes for culprit in result.culprits) for result in found} == {(("n8",),)}
    calls = [result.stats.compiler_calls for result in found]
    assert calls[1] < calls[0] == calls[3]
    assert calls[2] <= calls[0] + 2
