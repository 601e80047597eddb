"""Models that end in ops whose sizes depend on values: the head is for the NPU, the tail for the host."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnx_bisect
from onnx_bisect.backend_choice import CallableBackend
from onnxbisect_backends.contract import Description
from onnxbisect_backends.toolchains.toolchain import toolchain

#: A detector in small: a convolution, boxes and scores, NonMaxSuppression, and what is read at the boxes that it picks.
DETECTOR = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,32,32] x) => (float[n,4] picked, float[n] best)
<int64 k = {10}, float iou = {0.5}, float least = {0.1}, int64[3] rows = {1, -1, 4}, int64[3] ranks = {1, 3, -1},
 int64[1] two = {2}, int64[1] three = {3}, int64[1] one = {1}, int64[1] flat = {-1}, int64[2] fours = {-1, 4}> {
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [4, 4]> (x, w)
  r = Relu (a)
  t = Transpose <perm = [0, 2, 3, 1]> (r)
  boxes = Reshape (t, rows)
  s = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r, v)
  p = Sigmoid (s)
  u = Transpose <perm = [0, 2, 3, 1]> (p)
  e = Reshape (u, ranks)
  m = ReduceMax <axes = [1], keepdims = 1> (e)
  scores = Concat <axis = 2> (m, m, m)
  index = NonMaxSuppression (boxes, scores, k, iou, least)
  last = Slice (index, two, three, one)
  where = Reshape (last, flat)
  table = Reshape (boxes, fours)
  picked = Gather <axis = 0> (table, where)
  list = Reshape (scores, flat)
  best = Gather <axis = 0> (list, where)
}"""
TAIL = {"NonMaxSuppression", "Slice", "Reshape", "Gather"}


def detector(folder: Path) -> Path:
    model = parser.parse_model(DETECTOR)
    draw = np.random.default_rng(0)
    for name, shape in (("w", (12, 3, 3, 3)), ("v", (3, 12, 3, 3))):
        model.graph.initializer.append(numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, folder / "detector.onnx")
    return folder / "detector.onnx"


def test_of_a_tool_that_needs_sizes_the_tail_goes_to_the_host(tmp_path: Path) -> None:
    """It refuses what makes an output of open size, and no probe or piece hides that by the size that one run had."""

    def compiles(path: Path) -> bool:
        graph = onnx.load(path).graph
        declared = (*graph.output, *graph.value_info, *graph.input)
        return all(dim.HasField("dim_value") for value in declared for dim in value.type.tensor_type.shape.dim)

    demand_split(tmp_path, lambda: Static(compiles))


class Static(CallableBackend):
    """A compiler without shape inference that takes no tensor of open size."""

    def describe(self) -> Description:
        """All that the search has to know of it."""
        return Description(tool="static", version="", boundary_known=True, needs_static=True)


@pytest.mark.compiler
def test_of_qnn_the_tail_goes_to_the_host(tmp_path: Path) -> None:
    if complaint := toolchain("qnn").missing:
        pytest.skip(complaint)
    demand_split(tmp_path, lambda: "qnn")


def demand_split(folder: Path, backend: Callable[[], CallableBackend | str]) -> None:
    path = detector(folder)
    found = onnx_bisect.diagnose(path, backend=backend(), cache=False)
    assert [culprit.ops for culprit in found.culprits] == [("NonMaxSuppression",)]
    assert not found.certificate.proven
    (unknown,) = found.certificate.unknown
    assert "4 units could not be asked without NonMaxSuppression" in unknown
    assert found.stats.rounds <= found.stats.compiler_calls  # none for what cannot be cut

    done = onnx_bisect.split(path, found, folder / "split", backend=backend())
    assert (done.proven, done.refused) == (True, False)
    first, second = done.manifest.pieces
    assert (first.kind, second.kind, len(first.nodes) + len(second.nodes)) == ("npu", "host", 17)
    assert len(first.nodes) in (11, 12)  # a Reshape that only the tail reads may be on either side
    assert {node.op_type for node in onnx.load(folder / "split" / second.file).graph.node} <= TAIL
