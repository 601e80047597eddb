"""Every page, light and dark, wide and narrow: axe finds nothing serious, and nothing is wider than the window."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from support.site.browser import Installation, log_in
from support.site.every_page import NO_PAGES, NOT_THERE, addresses, all_addresses, routes
from support.site.scenery import Scene

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
def page(chromium: Browser, installation: Installation, dark: bool, width: int) -> Iterator[Page]:
    """Logged in. axe is a script of ours here only, so the policy is not in force; the other tests are under it."""
    context = chromium.new_context(
        base_url=installation.url,
        color_scheme="dark" if dark else "light",
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


def _axe(page: Page) -> list[Any]:
    page.evaluate(AXE)
    violations: list[Any] = page.evaluate(_RUN)
    return violations


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 375)])
def test_every_page_can_be_used_by_everybody(page: Page, scene: Scene) -> None:
    found = {address: list(faults(page, address)) for address in all_addresses(scene)}
    assert not {address: those for address, those in found.items() if those}


@pytest.mark.parametrize(("dark", "width"), [(False, 1280)])
def test_what_is_wrong_would_be_found(page: Page) -> None:
    page.goto("/login")
    page.evaluate("document.querySelector('label').remove()")
    page.evaluate("document.querySelector('h1').style.width = '2000px'")
    assert "label" in str(_axe(page))
    assert "<h1" in page.evaluate(_WIDEST)


@pytest.mark.long
def test_no_page_is_left_out(scene: Scene) -> None:
    assert routes() == addresses(scene).keys() | NO_PAGES.keys()
