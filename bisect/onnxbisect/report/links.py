"""Links from a report to related resources: a page of the service has other ones than a file.

Templates request a link and omit it if it is empty; they do not know where they are shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxbisect.report.text import slug


@dataclass(frozen=True, kw_only=True)
class Link:
    """`text` says what the link leads to."""

    text: str
    href: str


@dataclass(frozen=True, kw_only=True)
class CulpritLinks:
    """Links of one culprit: `files` reproduce it, `log` is the compiler's full log, `graph` shows it in the model.

    `viewers` are other programs that draw its file. A reader has that file as `saved_as` if it is not at the path in
    the report.
    """

    files: tuple[Link, ...] = ()
    saved_as: str = ""
    log: str = ""
    graph: str = ""
    viewers: tuple[Link, ...] = ()


_NONE = CulpritLinks()


@dataclass(frozen=True, kw_only=True)
class Links:
    """Links of one report: `forms` are its other formats, `probes` a page with every probe.

    `each_probe` is the page of one probe with its log; `{}` in it stands for the probe's name. `may_repair` tells that
    the page has a button for a repair: a file has none, nor has the page of a job with a repair. `repaired` is where
    such a page has the repaired model.
    """

    culprits: Mapping[int, CulpritLinks] = field(default_factory=dict)
    forms: tuple[Link, ...] = ()
    probes: str = ""
    each_probe: str = ""
    may_repair: bool = False
    repaired: str = ""

    def culprit(self, number: int) -> CulpritLinks:
        """The links of the culprit with this number, starting at 1."""
        return self.culprits.get(number, _NONE)

    def probe(self, name: str) -> str:
        """The link to one probe; empty if there is none."""
        return self.each_probe.format(name)


def culprit_dir_name(number: int, ops: Iterable[str]) -> str:
    """The folder of culprit `number`, starting at 1, below `culprits/`: `02-ReduceMean-BatchNormalization`."""
    return f"{number:02d}-{slug('-'.join(ops))}"


def path_below(path: Path) -> str | None:
    """The path as it was given, if it is one below the folder of the command; None for a bare name, and elsewhere."""
    below = not path.is_absolute() and ".." not in path.parts and len(path.parts) > 1
    return path.as_posix() if below else None


def op_name(domain: str, op_type: str) -> str:
    """`Gather`, or `com.example::Twirl` outside the default domain."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"
