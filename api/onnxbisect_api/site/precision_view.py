"""The values for the template of precision. The document is validated, because a model process wrote it."""

from dataclasses import dataclass

from onnxbisect.json_form import from_json
from onnxbisect.precision.report import PrecisionReport
from onnxbisect_api.found import PRECISION_FOLDER, precision_file_address
from onnxbisect_db.tables import Search

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
