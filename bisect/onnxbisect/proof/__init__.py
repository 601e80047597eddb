"""Compare two models: run both on the same inputs and compare their outputs number by number."""

from onnxbisect.proof.difference import OutputDifference, Tolerance, difference, finite
from onnxbisect.proof.outputs import (
    EDGES,
    RECORDED,
    OutputComparison,
    compare,
    demand_recorded,
    edge_feeds,
    random_feeds,
    those_that_run,
)

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
    "finite",
    "random_feeds",
    "those_that_run",
]
