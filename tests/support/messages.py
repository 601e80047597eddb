"""The catalogue of messages: `python -m support.messages` brings the .po file up to what code and templates say.

It keeps translations, drops messages that nothing says any more, and compiles the .mo file that is installed. A new
message stands there with an empty translation until somebody writes one.
"""

import ast
import io
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from onnxbisect.language import CHINESE, KEPT
from onnxbisect_backends import registry
from onnxbisect_backends.registry import LoadedBackend

ROOT = Path(__file__).parents[2]
FOLDERS = ("bisect", "backends", "library", "service", "worker", "api", "cli")
FILE = ROOT / "bisect" / "onnxbisect" / "locale" / CHINESE / "LC_MESSAGES" / "onnx-bisect.po"
#: Functions with a message for the reader, with one that a document keeps, and with a noun that is counted.
SAID, KEEPING, COUNTING = ("_", "marked"), ("english",), ("plural", "counted", "count")
_METHODS = {".j2": "jinja2.ext:babel_extract", ".js": "javascript"}
_KEYWORDS = dict.fromkeys((*SAID, *KEEPING)) | dict.fromkeys(COUNTING, (2,))
#: A message of the catalogue: its context, itself, and its plural.
Marked = tuple[str | None, str, str | None]


def messages() -> list[Marked]:
    """Every message that is marked, in the order of files, each once."""
    return list(dict.fromkeys([*(it for path in _sources() for it in _of_file(path)), *_of_backends()]))


def _of_backends() -> Iterator[Marked]:
    """What the backends of this project say of themselves and of their options."""
    for _, backend in sorted(registry.available().items()):
        if isinstance(backend, LoadedBackend):
            for text in (backend.summary, *(option.help for option in backend.options)):
                if text:
                    yield KEPT, text, None


def _sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                (path.suffix in (".py", *_METHODS) or path.name == "checks.toml")
                and "vendor" not in path.parts
                and not path.name.endswith(".min.js")
            ):
                yield path


def _of_file(path: Path) -> Iterator[Marked]:
    for function, message in _calls(path):
        if function in COUNTING:
            yield None, f"{{count}} {message}", f"{{count}} {message}s"
        else:
            yield (KEPT if function in KEEPING else None), message, None


def _calls(path: Path) -> Iterator[tuple[str, str]]:
    """The function and the message of each call with a literal."""
    if path.suffix == ".toml":
        for table in tomllib.loads(path.read_text()).values():
            yield from ((KEEPING[0], str(table[key])) for key in ("why", "fix") if key in table)
    elif path.suffix == ".py":
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _KEYWORDS:
                place = 1 if call.func.id in COUNTING else 0
                literal = call.args[place] if len(call.args) > place else None
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                    yield call.func.id, literal.value
    else:
        content = path.read_bytes()
        for function, places in _KEYWORDS.items():  # one extraction for each, to tell them apart
            options = {"extensions": "", "trim_blocks": "true", "lstrip_blocks": "true"}
            method = _METHODS[path.suffix]
            for found in extract(method, io.BytesIO(content), keywords={function: places}, options=options):
                if isinstance(found[1], str) and found[1]:
                    yield function, found[1]


def updated(po: Catalog) -> Catalog:
    """The catalogue with exactly the messages that are marked, and the translations that it had."""
    made = Catalog(
        locale=po.locale,
        domain="onnx-bisect",
        project="onnx-bisect",
        version="1",
        header_comment=po.header_comment,
        creation_date=datetime(2026, 1, 1, tzinfo=UTC),
        revision_date=datetime(2026, 1, 1, tzinfo=UTC),
        last_translator="",
        language_team="zh_CN",
        fuzzy=False,
    )
    for context, message, many in messages():
        key = message if many is None else (message, many)
        old = po.get(message, context)
        string: object = "" if many is None else ("",)
        if old is not None and (many is not None) == isinstance(old.id, tuple):
            string = old.string
        made.add(key, string, context=context)  # type: ignore[arg-type] # as read_po gives it
    return made


def read() -> Catalog:
    """The catalogue as it is."""
    with FILE.open("rb") as file:
        return read_po(file, locale=CHINESE)


def translation(message: Message) -> str:
    """The translation of a message, or of its count."""
    found = message.string
    return found if isinstance(found, str) else found[0] if found else ""


def compiled(po: Catalog) -> bytes:
    """What the .mo file is made of."""
    out = io.BytesIO()
    write_mo(out, po)
    return out.getvalue()


def written(po: Catalog) -> bytes:
    """The text of the .po file."""
    out = io.BytesIO()
    write_po(out, po, width=120, no_location=True)
    return out.getvalue()


if __name__ == "__main__":
    new = updated(read())
    FILE.write_bytes(written(new))
    FILE.with_suffix(".mo").write_bytes(compiled(new))
    empty = [it.id for it in new if it.id and not translation(it)]
    print(f"{len(new)} messages, {len(empty)} without a translation")
