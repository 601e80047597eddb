"""The report as one HTML file that opens offline, without scripts and without any other resource."""

from onnxbisect.report.contents import Report
from onnxbisect.report.links import Links
from onnxbisect.report.readers import readers
from onnxbisect.report.rendering import environment

_ALONE = Links()


def html(document: Report, links: Links = _ALONE) -> str:
    """A page for browsers of any width, in light and dark, and for paper. `links` lead to files beside it."""
    return environment().get_template("report.html.j2").render(doc=readers(document), links=links)
