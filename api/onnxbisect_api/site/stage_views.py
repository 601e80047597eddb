"""The values for the templates of repairs and of precision. Their documents are validated, because a model process
wrote them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxbisect.errors import OnnxBisectError
from onnxbisect.json_form import from_json
from onnxbisect.precision.report import PrecisionReport
from onnxbisect.proof import OutputDifference
from onnxbisect.remedies.document import Change, LeftRow, RepairDocument
from onnxbisect.remedies.place_graph import before_and_after
from onnxbisect.remedies.summary import called, groups, headline, left_groups, numbers, outcome
from onnxbisect_api.found import PRECISION_FOLDER, precision_file_address
from onnxbisect_db.tables import Search


@dataclass(frozen=True, kw_only=True)
class Remedied:
    """Changes of one op by the same replacement. `worst` is the largest difference of their outputs.

    `pictures` show the first of these places before and after the change; None if they would be too large.
    """

    changes: list[Change]
    worst: OutputDifference | None
    pictures: tuple[Mapping[str, Any], Mapping[str, Any]] | None


@dataclass(frozen=True, kw_only=True)
class RepairOnPage:
    """A finished repair. `alternatives` are other options that were tried, with the compiler's verdicts."""

    document: RepairDocument
    headline: str
    sentences: list[str]
    remedied: list[Remedied]
    alternatives: list[tuple[str, str]]
    left: list[list[LeftRow]]
    has_model: bool
    has_report: bool


def repair_on_page(found: object, search: Search) -> RepairOnPage | None:
    """A target's repair from the stored document `found`; None if this version cannot read it."""
    try:
        document = RepairDocument.of_json(found)
    except OnnxBisectError:
        return None
    return RepairOnPage(
        document=document,
        headline=headline(document),
        sentences=numbers(document),
        remedied=[
            Remedied(
                changes=group,
                worst=max(
                    (it for change in group for it in change.differences), key=lambda it: it.absolute, default=None
                ),
                pictures=before_and_after(group[0]),
            )
            for group in groups(document.changes)
        ],
        alternatives=[(called(it), outcome(it)) for it in document.alternatives],
        left=left_groups(document.left),
        has_model="repair/repaired.onnx" in search.files,
        has_report="repair/report.json" in search.files,
    )


#: Files that are shown, not offered below.
_SHOWN = ("precision.json", "precision.md")


@dataclass(frozen=True, kw_only=True)
class PrecisionOnPage:
    """A finished search for nodes that must stay precise. `pictures` and `files` have addresses by file name."""

    report: PrecisionReport
    document: str
    pictures: dict[str, str]
    files: dict[str, str]


def precision_on_page(found: object, search: Search) -> PrecisionOnPage | None:
    """A target's precision from the stored document `found`; None if this version cannot read it."""
    try:
        report = from_json(found, PrecisionReport)
        report.headline  # noqa: B018 - it is made of the document's values
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None
    url, target = f"/v1/jobs/{search.job_id}", search.ordinal + 1
    address = {
        path.removeprefix(PRECISION_FOLDER): precision_file_address(url, path, target)
        for path in sorted(search.files)
        if path.startswith(PRECISION_FOLDER)
    }
    return PrecisionOnPage(
        report=report,
        document=address["precision.json"],
        pictures={name: at for name, at in address.items() if name.endswith(".svg")},
        files={name: at for name, at in address.items() if name not in _SHOWN and not name.endswith(".svg")},
    )
