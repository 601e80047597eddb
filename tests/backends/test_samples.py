"""The samples beside a probe fit the probe, whatever its tensors are called."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from onnxbisect.cut import Cutter, write
from onnxbisect.model import load
from onnxbisect.model.values import TensorValues
from onnxbisect.probe_format import ProbeFormat
from onnxbisect_backends.samples import samples_folder, samples_of, write_samples

#: Names that numpy.savez takes for its own arguments, that leave a folder, and that are not plain.
NAMES = ("file", "allow_pickle", "../a b/ü:0", "file_2")


def test_every_sample_runs_through_the_probe_and_gives_the_models_values(tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["x"], [NAMES[0]], name="n0")]
    nodes += [
        helper.make_node("Neg", [before], [after], name=f"n{i}") for i, (before, after) in enumerate(pairwise(NAMES), 1)
    ]
    nodes.append(helper.make_node("Sum", list(NAMES), ["y"], name="all"))
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:])
    path = tmp_path / "whole.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    model = load(path)
    piece = Cutter(model).cut(1 << model.unit_of_node["all"], ProbeFormat(safe_names=True))
    probe = tmp_path / "model.onnx"
    write(piece, model, probe)

    write_samples(probe, piece.renamed, TensorValues(model, count=11))

    assert [file.name for file in samples_of(probe)] == [f"{number}.npz" for number in range(11)]
    assert samples_folder(probe) == tmp_path / "model.samples"
    session = ort.InferenceSession(str(probe), providers=["CPUExecutionProvider"])
    results = []
    for file in samples_of(probe):
        with np.load(file) as sample:
            assert set(sample.files) == {value.name for value in session.get_inputs()}
            (result,) = session.run(None, dict(sample.items()))
            results.append(result)
    assert not np.concatenate(results).any()  # a - a + a - a
    assert len(samples_of(tmp_path / "other.onnx")) == 0
