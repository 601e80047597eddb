"""The report as one HTML file that opens offline, without scripts and without any other resource."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

import jinja2

from onnxbisect.report import words
from onnxbisect.report.pictures import strip, surroundings
from onnxbisect.report.tables import summary
from onnxbisect.report.text import clean, clip, duration, plural


def html(document: Mapping[str, Any]) -> str:
    """A page for a browser of any width, in light and dark, and for paper."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, finalize=_shown, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "clip": clip,
        "duration": duration,
        "plural": plural,
        "strip": strip,
        "summary": summary,
        "surroundings": surroundings,
        "words": words,
    }
    source = resources.files("onnxbisect.report").joinpath("report.html.j2").read_text("utf-8")
    return environment.from_string(source).render(doc=document)


def _shown(value: object) -> object:
    """Every text of the document passes here before it is escaped; markup of our own is left as it is."""
    return clean(value) if type(value) is str else value
