"""The report as GitLab's code quality JSON (the subset of the CodeClimate format that GitLab reads)."""

import json
import re

from onnxbisect.language import in_english
from onnxbisect.report import source_lines, words
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_contents import CulpritEntry
from onnxbisect.report.text import clean, clip, plural

#: Most characters of a description, which a merge request shows in one line; node names may be of any length.
_WIDTH = 400
#: Most lines of source in it.
_LINES = 3


@in_english
def gitlab(document: Report) -> str:
    """One finding per culprit, at its line of source if that is known by a relative path, else at the model file."""
    return json.dumps([_finding(document, culprit) for culprit in document["culprits"]], indent=1) + "\n"


def _finding(document: Report, culprit: CulpritEntry) -> dict[str, object]:
    origins = ((origin["file"], origin["line"]) for origin in culprit["origin"])
    traced = next(((file, line) for file, line in origins if file and _relative(file)), None)
    path, line = traced or (words.model_path(document), 1)
    places = plural(len(culprit["occurrences"]), "place")
    lines = "; ".join(it.text for it in source_lines.of(culprit)[:_LINES])
    text = f"{' + '.join(culprit['ops'][:8])}: {words.failure(culprit)} ({places}, first {culprit['nodes'][0]})"
    text += f" from {lines}" if lines else ""
    return {
        "description": clip(text, _WIDTH),
        "check_name": f"onnx-bisect/{clip(' + '.join(culprit['ops'][:8]), 100)}",
        "fingerprint": culprit["id"],
        "severity": "major" if culprit["certainty"] == "confirmed" else "minor",
        "location": {
            "path": clean(path),
            "lines": {"begin": max(1, line or 1)},
        },
    }


def _relative(path: str) -> bool:
    """Whether the path is relative; GitLab accepts only paths below the repository."""
    return not re.match(r"[\\/]|[A-Za-z]:|<", path) and ".." not in re.split(r"[\\/]", path)
