"""Compare two models: run both on the same inputs and compare their outputs number by number."""

from onnxbisect.proof.difference import Difference, Tolerance, difference, finite
from onnxbisect.proof.inputs import EDGES, edge_feeds, random_feeds
from onnxbisect.proof.outputs import Comparison, compare, those_that_run

__all__ = [
    "EDGES",
    "Comparison",
    "Difference",
    "Tolerance",
    "compare",
    "difference",
    "edge_feeds",
    "finite",
    "random_feeds",
    "those_that_run",
]
