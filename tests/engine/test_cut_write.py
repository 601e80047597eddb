"""Pieces on disk, and the weights that a model keeps beside its file."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxbisect.cut import Cutter, write
from onnxbisect.errors import CutError, ModelError
from onnxbisect.key import probe_key
from onnxbisect.model import Model, load
from onnxbisect.probe_format import ProbeFormat
from support import TESTS
from support.engine.cut_models import (
    HUGE_WEIGHT,
    all_tensors,
    assert_same_results,
    external,
    huge,
    matmuls,
    read,
    save,
    weight,
)

SIZE = 16
COUNT = 6


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Six weights of 1 kB in one file, the last node using the first weight again."""
    folder = tmp_path / "model"
    folder.mkdir()
    values = np.random.default_rng(0).standard_normal((COUNT, SIZE, SIZE)).astype(np.float32)
    (folder / "weights.bin").write_bytes(values.tobytes())
    weights = [external(f"w{i}", [SIZE, SIZE], i * SIZE * SIZE * 4) for i in range(COUNT)]
    proto = matmuls(weights, SIZE)
    proto.graph.node[-1].input[1] = "w0"
    return load(save(folder, proto))


def embedded(path: Path) -> onnx.ModelProto:
    return onnx.load(path)


def in_memory(model: Model) -> dict[str, object]:
    whole = onnx.load(model.path)
    return all_tensors(Model(**{**vars(model), "proto": whole}))


def test_beside_the_model_the_references_stay(model: Model) -> None:
    target = model.path.parent / "piece.onnx"
    write(Cutter(model).cut(0b110), model, target)
    assert not target.with_name("piece.data").exists()
    onnx.checker.check_model(target)
    assert_same_results(embedded(target), in_memory(model))


def test_constant_nodes_may_keep_their_data_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    value = np.arange(4, dtype=np.float32).reshape(2, 2)
    (tmp_path / "model" / "weights.bin").write_bytes(bytes(64) + value.tobytes())
    proto = matmuls([weight("w", value), weight("v", value)], 2)
    proto.graph.node[0].input[1] = "k"
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["k"], value=external("", [2, 2], 64)))
    model = load(save(tmp_path / "model", proto))
    target = tmp_path / "piece.onnx"
    write(Cutter(model).cut(0b01), model, target)
    assert target.with_name("piece.data").read_bytes() == value.tobytes()
    write(Cutter(model).cut(0b01, ProbeFormat(self_contained=True)), model, target)
    constant = onnx.load(target, load_external_data=False).graph.node[0]
    assert numpy_helper.to_array(constant.attribute[0].t).tolist() == value.tolist()


def test_elsewhere_only_the_bytes_of_the_piece_are_copied(model: Model, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "piece.onnx"
    target.parent.mkdir()
    piece = Cutter(model).cut(0b110)
    write(piece, model, target)
    assert target.with_name("piece.data").stat().st_size == 2 * SIZE * SIZE * 4
    onnx.checker.check_model(target)
    onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    assert_same_results(embedded(target), in_memory(model))
    assert piece.proto.graph.initializer[0].external_data[0].value == "weights.bin"


def test_a_weight_used_twice_is_copied_once(model: Model, tmp_path: Path) -> None:
    write(Cutter(model).cut(0b100001), model, tmp_path / "piece.onnx")
    assert (tmp_path / "piece.data").stat().st_size == SIZE * SIZE * 4


def test_bytes_are_copied_where_the_kernel_cannot(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.copy_file_range", raising=False)
    write(Cutter(model).cut(0b110), model, tmp_path / "piece.onnx")
    assert_same_results(embedded(tmp_path / "piece.onnx"), in_memory(model))


def test_a_self_contained_piece_has_everything_inside(model: Model, tmp_path: Path) -> None:
    target = tmp_path / "piece.onnx"
    write(Cutter(model).cut(0b110, ProbeFormat(self_contained=True)), model, target)
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["piece.onnx"]
    assert_same_results(onnx.load(target, load_external_data=False), in_memory(model))


def test_a_protobuf_is_written_as_a_piece_is(model: Model, tmp_path: Path) -> None:
    write(Cutter(model).cut(0b110).proto, model, tmp_path / "piece.onnx", self_contained=True)
    assert_same_results(onnx.load(tmp_path / "piece.onnx", load_external_data=False), in_memory(model))


def test_data_that_has_gone_is_a_sentence(model: Model, tmp_path: Path) -> None:
    piece = Cutter(model).cut(0b110)
    with (model.path.parent / "weights.bin").open("r+b") as file:
        file.truncate(SIZE)
    with pytest.raises(ModelError, match=r"'weights.bin' of the model has become shorter"):
        write(piece, model, tmp_path / "piece.onnx")
    (model.path.parent / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"'weights.bin' of the model cannot be read any more"):
        write(piece, model, tmp_path / "piece.onnx")


def test_more_than_2_gb_do_not_go_into_one_file(tmp_path: Path) -> None:
    model = huge(tmp_path)
    target = tmp_path / "elsewhere.onnx"
    with pytest.raises(CutError, match="larger than the 2 GB"):
        write(Cutter(model).cut(model.universe.everything, ProbeFormat(self_contained=True)), model, target)
    assert not target.exists()


CUT_TEN = """
import json, sys, time
from pathlib import Path
from support.engine.cut_models import huge
from onnxbisect.cut import Cutter, write

folder = Path(sys.argv[1])
model = huge(folder)
cutter = Cutter(model)
# The high-water mark of intake must not hide what follows.
Path("/proc/self/clear_refs").write_text("5")
resident = lambda key: next(
    int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key)
)
before = resident("VmRSS:")

def fastest(write_to):
    seconds = []
    for _ in range(4):
        write_to.with_name("piece.data").unlink(missing_ok=True)
        begin = time.process_time()
        write(cutter.cut(0b1111111111 << 100), model, write_to)
        seconds.append(time.process_time() - begin)
    return min(seconds)


costs = {"beside": fastest(folder / "piece.onnx"), "elsewhere": fastest(Path(sys.argv[2]))}
print(json.dumps(costs | {"grown_kb": resident("VmHWM:") - before}))
"""


def test_a_small_piece_of_a_huge_model_costs_little(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    target = tmp_path / "piece.onnx"
    done = subprocess.run(
        [sys.executable, "-c", CUT_TEN, folder, target],
        cwd=TESTS,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    cost = json.loads(done.stdout)
    assert cost["beside"] < 0.02
    assert cost["elsewhere"] < 0.5  # 100 MB, copied from the page cache: 0.03 s on a quiet machine
    assert cost["grown_kb"] < 300_000
    assert target.with_name("piece.data").stat().st_size == 10 * HUGE_WEIGHT


@pytest.mark.parametrize("length", [None, "", "8", "64"])
def test_external_data_are_as_many_bytes_as_type_and_shape_say(tmp_path: Path, length: str | None) -> None:
    """ONNX leaves the length optional; without it onnx itself reads all that follows in the file."""
    folder, other = tmp_path / "model", tmp_path / "piece"
    folder.mkdir()
    other.mkdir()
    (folder / "shared.bin").write_bytes(np.arange(16, dtype=np.int64).tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.INT64, dims=[1], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "shared.bin"), ("offset", "8"), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    head = '<ir_version: 8, opset_import: ["": 17]>'
    parsed = parser.parse_model(f"{head} g (int64[1] x) => (int64[1] y) {{ y = Add(x, w) }}")
    parsed.graph.initializer.append(tensor)
    model = read(folder, parsed)
    probe_key(model, 1)  # reads small constants
    write(Cutter(model).cut(1), model, other / "piece.onnx")
    assert numpy_helper.to_array(onnx.load(other / "piece.onnx").graph.initializer[0]).tolist() == [1]
