"""The catalogue of messages: `python -m support.messages` brings the .po file up to what code and templates say.

It keeps translations, drops messages that nothing says any more, and compiles the .mo file that is installed. A new
message stands there with an empty translation until somebody writes one.
"""

import ast
import io
import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from string import ascii_lowercase

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from onnxbisect.language import CHINESE, KEPT
from onnxbisect.rewrites.families import RULES
from onnxbisect_backends import registry
from onnxbisect_backends.registry import LoadedBackend

ROOT = Path(__file__).parents[2]
FOLDERS = ("bisect", "backends", "library", "service", "worker", "api", "cli")
FILE = ROOT / "bisect" / "onnxbisect" / "locale" / CHINESE / "LC_MESSAGES" / "onnx-bisect.po"
#: Functions with a message for the reader, with one that a document keeps, and with a noun that is counted.
SAID, KEEPING, COUNTING = ("_", "marked"), ("english",), ("plural", "counted", "count")
#: What the user reads without a mark, and which argument it is: errors, progress, and why a rule does not apply.
FINISHED = dict.fromkeys(
    ("OptionError", "ModelError", "CutError", "ShortageError", "BackendUnusableError", "NotApplicable"), 0
) | {"tell": 0, "._tell": 0, "unproven": 0, "say": 0, "unknown": 0, ".demand": 1, ".known": 1}
#: Letters that an error has of its own, if it is more than another sentence.
_TELLING = 8
_METHODS = {".j2": "jinja2.ext:babel_extract", ".js": "javascript"}
_KEYWORDS = dict.fromkeys((*SAID, *KEEPING)) | dict.fromkeys(COUNTING, (2,))
#: A message of the catalogue: its context, itself, and its plural.
Marked = tuple[str | None, str, str | None]


def messages() -> list[Marked]:
    """Every message that is marked, in the order of files, each once."""
    return list(dict.fromkeys([*(it for path in _sources() for it in _of_file(path)), *_of_backends(), *_of_rules()]))


def _of_backends() -> Iterator[Marked]:
    """What the backends of this project say of themselves and of their options."""
    for _, backend in sorted(registry.available().items()):
        if isinstance(backend, LoadedBackend):
            for text in (backend.summary, *(option.help for option in backend.options)):
                if text:
                    yield KEPT, text, None


def _of_rules() -> Iterator[Marked]:
    """What the rewrite rules say of themselves."""
    for rule in RULES:
        domain = rule.domain.text if rule.domain else ""
        for text in (rule.summary, rule.bound.note, rule.bound.of if rule.bound.epsilons else "", domain):
            if re.search("[a-z]{2}", text):
                yield KEPT, text, None


def _sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                (path.suffix in (".py", *_METHODS) or path.name == "checks.toml" or path.parent.name == "compilers")
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
        read = tomllib.loads(path.read_text())
        for table in (read, *read.values()):
            if isinstance(table, dict):
                yield from ((KEEPING[0], str(table[key])) for key in ("why", "fix", "install") if key in table)
    elif path.suffix == ".py":
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _KEYWORDS:
                place = 1 if call.func.id in COUNTING else 0
                literal = call.args[place] if len(call.args) > place else None
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                    yield call.func.id, literal.value
            if isinstance(call, ast.Call) and (message := _finished(call)):
                yield KEEPING[0], message
    else:
        content = path.read_bytes()
        for function, places in _KEYWORDS.items():  # one extraction for each, to tell them apart
            options = {"extensions": "", "trim_blocks": "true", "lstrip_blocks": "true"}
            method = _METHODS[path.suffix]
            for found in extract(method, io.BytesIO(content), keywords={function: places}, options=options):
                if isinstance(found[1], str) and found[1]:
                    yield function, found[1]


def _finished(call: ast.Call) -> str:
    """The message of a call of `FINISHED`; empty for other calls."""
    name = (
        call.func.id
        if isinstance(call.func, ast.Name)
        else f".{call.func.attr}"
        if isinstance(call.func, ast.Attribute)
        else ""
    )
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if "sentence" in given and name.removeprefix(".") in ("Note", "RemediedFile"):
        return template(given["sentence"])
    place = FINISHED.get(name, len(call.args))
    return template(call.args[place]) if place < len(call.args) else ""


def template(text: ast.expr) -> str:
    """The message of a literal or an f-string, in which each value has a name; empty for another expression.

    A value that is no plain name, or that another one follows at once, has a letter.
    """
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return text.value
    if not isinstance(text, ast.JoinedStr):
        return ""
    parts: list[str] = []
    for filled, group in groupby(text.values, lambda it: isinstance(it, ast.FormattedValue)):
        values = list(group)
        if filled:
            only = values[0].value if len(values) == 1 and isinstance(values[0], ast.FormattedValue) else None
            plain = isinstance(only, ast.Name) and only.id.islower() and not only.id.startswith("_")
            parts.append(
                f"{{{only.id if plain and isinstance(only, ast.Name) else f'{ascii_lowercase[len(parts)]}_'}}}"
            )
        else:
            parts += [str(it.value) for it in values if isinstance(it, ast.Constant)]
    said = "".join(part for part in parts if not part.startswith("{"))
    return "".join(parts) if sum(map(str.isalpha, said)) >= _TELLING else ""


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
