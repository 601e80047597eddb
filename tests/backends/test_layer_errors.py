"""Tables of errors by layer, of RKNN, TPU-MLIR and pulsar2, name the layers to ask about first."""

from pathlib import Path

import pytest

from onnxbisect.errors import OptionError
from onnxbisect_backends.precision.configurations import read_layer_errors

RKNN = """
layer_name                                     simulator_error
                                           entire              single
                                        cos      euc        cos      euc
------------------------------------------------------------------------------
[Input] x                             1.00000 | 0.0       1.00000 | 0.0
[Conv] up
[Relu] r3                             0.99994 | 25.200    0.99996 | 19.721
[Conv] c4
[Relu] r4                             0.66636 | 11.559    0.66667 | 11.530
[Relu] r5                             0.82641 | 4.9502    0.99997 | 0.0682
"""
PULSAR2 = """
                 Quant Precision Table【PerLayer Reference】
┏━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┓
┃ Operator ┃      Type       ┃ Output Tensor ┃ Cosin   ┃ MSE     ┃
┡━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━┩
│ Conv_0   │ AxQuantizedConv │ 317           │ 0.99993 │ 0.00003 │
├──────────┼─────────────────┼───────────────┼─────────┼─────────┤
│ Add_15   │ AxQuantizedAdd  │ 339           │ 0.99930 │ 0.00050 │
└──────────┴─────────────────┴───────────────┴─────────┴─────────┘
"""

RUN_QTABLE = """
# chip: bm1684x  mix_mode: F16
###
No.0   : Layer: r3_Relu                                           \t\t\tCos: 0.666361
No.1   : Layer: /a b/y_Conv                                       \t\t\tCos: 0.999700
"""
NPZ_TOOL = """
[x                               ]        EQUAL [PASSED]
    (1, 3) float32
[r3_Relu                         ]      SIMILAR [PASSED]
    (1, 8, 4, 4) float32
    cosine_similarity      = 0.999930
    euclidean_similarity   = 0.988000
    sqnr_similarity        = 38.500000
[/h/y_Gemm                       ]  NOT_SIMILAR [FAILED]
    (1, 4) float32
    cosine_similarity      = -0.125000
    euclidean_similarity   = -1.500000
    sqnr_similarity        = -2.500000
2 compared
"""


def test_the_layers_of_a_table_come_worst_first(tmp_path: Path) -> None:
    file = tmp_path / "errors.txt"
    file.write_text(RKNN)
    assert read_layer_errors(file) == [("c4", "r4"), ("up", "r3"), ("r5",), ("x",)]
    file.write_text(f"anything around it\n{PULSAR2}")
    assert read_layer_errors(file) == [("Add_15",), ("Conv_0",)]
    file.write_text(RUN_QTABLE)
    assert read_layer_errors(file) == [("r3_Relu",), ("/a b/y_Conv",)]
    file.write_text(f"{NPZ_TOOL}npz compare FAILED.\n")
    assert read_layer_errors(file) == [("/h/y_Gemm",), ("r3_Relu",)]


def test_a_file_without_a_table_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("[Relu] of something | else\n")
    with pytest.raises(OptionError, match="has no table of errors that is known"):
        read_layer_errors(tmp_path / "other.txt")
    with pytest.raises(OptionError, match="No such file"):
        read_layer_errors(tmp_path / "none.txt")
