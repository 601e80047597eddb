"""Wording of notes: shorten lists of names and messages of onnxruntime."""

from collections.abc import Sequence

from onnxbisect.fingerprint import without_source

_SHOWN = 3
_LINE = 160
_NAME = 80


def some(names: Sequence[str]) -> str:
    """The first few names, quoted, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def quoted(name: object) -> str:
    """An untrusted name from a file: quoted, escaped, and shortened where it is long."""
    text = repr(name)
    return text if len(text) <= _NAME else f"{text[: _NAME - 3]}...{text[0]}"


def brief(words: str) -> str:
    """The first line of a message, without onnxruntime's leading codes and source, and without the final full stop."""
    line = next((line for line in words.splitlines() if line.strip()), "")
    text = without_source(line.rsplit(" : ", 1)[-1].strip()).rstrip(".")
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."
