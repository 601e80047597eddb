"""The forms of a report, and content negotiation."""

from collections.abc import Mapping
from enum import StrEnum

from onnxbisect_api.problems import Problem


class Form(StrEnum):
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
        shown = self in (Form.JSON, Form.MD, Form.HTML)
        placed = "inline" if shown else "attachment"
        return {"Content-Disposition": f'{placed}; filename="{self.file_name}"', "Content-Security-Policy": _POLICY}


_FILES = {
    Form.JSON: "report.json",
    Form.MD: "report.md",
    Form.HTML: "report.html",
    Form.JUNIT: "junit.xml",
    Form.SARIF: "report.sarif",
    Form.GITLAB: "gitlab-codequality.json",
}
_MEDIA_TYPES = {
    Form.JSON: "application/json",
    Form.MD: "text/markdown",
    Form.HTML: "text/html",
    Form.JUNIT: "application/xml",
    Form.SARIF: "application/sarif+json",
    Form.GITLAB: "application/json",
}
#: Reports have styles and no scripts, which this policy would block.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; sandbox"
_ACCEPTED = {
    "*/*": Form.JSON,
    "application/*": Form.JSON,
    "application/json": Form.JSON,
    "text/*": Form.MD,
    "text/markdown": Form.MD,
    "text/html": Form.HTML,
    "application/xml": Form.JUNIT,
    "text/xml": Form.JUNIT,
    "application/sarif+json": Form.SARIF,
}


def accepted(header: str) -> Form:
    """The form that an `Accept` header prefers, JSON by default."""
    wanted = [_weighed(part) for part in header.split(",") if part.strip()] or [("*/*", 1.0)]
    for media_type, weight in sorted(wanted, key=lambda it: -it[1]):
        if weight > 0 and media_type in _ACCEPTED:
            return _ACCEPTED[media_type]
    raise Problem(406, f"A report is there as {', '.join(Form)}: ask for one of them with ?format=.")


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
