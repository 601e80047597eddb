"""Cut a set of units out of a model into a stand-alone ONNX file.

A set of units may be any, convex or not. What a cut adds (declared types, weights, neutral inputs and outputs) must not
be what a compiler refuses; most modules here prevent one such case, for which a target says in its `ProbeFormat` what
it takes. `Cutter.cut` makes the piece, `write` the file. Start with `cutter`.
"""

from onnxbisect.cut.cutter import Cutter
from onnxbisect.cut.extract import cut_between, cut_modules, units_between, units_of_nodes
from onnxbisect.cut.output_guard import split_variants, touching, unguarded_outputs
from onnxbisect.cut.required_producers import (
    makers_of_open_sizes,
    producers_of_constants,
    producers_required_by_type,
    split_variants_by_producers,
)
from onnxbisect.cut.write import Piece, as_written, same_but_for_names, with_sizes, write, write_as_written

__all__ = [
    "Cutter",
    "Piece",
    "as_written",
    "cut_between",
    "cut_modules",
    "makers_of_open_sizes",
    "producers_of_constants",
    "producers_required_by_type",
    "same_but_for_names",
    "split_variants",
    "split_variants_by_producers",
    "touching",
    "unguarded_outputs",
    "units_between",
    "units_of_nodes",
    "with_sizes",
    "write",
    "write_as_written",
]
