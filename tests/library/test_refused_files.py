"""A file that a tool refuses, changed again and again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx

from onnx_bisect.steps.changed_files import RefusedFile
from onnx_bisect.steps.repair_compiler import RepairCompiler
from onnxbisect.file_remedies.candidates import ChangedCopy
from onnxbisect.model.read import original
from onnxbisect_backends.probing.loaded_model import LoadedModel


def test_each_change_starts_from_the_refused_file_and_not_from_the_one_asked_last(tmp_path: Path) -> None:
    """Seen with TPU-MLIR: a file had a change that its sentence did not say."""
    first, refused, other = (
        onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {{ y = {op}(x) }}'
        )
        for op in ("Abs", "Relu", "Neg")
    )
    onnx.save(first, tmp_path / "first.onnx")
    folder = tmp_path / "work"
    folder.mkdir()

    def context_of(loaded: LoadedModel, piece: bool) -> Any:
        return SimpleNamespace(loaded=loaded)

    loaded = LoadedModel(tmp_path / "first.onnx", {})
    compiler = RepairCompiler(loaded=loaded, search=cast(Any, None), context_of=context_of, folder=folder)
    file = RefusedFile(context=context_of(loaded, False), said=cast(Any, SimpleNamespace(reason=None)))
    after = file.after(ChangedCopy(proto=refused, applied=(), declined=()), cast(Any, None), compiler)
    compiler.read(other)
    assert original(after.context.loaded.model).graph.node[0].op_type == "Relu"


def test_a_model_is_loaded_once_for_all_its_pieces(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
    )
    onnx.save(model, tmp_path / "first.onnx")
    loaded = LoadedModel(tmp_path / "first.onnx", {})
    folder = tmp_path / "work"
    folder.mkdir()
    compiler = RepairCompiler(loaded=loaded, search=cast(Any, None), context_of=cast(Any, None), folder=folder)
    read = compiler.read(model)
    assert compiler.read(model) is read
    alike = onnx.ModelProto.FromString(model.SerializeToString())
    assert compiler.read(alike) is read
    alike.graph.node[0].op_type = "Neg"
    assert compiler.read(onnx.ModelProto.FromString(alike.SerializeToString())) is not read
