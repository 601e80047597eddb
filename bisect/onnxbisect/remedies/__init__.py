"""Remedies: from the culprits of a model to a repaired one that is proven to compute the same and to compile.

For each place `candidate.Finder` lists the results of rewrite rules, `candidate.advise` chooses one and says what to
compile before it is used, `proving` compares the repaired model with the original, and `repair` repeats this until the
model compiles or nothing is left to try. Compilers and provers are interfaces (`contract`). Start with `repair.repair`.
"""

from onnxbisect.remedies.advisor import Advisor, Left, Struck, more_rules_apply
from onnxbisect.remedies.candidate import Advice, Candidate, CulpritPlace, Finder, SeenVariants, advise
from onnxbisect.remedies.contract import ChangedFile, Compiler, PlaceProof, Repair, RepairProof
from onnxbisect.remedies.found import SearchedModel
from onnxbisect.remedies.low_precision import LowPrecision
from onnxbisect.remedies.proving import OrtProver, Samples
from onnxbisect.remedies.repair import TriedFiles, repair, try_files

__all__ = [
    "Advice",
    "Advisor",
    "Candidate",
    "ChangedFile",
    "Compiler",
    "CulpritPlace",
    "Finder",
    "Left",
    "LowPrecision",
    "OrtProver",
    "PlaceProof",
    "Repair",
    "RepairProof",
    "Samples",
    "SearchedModel",
    "SeenVariants",
    "Struck",
    "TriedFiles",
    "advise",
    "more_rules_apply",
    "repair",
    "try_files",
]
