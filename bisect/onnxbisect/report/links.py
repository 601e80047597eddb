"""Where readers of a report find what is not in it: a page of the service has other things beside it than a file has.

Templates ask for a link and leave out what is empty; none of them knows where it is shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Link:
    """`text` says what one gets there."""

    text: str
    href: str


@dataclass(frozen=True, kw_only=True)
class CulpritLinks:
    """Of one culprit. `files` reproduce it, `log` is all that the compiler said, `graph` shows it in the model, and
    `viewers` are other programs that draw its file. A reader has that as `saved_as`, where it is not at the report's
    own path.
    """

    files: tuple[Link, ...] = ()
    saved_as: str = ""
    log: str = ""
    graph: str = ""
    viewers: tuple[Link, ...] = ()


_NONE = CulpritLinks()


@dataclass(frozen=True, kw_only=True)
class Links:
    """Of one report. `forms` are the same report for other readers; `probes` is a page with every question, and
    `each_probe` one with a single question and its log, where the report's name for it stands for `{}`.
    """

    culprits: Mapping[int, CulpritLinks] = field(default_factory=dict)
    forms: tuple[Link, ...] = ()
    probes: str = ""
    each_probe: str = ""

    def culprit(self, number: int) -> CulpritLinks:
        """Of the culprit with this number, the first being 1."""
        return self.culprits.get(number, _NONE)

    def probe(self, name: str) -> str:
        """More on one question; empty where there is no more."""
        return self.each_probe.format(name)
