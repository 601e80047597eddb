"""Changes of a whole model file that make a tool accept it: a lower version, folded constants, inlined functions.

A file remedy answers a finding of the preflight. It returns a changed copy, in which everything else keeps its bytes,
and a sentence that says what was changed. `candidates` chooses which copies to compile; start there.
"""

from onnxbisect.file_remedies.as_said import as_said
from onnxbisect.file_remedies.candidates import (
    MOST_CANDIDATES,
    REMEDIES,
    REORDERING,
    Applied,
    ChangedCopy,
    Declined,
    arranged_otherwise,
    candidates,
    form_candidates,
    in_usual_forms,
    masks_bounded,
    may_have_unusual_forms,
    promising,
    repaired,
    usual_forms,
    with_lower_ranks,
    with_newer_forms,
)
from onnxbisect.file_remedies.ranks import LOWER_RANKS, USUAL_RANK, form_of_lower_rank
from onnxbisect.file_remedies.remedy import File, FileRemedy, RemediedFile

__all__ = [
    "LOWER_RANKS",
    "MOST_CANDIDATES",
    "REMEDIES",
    "REORDERING",
    "USUAL_RANK",
    "Applied",
    "ChangedCopy",
    "Declined",
    "File",
    "FileRemedy",
    "RemediedFile",
    "arranged_otherwise",
    "as_said",
    "candidates",
    "form_candidates",
    "form_of_lower_rank",
    "in_usual_forms",
    "masks_bounded",
    "may_have_unusual_forms",
    "promising",
    "repaired",
    "usual_forms",
    "with_lower_ranks",
    "with_newer_forms",
]
