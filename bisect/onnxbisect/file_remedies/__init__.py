"""Changes of a whole model file that make a tool accept it: a lower version, folded constants, inlined functions.

The noun is the **file remedy**: it answers a finding of the preflight, and returns a changed copy, in which everything
else keeps its bytes, with a sentence that says what was changed. Each costs one compile, and a file that compiles needs
no search, so they are tried first. `candidates` chooses which copies to compile, each with several remedies applied
(`REMEDIES`); `lowering` writes older operator sets, `rank_forms` fewer dimensions, and `usual_forms` the forms that
compilers know best. Start with `candidates.candidates`.
"""

from onnxbisect.file_remedies.as_said import as_said
from onnxbisect.file_remedies.candidates import (
    ARRANGEMENT,
    MOST_CANDIDATES,
    REMEDIES,
    Applied,
    ChangedCopy,
    Declined,
    after_remedies,
    candidates,
    changed_nodes,
    for_other_numbers,
    form_candidates,
    leaves_named,
    may_have_unusual_forms,
    plain,
    promising,
    repaired,
    usual_forms,
    with_lower_ranks,
    with_newer_forms,
)
from onnxbisect.file_remedies.control_flow import why_not_written_out
from onnxbisect.file_remedies.ranks import LOWER_RANKS, USUAL_RANK, form_of_lower_rank
from onnxbisect.file_remedies.remedy import File, FileRemedy, RemediedFile

__all__ = [
    "ARRANGEMENT",
    "LOWER_RANKS",
    "MOST_CANDIDATES",
    "REMEDIES",
    "USUAL_RANK",
    "Applied",
    "ChangedCopy",
    "Declined",
    "File",
    "FileRemedy",
    "RemediedFile",
    "after_remedies",
    "as_said",
    "candidates",
    "changed_nodes",
    "for_other_numbers",
    "form_candidates",
    "form_of_lower_rank",
    "leaves_named",
    "may_have_unusual_forms",
    "plain",
    "promising",
    "repaired",
    "usual_forms",
    "why_not_written_out",
    "with_lower_ranks",
    "with_newer_forms",
]
