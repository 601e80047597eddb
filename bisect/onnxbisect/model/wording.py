"""How notes name many things without growing long, and quote what onnxruntime says."""

from collections.abc import Sequence

_SHOWN = 3
_LINE = 160
_NAME = 80


def some(names: Sequence[str]) -> str:
    """The first few names, quoted, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def quoted(name: object) -> str:
    """A name of a file that nobody vouches for: quoted, escaped, and cut where it is long."""
    text = repr(name)
    return text if len(text) <= _NAME else f"{text[: _NAME - 3]}...{text[0]}"


def brief(words: str) -> str:
    """The first line of a message, without the codes that onnxruntime puts before it and the full stop behind it."""
    line = next((line for line in words.splitlines() if line.strip()), "")
    text = line.rsplit(" : ", 1)[-1].strip().rstrip(".")
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."
