"""Renders templates to HTML, here and on the status page; all text is escaped."""

import re
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup, escape

from onnxbisect import language
from onnxbisect.finished import translated
from onnxbisect.report import alternatives, cause_words, culprit_groups, extent, modules, source_lines, words
from onnxbisect.report.next_steps import next_steps
from onnxbisect.report.pictures import strip, surroundings
from onnxbisect.report.tables import summary
from onnxbisect.report.text import clean, clip, clip_left, duration, plural

#: A probe's name (`onnxbisect.report.records`).
_PROBE = re.compile(r"\bp[0-9a-f]{10}\b")


@cache
def environment(*loaders: jinja2.BaseLoader) -> jinja2.Environment:
    """The report's templates and those of `loaders`, which come first. Threads may share it."""
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([*loaders, jinja2.PackageLoader("onnxbisect.report")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # would check the file of each included template
    )
    made.globals |= {
        "_": _said,
        "alternatives": alternatives,
        "cause_words": cause_words,
        "culprit_groups": culprit_groups,
        "next_steps": next_steps,
        "clip": clip,
        "clip_left": clip_left,
        "duration": duration,
        "extent": extent,
        "language": lambda: language.current().replace("_", "-"),
        "linked": _linked,
        "modules": modules,
        "plural": plural,
        "source_lines": source_lines,
        "stop": words.stop,
        "strip": strip,
        "stylesheet": Markup(stylesheet()),  # noqa: S704 - our own file
        "summary": summary,
        "surroundings": surroundings,
        "tag": _tag,
        "told": translated,
        "words": words,
    }
    return made


def compile_all(made: jinja2.Environment) -> None:
    """Compile every template now, which takes a third of a second, so that no page waits for it."""
    for name in made.list_templates(extensions=["j2"]):
        made.get_template(name)


def stylesheet() -> str:
    """The style sheet of all these pages."""
    return resources.files("onnxbisect.report").joinpath("templates", "report.css").read_text("utf-8")


def _said(message: str, /, **values: object) -> Markup:
    """A message of the catalogue, which may hold markup, in the reader's language; values are cleaned and escaped."""
    found = Markup(language.translate(message))  # noqa: S704 - a message is a constant of a template
    return found.format(**{name: _shown(value) for name, value in values.items()}) if values else found


def _tag(name: str, text: str) -> Markup:
    """`text` within a tag, for a message."""
    return Markup("<{0}>{1}</{0}>").format(name, clean(text))


def _linked(sentence: str) -> Markup:
    """A sentence of this program, in which every probe name links to its row."""
    return Markup(_PROBE.sub(r'<a href="#\g<0>">\g<0></a>', str(escape(clean(sentence)))))  # noqa: S704 - escaped


def _shown(value: object) -> object:
    """Cleans every text before it is escaped; markup stays as it is."""
    return clean(value) if type(value) is str else value
