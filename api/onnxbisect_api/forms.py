"""The forms of a report, and content negotiation."""

from collections.abc import Mapping
from enum import StrEnum

from onnxbisect_api.problems import Problem


class ReportForm(StrEnum):
    """The forms of a report. Each is a file that `onnx-bisect run --out` writes."""

    JSON = "json"
    MD = "md"
    HTML = "html"
    JUNIT = "junit"
    SARIF = "sarif"
    GITLAB = "gitlab"

    @property
    def file_name(self) -> str:
        """The name of the file that `onnx-bisect run --out` writes."""
        return _FILES[self]

    @property
    def media_type(self) -> str:
        """The media type without parameters such as the charset."""
        return _MEDIA_TYPES[self]

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that make a report safe to show or download, because reports contain untrusted names."""
        shown = self in (ReportForm.JSON, ReportForm.MD, ReportForm.HTML)
        placed = "inline" if shown else "attachment"
        return {"Content-Disposition": f'{placed}; filename="{self.file_name}"', "Content-Security-Policy": _POLICY}


_FILES = {
    ReportForm.JSON: "report.json",
    ReportForm.MD: "report.md",
    ReportForm.HTML: "report.html",
    ReportForm.JUNIT: "junit.xml",
    ReportForm.SARIF: "report.sarif",
    ReportForm.GITLAB: "gitlab-codequality.json",
}
_MEDIA_TYPES = {
    ReportForm.JSON: "application/json",
    ReportForm.MD: "text/markdown",
    ReportForm.HTML: "text/html",
    ReportForm.JUNIT: "application/xml",
    ReportForm.SARIF: "application/sarif+json",
    ReportForm.GITLAB: "application/json",
}
#: Reports have styles and no scripts, which this policy would block.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; sandbox"
_ACCEPTED = {
    "*/*": ReportForm.JSON,
    "application/*": ReportForm.JSON,
    "application/json": ReportForm.JSON,
    "text/*": ReportForm.MD,
    "text/markdown": ReportForm.MD,
    "text/html": ReportForm.HTML,
    "application/xml": ReportForm.JUNIT,
    "text/xml": ReportForm.JUNIT,
    "application/sarif+json": ReportForm.SARIF,
}


def accepted(header: str) -> ReportForm:
    """The form that an `Accept` header prefers, JSON by default."""
    wanted = [_weighed(part) for part in header.split(",") if part.strip()] or [("*/*", 1.0)]
    for media_type, weight in sorted(wanted, key=lambda it: -it[1]):
        if weight > 0 and media_type in _ACCEPTED:
            return _ACCEPTED[media_type]
    raise Problem(406, f"A report is there as {', '.join(ReportForm)}: ask for one of them with ?format=.")


def _weighed(part: str) -> tuple[str, float]:
    media_type, *parameters = (word.strip().lower() for word in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "q":
            try:
                return media_type, float(value)
            except ValueError:
                return media_type, 0.0
    return media_type, 1.0
