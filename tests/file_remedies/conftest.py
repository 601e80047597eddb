"""Files for remedies, and whether two files compute the same."""

from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest

from onnxbisect.file_remedies import ChangedCopy, File, repaired
from onnxbisect.model import load
from onnxbisect.preflight import ToolLimits
from onnxbisect.proof import Tolerance, compare, edge_feeds, random_feeds
from support.file_remedies import Repair, Same, Save

#: What remedies are tried with where a test says nothing else.
READER = ToolLimits(tool="Chipper", newest_ir=9, newest_opset=17)


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a model, given as ONNX's text without its header or as a proto."""

    def saved(model: str | onnx.ModelProto, opset: int = 17, ir_version: int = 8, domains: str = "") -> Path:
        path = tmp_path / "m.onnx"
        if isinstance(model, str):
            header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}{domains}]>\n'
            model = onnx.parser.parse_model(header + model)
        onnx.save(model, path)
        return path

    return saved


@pytest.fixture
def repair() -> Repair:
    """Applies remedies to a file; `shapes` are the user's."""

    def applied(path: Path, *remedies: str, reader: ToolLimits = READER, **shapes: Sequence[int]) -> ChangedCopy:
        return repaired(File.of(load(path, input_shapes=shapes)), remedies, reader)

    return applied


@pytest.fixture
def same() -> Same:
    """Asserts that a changed file computes the same, bit for bit unless a tolerance is given."""

    def demanded(
        path: Path, after: onnx.ModelProto, tolerance: float = 0.0, edges: bool = True, **shapes: Sequence[int]
    ) -> None:
        model = load(path, input_shapes=shapes)
        inputs = model.proto.graph.input
        feeds = [*random_feeds(inputs, 2), *(edge_feeds(inputs, 2) if edges else ())]
        # what intake made of the file: onnxruntime refuses node names that occur twice
        compared = compare(
            model.proto,
            after,
            feeds,
            tolerance=Tolerance(absolute=tolerance, relative=tolerance),
            folder=path.parent,
        )
        assert compared.agrees, compared

    return demanded
