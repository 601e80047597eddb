"""Numbers that are made up for a proof: a model that random floats cannot run is proven on others."""

import json

import onnx
import pytest
from onnx import parser

from support.cli.command_line import Shell

#: Keras takes tokens as floats; the table has ten rows.
TOKENS = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,6] ids{more}) => (float[1,6,4] y) <float[10,4] table = {{{table}}}, int64[2] whole = {{1, 6}}> {{
   {number}
   tokens = Cast <to = {dtype}> (number)
   rows = Gather (table, tokens)
   {result}
   y = HardSwish (shown)
}}"""
TABLE = ", ".join(str(number / 8) for number in range(-20, 20))


@pytest.mark.parametrize(
    ("number", "dtype", "more", "result"),
    [
        ("number = Identity (ids)", onnx.TensorProto.INT64, "", "shown = Identity (rows)"),
        ("number = Reshape (ids, whole)", onnx.TensorProto.INT32, "", "shown = Identity (rows)"),
        ("number = Floor (ids)", onnx.TensorProto.INT64, "", "shown = Identity (rows)"),
        ("number = Round (ids)", onnx.TensorProto.INT32, ", float[1,6,4] x", "shown = Add (rows, x)"),
    ],
)
def test_floats_that_are_indices(shell: Shell, number: str, dtype: int, more: str, result: str) -> None:
    text = TOKENS.format(number=number, dtype=dtype, more=more, result=result, table=TABLE)
    onnx.save(parser.parse_model(text), shell.folder / "m.onnx")
    refusing = ("-b", "whitelist", "--option", "deny=HardSwish")
    fixed = shell.call("fix", "m.onnx", *refusing, "--no-cache")
    assert fixed.code == 0, fixed.out + fixed.err
    ops = {node.op_type for node in onnx.load(shell.folder / "repair" / "repaired.onnx").graph.node}
    assert "HardSwish" not in ops
    compared = shell.call("compare", "m.onnx", "repair/repaired.onnx")
    assert compared.code == 0, compared.out + compared.err
    assert shell.call("run", "m.onnx", *refusing, "-o", "report").code == 1
    split = shell.call("split", "m.onnx", "--report", "report", "-o", "parts")
    assert split.code == 0, split.out + split.err
    assert json.loads((shell.folder / "parts" / "split" / "manifest.json").read_text())["proof"]["proven"]
