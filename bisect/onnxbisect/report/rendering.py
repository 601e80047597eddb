"""How templates become HTML, here and on the status page: all text is shown as text, whatever it says."""

from importlib import resources

import jinja2
from markupsafe import Markup

from onnxbisect.report import words
from onnxbisect.report.pictures import strip, surroundings
from onnxbisect.report.tables import summary
from onnxbisect.report.text import clean, clip, clip_left, duration, plural


def environment(*loaders: jinja2.BaseLoader) -> jinja2.Environment:
    """The report's templates and those of `loaders`, which come first."""
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([*loaders, jinja2.PackageLoader("onnxbisect.report")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "clip": clip,
        "clip_left": clip_left,
        "duration": duration,
        "plural": plural,
        "strip": strip,
        "stylesheet": Markup(stylesheet()),  # noqa: S704 - our own file
        "summary": summary,
        "surroundings": surroundings,
        "words": words,
    }
    return made


def stylesheet() -> str:
    """What all these pages look like."""
    return resources.files("onnxbisect.report").joinpath("templates", "report.css").read_text("utf-8")


def _shown(value: object) -> object:
    """Every text passes here before it is escaped; markup of our own is left as it is."""
    return clean(value) if type(value) is str else value
