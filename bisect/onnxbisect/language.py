"""The reader's language: English as it stands in the code, others from the catalogue in `locale`.

Documents, logs and the forms that machines read are English. Whoever shows something to a reader renders it `within`
the reader's language, so that what is outside of such a block can never become another language. It is a context
variable, since a sentence is made far below the one place that knows who reads it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from gettext import NullTranslations

P = ParamSpec("P")
T = TypeVar("T")

ENGLISH = "en"
CHINESE = "zh_CN"
#: Every language by what it calls itself.
LANGUAGES: Mapping[str, str] = {ENGLISH: "English", CHINESE: "中文"}
#: The context of sentences in the catalogue that documents keep in English.
KEPT = "kept"
#: Most characters of a quoted name.
_LONGEST_NAME = 80

_language: ContextVar[str] = ContextVar("language", default=ENGLISH)


@contextmanager
def within(language: str) -> Iterator[None]:
    """What is rendered inside of the block is in `language`."""
    before = _language.set(language)
    try:
        yield
    finally:
        _language.reset(before)


def current() -> str:
    """The language of this block."""
    return _language.get()


def _(message: str, /, **values: object) -> str:
    """`message` in the reader's language, with `values` in place of its `{names}`."""
    found = translate(message)
    return found.format(**values) if values else found


def translate(message: str) -> str:
    """`message` in the reader's language, with its `{names}`."""
    language = _language.get()
    return message if language == ENGLISH else catalogue(language).gettext(message)


def in_english(function: Callable[P, T]) -> Callable[P, T]:
    """For what programs read: the function runs in English, whoever asks for it."""

    @wraps(function)
    def english_only(*arguments: P.args, **named: P.kwargs) -> T:
        with within(ENGLISH):
            return function(*arguments, **named)

    return english_only


def marked(message: str) -> str:
    """`message` as it is, for constants: `_` translates it where it is shown."""
    return message


def english(message: str, /, **values: object) -> str:
    """A sentence that a document keeps, in English; `finished.translated` finds it in the catalogue when it is read."""
    return message.format(**values) if values else message


#: What stands between the clauses of a sentence that a document keeps; none of them has it.
BETWEEN = english("; ")


def counted(count: int, noun: str) -> str:
    """`1 unit`, `2 units`."""
    one, many = f"{{count}} {noun}", f"{{count}} {noun}s"
    language = _language.get()
    if language == ENGLISH:
        return (one if count == 1 else many).format(count=count)
    return catalogue(language).ngettext(one, many, count).format(count=count)


def count(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`, in English, for sentences that a document keeps."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shortened(items: Sequence[str], most: int = 4, separator: str = ", ") -> str:
    """The first few items, and how many more there are, for sentences that a document keeps."""
    shown = separator.join(items[:most])
    return shown if len(items) <= most else english("{shown} and {more} more", shown=shown, more=len(items) - most)


def nearest(name: str, names: Iterable[str]) -> str:
    """The most similar of these names; empty if none is alike."""
    from difflib import get_close_matches  # mostly, nobody mistypes

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=0.5)), "")


def did_you_mean(name: str, names: Iterable[str], otherwise: str = ".") -> str:
    """The end of a sentence about an unknown name: the most similar known one, or `otherwise`."""
    near = nearest(name, names)
    return english("; did you mean {near}?", near=repr(near)) if near else otherwise


def named(text: str) -> str:
    """The language that somebody typed, as `zh`, `zh-CN` or `zh_CN.UTF-8`; empty where it is none of ours."""
    main = text.replace("-", "_").partition(".")[0].partition("_")[0].lower()
    return {"en": ENGLISH, "zh": CHINESE, "c": ENGLISH, "posix": ENGLISH}.get(main, "")


def of_environment(environment: Mapping[str, str] = os.environ) -> str:
    """The language of `LC_ALL`, `LC_MESSAGES` or `LANG`, the first that is set; English where it is none of ours."""
    told = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := environment.get(name))), "")
    return named(told) or ENGLISH


@cache
def catalogue(language: str) -> "NullTranslations":
    """The messages of a language."""
    from gettext import GNUTranslations  # English needs none

    file = Path(__file__).parent / "locale" / language / "LC_MESSAGES" / "onnx-bisect.mo"
    with file.open("rb") as opened:
        return GNUTranslations(opened)


def some(names: Sequence[str]) -> str:
    """The first few names, quoted, and how many more there are."""
    return shortened([repr(name) for name in names], 3)


def quoted(name: object) -> str:
    """An untrusted name from a file: quoted, escaped, and shortened where it is long."""
    text = repr(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 3]}...{text[0]}"
