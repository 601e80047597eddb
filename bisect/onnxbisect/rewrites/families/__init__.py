"""The rules that come with onnx-bisect, one module for each family of ops."""

from onnxbisect.rewrites.families import (
    activations,
    elementary,
    gelu,
    indexing,
    limits,
    normalisation,
    norms,
    powers,
    rectifiers,
    reductions,
    rounding,
    scatter,
    slicing,
    softmax,
    trigonometry,
)
from onnxbisect.rewrites.rule import Rule

RULES: tuple[Rule, ...] = (
    *activations.RULES,
    *elementary.RULES,
    *gelu.RULES,
    *indexing.RULES,
    *limits.RULES,
    *normalisation.RULES,
    *norms.RULES,
    *powers.RULES,
    *rectifiers.RULES,
    *reductions.RULES,
    *rounding.RULES,
    *scatter.RULES,
    *slicing.RULES,
    *softmax.RULES,
    *trigonometry.RULES,
)
