"""Translates finished English sentences, which documents keep: each is one of the catalogue's messages, filled in.

The words that fill a message come from models, compilers and users, and stay as they are; but where its placeholder is
one of `OURS`, or holds a count such as `3 units`, they are a sentence of this program themselves.
"""

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from operator import ne

from onnxbisect.language import BETWEEN, ENGLISH, KEPT, catalogue, current, translate

#: Placeholders that hold text which this program wrote.
OURS = frozenset(
    {
        "sentence",
        "why",
        "what",
        "change",
        "phrase",
        "units",
        "calls",
        "rest",
        "seen",
        "reason",
        "noun",
        "them",
        "subject",
    }
)
#: Placeholders that hold several of them, and what joins these.
LISTS = {"phrases": " and ", "bound": " or ", "counts": ", ", "clauses": BETWEEN}
#: Ends the names that values of an f-string get: they may be our text, and may be empty.
_LETTER = "_"
_NAME = re.compile(r"\{([a-z_]+)\}")
_COUNT = re.compile(r"(\d[\d,]*) ([A-Za-z][a-z -]*)")
_SENTENCE_END = re.compile(r"(?<=\.) ")
_DEPTH = 6
#: Characters by which messages are found that begin with so many of their own.
_HEAD = 3
#: A message with fewer letters of its own, such as `{name} of {bound}`, fits too much to be looked for in any sentence.
_TELLING = 8


@dataclass(frozen=True)
class Template:
    """A message with placeholders: the texts before, between and behind its `names`, and its translation."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    translation: str

    @cached_property
    def telling(self) -> bool:
        """Whether it has enough letters of its own, or begins with enough, to be looked for in any sentence."""
        letters = [sum(map(str.isalpha, text)) for text in self.texts]
        return sum(letters) >= _TELLING or letters[0] >= _TELLING // 2

    def match(self, sentence: str) -> dict[str, str] | None:
        """What stands in the places of the names; None if the sentence is not made from this message."""
        first, *middle, last = self.texts
        if len(sentence) < sum(map(len, self.texts)) or not (sentence.startswith(first) and sentence.endswith(last)):
            return None
        values, at, end = [], len(first), len(sentence) - len(last)
        for text in middle:
            found = sentence.find(text, at, end)
            if found < 0:
                return None
            values.append(sentence[at:found])
            at = found + len(text)
        values.append(sentence[at:end])
        by_name: dict[str, str] = {}
        for name, value in zip(self.names, values, strict=True):
            if (not value and not name.endswith(_LETTER)) or by_name.setdefault(name, value) != value:
                return None
        return by_name


def translated(text: str) -> str:
    """What `language.english` made, of one sentence or several, in the reader's language; other text stays as it is."""
    language = current()
    if language == ENGLISH or not text:
        return text
    return _told(text, language, phrase=False)


def phrase(text: str) -> str:
    """The same of a phrase that is certainly ours, such as what a cause says: it may have few words."""
    language = current()
    return text if language == ENGLISH or not text else _told(text, language, phrase=True)


def clauses(text: str) -> str:
    """The same of several that stand behind each other with `BETWEEN`, such as the changes of a file."""
    language = current()
    return text if language == ENGLISH or not text else _value("clauses", text, language, _DEPTH)


def joined(sentences: Iterable[str]) -> str:
    """Sentences behind each other; Chinese has no space behind a full stop."""
    return " ".join(sentences).replace("。 ", "。")


def _told(text: str, language: str, *, phrase: bool) -> str:
    """One sentence or several. Those of which each is ours are translated one by one: a message whose placeholder comes
    first would take the sentences before it for what fills it.
    """
    several = _SENTENCE_END.split(text)
    if phrase and len(several) == 1:
        return _translated(text, language, _DEPTH, phrase=True)
    each = [_sentence(it, language, phrase=phrase) for it in several]
    if len(several) == 1 or (text not in _templates(language)[0] and all(map(ne, several, each))):
        return joined(each)
    whole = _translated(text, language, _DEPTH, phrase=phrase)
    return joined(each) if whole == text else whole


def _sentence(text: str, language: str, *, phrase: bool) -> str:
    """One sentence with its full stop, or a phrase whose full stop is none of its own."""
    bare = text.removesuffix(".")
    shown = text if phrase else _translated(text, language, _DEPTH, phrase=False)
    if shown != text:
        return shown
    shown = _translated(bare, language, _DEPTH, phrase=phrase)
    if shown == bare:
        return text
    return shown if bare == text else translate("{sentence}.").format(sentence=shown)


def _translated(sentence: str, language: str, depth: int, *, phrase: bool) -> str:
    whole, templates = _templates(language)
    if sentence in whole:
        return whole[sentence]
    if found := _count(sentence, language):
        return found
    likely = heapq.merge(templates.get(sentence[:_HEAD], ()), templates.get("", ())) if depth else ()
    for _rank, template in likely:
        if not (phrase or template.telling):
            break
        values = template.match(sentence)
        if values is not None:
            shown = {name: _value(name, value, language, depth - 1) for name, value in values.items()}
            return template.translation.format(**shown)
    return sentence


def _value(name: str, value: str, language: str, depth: int) -> str:
    if name in LISTS:
        whole = _translated(value, language, depth, phrase=True) if name == "bound" else value
        if whole != value:
            return whole
        joint = LISTS[name]
        return _translated(joint, language, 0, phrase=True).join(
            _translated(it, language, depth, phrase=True) for it in value.split(joint)
        )
    ours = name in OURS or name.endswith(_LETTER)
    return _translated(value, language, depth, phrase=True) if ours else _count(value, language) or value


def _count(text: str, language: str) -> str:
    """The translation of `3 units`; empty for another text."""
    found = _COUNT.fullmatch(text)
    if found is None:
        return ""
    number, noun = found.groups()
    one = f"{{count}} {noun.removesuffix('s') if number != '1' else noun}"
    shown = catalogue(language).ngettext(one, "", 2)
    return shown.format(count=number) if shown else ""


@cache
def _templates(language: str) -> tuple[dict[str, str], dict[str, list[tuple[int, Template]]]]:
    """The messages without placeholders, and the others by how they begin, those with the most text of their own first.

    Those that begin with less than `_HEAD` characters are at "".
    """
    whole: dict[str, str] = {}
    templates = []
    for key, text in catalogue(language)._catalog.items():  # type: ignore[attr-defined] # gettext lists it nowhere else
        context, _sep, message = key.rpartition("\x04") if isinstance(key, str) else ("", "", "")
        if context != KEPT:
            continue
        names = tuple(_NAME.findall(message))
        if names:
            templates.append(Template(tuple(_NAME.split(message)[::2]), names, text))
        else:
            whole[message] = text
    templates.sort(key=lambda it: (not it.telling, -sum(map(len, it.texts))))
    by_head: dict[str, list[tuple[int, Template]]] = {}
    for rank, template in enumerate(templates):
        first = template.texts[0]
        by_head.setdefault(first[:_HEAD] if len(first) >= _HEAD else "", []).append((rank, template))
    return whole, by_head
