"""Every page, light and dark, wide and narrow, in both languages: axe finds nothing serious, and nothing is wider than
the window. What a page says in Chinese is wholly Chinese.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from support.site import hostile
from support.site.browser import Installation, log_in
from support.site.every_page import NO_PAGES, NOT_THERE, addresses, all_addresses, routes
from support.site.scenery import Scene
from support.site.text import english_left

#: What compilers and their backends say stays as they say it.
_THEIRS = re.compile(
    r"a simulation of|whitelist backend|`SIMULATED_VERSION`|unsupported ops|Killed by|is not installed; run|on PATH|"
    r"does not tell its version"
)
AXE = (Path(__file__).parent / "vendor" / "axe-4.14.1.min.js").read_text()
#: Only what axe calls serious or critical; its best practices are a matter of taste.
_RUN = """() => axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
    .filter(each => each.impact === 'serious' || each.impact === 'critical')
    .map(each => [each.id, each.help, ...each.nodes.slice(0, 3).map(node => node.html.slice(0, 300))].join(' | ')))"""
_WIDEST = """() => {
    const width = document.scrollingElement.clientWidth;
    if (document.scrollingElement.scrollWidth <= width) return '';
    const beyond = [...document.querySelectorAll('main *, header *')]
        .filter(each => each.getBoundingClientRect().right > width + 1);
    return beyond.slice(0, 3).map(each => each.outerHTML.slice(0, 200)).join(' | ') || 'something';
}"""


@pytest.fixture
def page(chromium: Browser, installation: Installation, dark: bool, width: int, language: str) -> Iterator[Page]:
    """Logged in. axe is a script of ours here only, so the policy is not in force; the other tests are under it."""
    context = chromium.new_context(
        base_url=installation.url,
        color_scheme="dark" if dark else "light",
        locale=language,
        viewport={"width": width, "height": 900},
        bypass_csp=True,
        reduced_motion="reduce",
    )
    log_in(context, installation.url, installation.token)
    yield context.new_page()
    context.close()


def faults(page: Page, address: str) -> Iterator[str]:
    answer = page.goto(address)
    assert answer is not None
    if answer.status != (404 if address == NOT_THERE else 200):
        yield f"the status is {answer.status}"
    yield from _axe(page)
    if wide := page.evaluate(_WIDEST):
        yield f"wider than the window: {wide}"
    if (count := page.locator("h1").count()) != 1:
        yield f"{count} h1"
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(each => +each.localName[1])")
    yield from (f"an h{level} follows an h{before}" for before, level in pairwise(levels) if level > before + 1)
    if not page.title().endswith(" · onnx-bisect"):
        yield f"the title is {page.title()!r}"
    if page.locator("html").get_attribute("lang") == "zh-CN":
        yield from (f"not translated: {text}" for text in _chinese_but(page.content()))


def _chinese_but(content: str) -> Iterator[str]:
    return (text for text in english_left(content) if hostile.LINE[:20] not in text and not _THEIRS.search(text))


def _axe(page: Page) -> list[Any]:
    page.evaluate(AXE)
    violations: list[Any] = page.evaluate(_RUN)
    return violations


@pytest.mark.parametrize(("dark", "width", "language"), [(False, 1280, "zh-CN"), (True, 375, "en")])
def test_every_page_can_be_used_by_everybody(page: Page, scene: Scene, language: str) -> None:
    found = [f"{address}: {fault}" for address in all_addresses(scene) for fault in faults(page, address)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("dark", "width", "language"), [(False, 1280, "zh-CN")])
def test_what_is_wrong_would_be_found(page: Page) -> None:
    page.goto("/login")
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert not list(english_left(page.content()))
    assert list(english_left("<p>not translated</p>"))
    page.evaluate("document.querySelector('label').remove()")
    page.evaluate("document.querySelector('h1').style.width = '2000px'")
    assert "label" in str(_axe(page))
    assert "<h1" in page.evaluate(_WIDEST)


@pytest.mark.long
def test_no_page_is_left_out(scene: Scene) -> None:
    assert routes() == addresses(scene).keys() | NO_PAGES.keys()
