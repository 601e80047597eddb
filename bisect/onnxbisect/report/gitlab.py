"""The report as GitLab's code quality JSON (the subset of the CodeClimate format that GitLab reads)."""

import json
import re
from collections.abc import Mapping
from typing import Any

from onnxbisect.report import words
from onnxbisect.report.text import clean, plural


def gitlab(document: Mapping[str, Any]) -> str:
    """One finding per culprit, at its line of source where that is known by a relative path, else in the model."""
    return json.dumps([_finding(document, culprit) for culprit in document["culprits"]], indent=1) + "\n"


def _finding(document: Mapping[str, Any], culprit: Mapping[str, Any]) -> dict[str, Any]:
    traced = next((origin for origin in culprit["origin"] if origin["file"] and _relative(origin["file"])), None)
    places = plural(len(culprit["occurrences"]), "place")
    text = f"{' + '.join(culprit['ops'][:8])}: {words.failure(culprit)} ({places}, first {culprit['nodes'][0]})"
    return {
        "description": clean(text),
        "check_name": f"onnx-bisect/{culprit['kind']}",
        "fingerprint": culprit["id"],
        "severity": "major" if culprit["certainty"] == "confirmed" else "minor",
        "location": {
            "path": clean(traced["file"] if traced else document["model"]["name"]),
            "lines": {"begin": max(1, traced["line"] or 1) if traced else 1},
        },
    }


def _relative(path: str) -> bool:
    """GitLab takes paths below the repository only."""
    return not re.match(r"[\\/]|[A-Za-z]:|<", path) and ".." not in re.split(r"[\\/]", path)
