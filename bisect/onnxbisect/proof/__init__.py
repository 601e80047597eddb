"""Compare two models: run both on the same inputs and compare their outputs number by number."""

from onnxbisect.proof.difference import OutputDifference, Tolerance, difference, finite
from onnxbisect.proof.inputs import EDGES, edge_feeds, random_feeds
from onnxbisect.proof.outputs import OutputComparison, compare, those_that_run

__all__ = [
    "EDGES",
    "OutputComparison",
    "OutputDifference",
    "Tolerance",
    "compare",
    "difference",
    "edge_feeds",
    "finite",
    "random_feeds",
    "those_that_run",
]
