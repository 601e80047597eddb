"""The rules that come with onnx-bisect, one module for each family of ops."""

from onnxbisect.rewrites.families import (
    elementary,
    indexing,
    limits,
    powers,
    rounding,
    scatter,
    slicing,
)
from onnxbisect.rewrites.rule import Rule

RULES: tuple[Rule, ...] = (
    *elementary.RULES,
    *indexing.RULES,
    *limits.RULES,
    *powers.RULES,
    *rounding.RULES,
    *scatter.RULES,
    *slicing.RULES,
)
