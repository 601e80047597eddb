"""The report as one HTML file that opens offline, without scripts and without any other resource."""

from collections.abc import Mapping
from typing import Any

from onnxbisect.report.links import Links
from onnxbisect.report.rendering import environment

_ALONE = Links()


def html(document: Mapping[str, Any], links: Links = _ALONE) -> str:
    """A page for a browser of any width, in light and dark, and for paper. `links` are to what lies beside it."""
    return environment().get_template("report.html.j2").render(doc=document, links=links)
