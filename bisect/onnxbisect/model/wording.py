"""Wording of notes: shorten lists of names and messages of onnxruntime."""

import re
from collections.abc import Sequence

from onnxbisect.fingerprint import without_source
from onnxbisect.language import shortened

#: What onnxruntime puts before its messages.
_CODES = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:This is an invalid model\. |Fatal error: )?")
_SHOWN = 3
_LINE = 240
_NAME = 80


def some(names: Sequence[str]) -> str:
    """The first few names, quoted, and how many more there are."""
    return shortened([repr(name) for name in names], _SHOWN)


def quoted(name: object) -> str:
    """An untrusted name from a file: quoted, escaped, and shortened where it is long."""
    text = repr(name)
    return text if len(text) <= _NAME else f"{text[: _NAME - 3]}...{text[0]}"


def brief(words: str) -> str:
    """The first line of a message, without onnxruntime's leading codes and sources and without the final full stop.

    The middle of a long one is left out: onnxruntime says where at the beginning, and why at the end.
    """
    line = next((line for line in words.splitlines() if line.strip()), "")
    text = without_source(_CODES.sub("", line.strip())).strip().rstrip(".")
    return text if len(text) <= _LINE else f"{text[: _LINE // 3]} ... {text[5 - _LINE + _LINE // 3 :]}"
