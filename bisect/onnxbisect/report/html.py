"""The report as one HTML file that opens offline, without scripts and without any other resource."""

from collections.abc import Mapping
from typing import Any

from onnxbisect.report.rendering import environment


def html(document: Mapping[str, Any]) -> str:
    """A page for a browser of any width, in light and dark, and for paper."""
    return environment().get_template("report.html.j2").render(doc=document)
