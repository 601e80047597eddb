"""What files a command line depends on: they are part of the key under which its verdicts are kept."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

#: Larger files are told apart by size and time of change instead of by content.
_READ_UP_TO = 1 << 20

#: Options whose value is written, not read, and endings of files that are: their content must not change the key.
_WRITES = re.compile(
    r"^--?(?:\w+[-_])*(?:o|out|output|log|logs|logfile|log[-_]file|trace|report|dump|save|record)$", re.IGNORECASE
)
_WRITTEN = re.compile(r"\.(?:log|jsonl|out|tmp)$", re.IGNORECASE)


def files_named(argv: Sequence[str], cwd: Path) -> dict[str, str]:
    """The existing files that a command line names, each with the SHA-256 of its content, cut to 16 digits.

    Values of `--option=file` count too. Left out: files after an option that says it writes (`--log`, `-o`, …) and
    files that end like a log, because a file that grows with every call would make every verdict unknown again.
    """
    found: dict[str, str] = {}
    before = ""
    for element in argv:
        option, equals, value = element.partition("=")
        option, name = (option, value) if equals and option.startswith("-") else (before, element)
        before = element
        if name.startswith("-") or _WRITES.match(option) or _WRITTEN.search(name):
            continue
        if digest := _digest(cwd / name):
            found[name] = digest
    return found


def short_hash(text: str) -> str:
    """Twelve digits that stand for a text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def _digest(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        state = path.stat()
        if state.st_size > _READ_UP_TO:
            return short_hash(f"{state.st_size} {state.st_mtime_ns}")
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except (OSError, ValueError):
        return ""
