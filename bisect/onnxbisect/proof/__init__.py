"""Compare two models: run both on the same inputs and compare their outputs number by number.

The noun is the **difference** of two outputs, against a `Tolerance`. Both models run in onnxruntime without
optimisation, in the type in which the graph is written, so that what differs is the change and not the machine. The
inputs are the user's samples, random numbers (`random_feeds`) and numbers at which ops are special (`edge_feeds`); ops
that onnxruntime does not know have recorded outputs. `outputs.compare` is the whole; start there.
"""

from onnxbisect.proof.feeds import EDGES, edge_feeds, in_form, in_form_of, leeways, random_feeds
from onnxbisect.proof.outputs import (
    RECORDED,
    OutputComparison,
    OutputDifference,
    compare,
    demand_recorded,
    difference,
    fault,
    runnable_feeds,
    those_that_run,
)
from onnxbisect.terms import Tolerance

__all__ = [
    "EDGES",
    "RECORDED",
    "OutputComparison",
    "OutputDifference",
    "Tolerance",
    "compare",
    "demand_recorded",
    "difference",
    "edge_feeds",
    "fault",
    "in_form",
    "in_form_of",
    "leeways",
    "random_feeds",
    "runnable_feeds",
    "those_that_run",
]
