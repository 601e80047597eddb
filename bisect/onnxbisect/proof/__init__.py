"""Compare two models: run both on the same inputs and compare their outputs number by number.

`outputs.compare` runs them in onnxruntime without optimisation, in the type in which the graph is written; `difference`
measures two arrays.
"""

from onnxbisect.proof.outputs import (
    EDGES,
    RECORDED,
    OutputComparison,
    OutputDifference,
    compare,
    demand_recorded,
    difference,
    edge_feeds,
    fault,
    random_feeds,
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
    "random_feeds",
    "those_that_run",
]
