"""What a page says to its reader."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

#: Elements that hold what models, compilers and programs say, and names of things in `b` and in choices.
_FOREIGN = frozenset({"code", "pre", "kbd", "style", "script", "svg", "option"})
_SPOKEN = ("aria-label", "title", "placeholder", "data-label", "data-waits")
#: Two words of English, as every sentence of ours has them; names of programs have capitals, dots, dashes.
_ENGLISH = re.compile(r"(?<![\w./=<-])[A-Za-z]?[a-z]{2,} [a-z]{2,}(?![\w./=-])")
_QUOTED = re.compile(r"'[^']*'")


class _Said(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._foreign = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts += [value for name, value in attrs if name in _SPOKEN and value]
        self._foreign += tag in _FOREIGN

    def handle_endtag(self, tag: str) -> None:
        self._foreign -= tag in _FOREIGN

    def handle_data(self, data: str) -> None:
        if not self._foreign:
            self.texts.append(data)


def english_left(html: str) -> Iterator[str]:
    """The texts of a page that are English sentences, apart from code."""
    page = _Said()
    page.feed(html)
    yield from (text.strip() for text in page.texts if _ENGLISH.search(_QUOTED.sub("", text)))
