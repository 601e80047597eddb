"""Cuts: from a set of units to a stand-alone ONNX file."""

from onnxbisect.cut.cover import bare_ends, told_apart, touching
from onnxbisect.cut.cutter import Cutter
from onnxbisect.cut.extract import cut_between, units_between, units_of_nodes
from onnxbisect.cut.grow import dtype_needs
from onnxbisect.cut.piece import Piece
from onnxbisect.cut.unfolded import known_needs, told_apart_by_makers
from onnxbisect.cut.write import write

__all__ = [
    "Cutter",
    "Piece",
    "bare_ends",
    "cut_between",
    "dtype_needs",
    "known_needs",
    "told_apart",
    "told_apart_by_makers",
    "touching",
    "units_between",
    "units_of_nodes",
    "write",
]
