"""The rules that come with onnx-bisect, one module for each family of ops."""

from onnxbisect.rewrites.families import (
    elementary,
    limits,
    powers,
    rounding,
)
from onnxbisect.rewrites.rule import Rule

RULES: tuple[Rule, ...] = (
    *elementary.RULES,
    *limits.RULES,
    *powers.RULES,
    *rounding.RULES,
)
