"""`--backend` and `--option` with several compilers: assigns options and labels to targets."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect.report.text import slug
from onnxbisect_cli.arguments import key_values

#: Labels are names of folders and precede the first dot in `--option LABEL.KEY=VALUE`.
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_LABELLED = re.compile(rf"({_LABEL.pattern})=(.+)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One target: its label, its backend (a name or a TOML file), and its options."""

    label: str
    backend: str
    options: dict[str, str]


def chosen(backends: Sequence[str], options: Sequence[str]) -> list[Chosen]:
    """The targets in order. A backend is `NAME`, `FILE.toml` or `LABEL=` one of these.

    With one target, `KEY=VALUE` is its option; with several, `LABEL.KEY=VALUE` names the target. Raises OptionError.
    """
    named = [_named(text) for text in backends]
    labels = [label for label, _ in named]
    for number, label in enumerate(labels):
        if label.casefold() in map(str.casefold, labels[:number]):
            raise OptionError(
                f"Two targets are called '{label}'; give them names of their own, as in "
                f"--backend {label}-1={named[number][1]}."
            )
    if len(named) == 1:
        return [Chosen(label=labels[0], backend=named[0][1], options=key_values(options, "--option"))]
    own: dict[str, list[str]] = {label: [] for label in labels}
    for pair in options:
        label, dot, rest = pair.partition(".")
        if not dot or label not in own:
            raise OptionError(
                f"--option {pair!r} does not say which target it is for; with several it begins with a target's name, "
                f"as in --option {labels[0]}.KEY=VALUE (here: {', '.join(labels)})."
            )
        own[label].append(rest)
    return [
        Chosen(label=label, backend=backend, options=key_values(own[label], f"--option {label}."))
        for label, backend in named
    ]


def _named(text: str) -> tuple[str, str]:
    if match := _LABELLED.fullmatch(text):
        return match[1], match[2]
    name = Path(text).stem if text.endswith(".toml") else text
    return (name if _LABEL.fullmatch(name) else slug(name)), text
