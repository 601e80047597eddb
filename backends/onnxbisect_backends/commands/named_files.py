"""The files that a command line depends on; they are part of the key under which its verdicts are kept."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

#: Larger files are identified by size and modification time instead of content.
_READ_UP_TO = 1 << 20
#: Options whose value is an output file, and endings of such files, whose content must not change the key.
_WRITES = re.compile(
    r"^--?(?:\w+[-_])*(?:o|out|output|log|logs|logfile|log[-_]file|trace|report|dump|save|record)$", re.IGNORECASE
)
_WRITTEN = re.compile(r"\.(?:log|jsonl|out|tmp)$", re.IGNORECASE)


def files_named(argv: Sequence[str], cwd: Path) -> dict[str, str]:
    """The existing files that a command line names, each with its SHA-256 cut to 16 digits.

    Values of `--option=file` count too. Files after an option that writes (`--log`, `-o`, …) and log files are left
    out, because a file that changes with every call would invalidate every verdict.
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
    """A hash of a text, in twelve digits."""
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
