"""A model, a compiler, a receiver and labels that attack whoever shows them: every page and every export shows text."""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt
from playwright.sync_api import Page

from onnx_bisect import report_schema
from support.site import hostile
from support.site.browser import Installation, Look
from support.site.every_page import NOT_THERE, all_addresses
from support.site.scenery import Scene

#: What moves cursors, reverses lines or hides, and no page or export may hold as it is.
ACTIVE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]"
)
#: What of a page may have come from a name: all but our own elements, attributes and addresses.
_FOREIGN = """() => {
    const found = [];
    const places = [location.origin, 'https://netron.app'];
    for (const each of document.querySelectorAll('*')) {
        const name = each.localName;
        const ours = name !== 'script' || (each.src.startsWith(location.origin) && !each.textContent);
        if (['img', 'iframe', 'object', 'embed', 'base', 'style', 'b-', 'x'].includes(name) || !ours)
            found.push(each.outerHTML.slice(0, 200));
        for (const attribute of each.attributes) {
            const address = ['href', 'src', 'action', 'xlink:href'].includes(attribute.name);
            const far = address && !places.includes(new URL(attribute.value, location).origin);
            if (far || /^on/.test(attribute.name))
                found.push(`${name} ${attribute.name}=${attribute.value}`.slice(0, 200));
        }
    }
    return found;
}"""
_TEXTS = """() => {
    const found = [document.documentElement.textContent, ...(window.painted || [])];
    for (const each of document.querySelectorAll('*'))
        for (const attribute of each.attributes) found.push(attribute.value);
    return found.join('\\n');
}"""
#: Keeps what is painted on a canvas, where no document shows it.
_PAINTED = """() => {
    const paint = CanvasRenderingContext2D.prototype.fillText;
    window.painted = [];
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        window.painted.push(text);
        return paint.call(this, text, ...rest);
    };
}"""


@pytest.fixture
def client(installation: Installation) -> Iterator[httpx2.Client]:
    with installation.client() as found:
        yield found


def opened(page: Page, address: str) -> str:
    """All that the page says. A dialog fails the test, and so does, in `look`, whatever the console hears."""
    page.on("dialog", lambda dialog: pytest.fail(f"{address} asks {dialog.message!r}"))
    page.add_init_script(f"({_PAINTED})()")
    page.goto(address)
    for details in page.locator("details:not([open]) > summary").all():
        if details.is_visible():
            details.click()
    assert page.evaluate(_FOREIGN) == [], address
    text: str = page.evaluate(_TEXTS)
    assert not ACTIVE.search(text), (address, ACTIVE.search(text))
    return text


def test_every_page_shows_names_as_text(look: Look, scene: Scene) -> None:
    page = look("/login")
    said = {address: opened(page, address) for address in all_addresses(scene) if address != NOT_THERE}
    report = said[f"/jobs/{scene.hostile}?target=1"]
    for name in ("</script><script>alert(1)</script>", r"\x1b[31mred\x07\x00", "&lt;b&gt;&amp;", "n" * 40):
        assert name in report
    assert "<img src=x onerror=alert('log')></pre></script>" in report
    assert "{{7*7}}" in report
    shown = r"<img src=x onerror=alert(1)>\u202egnp"
    for address in (
        "/jobs",
        f"/jobs/{scene.hostile}",
        f"/jobs/{scene.failed}",
        "/tokens",
        f"/webhooks/{scene.webhook}",
    ):
        assert shown in said[address], address
    assert "onerror=alert('summary')" in said["/backends"]
    assert "onerror=alert('log')" in said[f"/jobs/{scene.hostile}/probes/{scene.hostile_probe}"]


def report(client: httpx2.Client, scene: Scene, form: str, target: int | None = 1) -> httpx2.Response:
    wanted = {"format": form} | ({} if target is None else {"target": target})
    answer = client.get(f"/v1/jobs/{scene.hostile}/report", params=wanted)
    assert answer.status_code == 200, answer.text
    assert not answer.headers["content-type"].startswith("text/html") or "sandbox" in str(answer.headers)
    return answer


def test_exports_in_json_keep_names_and_fit_their_schemas(client: httpx2.Client, scene: Scene) -> None:
    found = report(client, scene, "json").json()
    jsonschema.validate(found, report_schema())
    [culprit] = found["culprits"]
    assert culprit["occurrences"][0] == [hostile.NAMES[1]]
    for form in ("sarif", "gitlab"):
        text = report(client, scene, form).text
        assert not ACTIVE.search(json.dumps(json.loads(text), ensure_ascii=False)), form


def test_files_for_model_explorer_have_the_same_names_and_hide_nothing(client: httpx2.Client, scene: Scene) -> None:
    graph, verdicts = (
        client.get(f"/v1/jobs/{scene.hostile}/model-explorer/{name}.json?target=1").json()
        for name in ("graph", "verdicts")
    )
    assert not ACTIVE.search(json.dumps([graph, verdicts], ensure_ascii=False))
    [drawn] = graph
    [[named, overlay]] = verdicts.items()
    assert named == drawn["id"]
    assert overlay["results"].keys() <= {node["id"] for node in drawn["nodes"]}


def test_the_graph_over_rest_hides_nothing(client: httpx2.Client, scene: Scene) -> None:
    for part in ("", "/1"):
        answer = client.get(f"/v1/jobs/{scene.hostile}/graph{part}?target=1")
        assert not ACTIVE.search(json.dumps(answer.json(), ensure_ascii=False))
        assert answer.headers["content-type"] == "application/json"


def test_markdown_holds_no_html_and_no_link_of_a_name(client: httpx2.Client, scene: Scene) -> None:
    for target in (1, 2, None):
        text = report(client, scene, "md", target).text
        assert not ACTIVE.search(text)
        tokens = list(_flat(MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)))
        assert not [token.content for token in tokens if token.type.startswith("html")]
        links = [str(token.attrs["href"]) for token in tokens if "href" in token.attrs]
        assert not [link for link in links if not re.match(r"(#|report\?)", link)]
        assert "<img src=x onerror=alert(1)>" in "".join(token.content for token in tokens)


def _flat(tokens: Any) -> Iterator[Any]:
    for token in tokens:
        yield token
        yield from _flat(token.children or ())


def test_junit_is_xml_with_names_as_text(client: httpx2.Client, scene: Scene) -> None:
    text = report(client, scene, "junit").text
    assert not ACTIVE.search(text)
    suites = JUnitXml.fromstring(text.encode())
    assert "</script><script>alert(1)</script>" in ElementTree.tostring(
        suites._elem, encoding="unicode", method="text"
    ) + str([case.name for suite in suites for case in suite])


def test_html_that_is_downloaded_does_nothing_either(
    look: Look, client: httpx2.Client, scene: Scene, tmp_path: Path
) -> None:
    page = look("/login")
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    for target in (1, 2, None):
        text = report(client, scene, "html", target).text
        assert not ACTIVE.search(text)
        path = tmp_path / "report.html"
        path.write_text(text)
        page.goto(path.as_uri())
        tags = set(page.evaluate("[...document.querySelectorAll('*')].map(each => each.localName)"))
        assert not tags & {"img", "script", "iframe", "object", "embed", "base", "link", "form"}
        attributes = page.evaluate("[...document.querySelectorAll('*')].flatMap(each => each.getAttributeNames())")
        assert not [name for name in attributes if name.startswith("on")]


def test_a_badge_is_a_picture_of_text(client: httpx2.Client, scene: Scene) -> None:
    place = client.get("/v1/badge", params={"label": f"repo:{hostile.LINE}"}).json()["url"]
    answer = client.get(place)
    assert answer.status_code == 200
    assert not ACTIVE.search(answer.text)
    names = {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(answer.text).iter()}  # noqa: S314 - ours
    assert not names & {"script", "image", "foreignObject", "a"}


def test_logs_are_plain_text(client: httpx2.Client, scene: Scene) -> None:
    for path in (f"probes/{scene.hostile_probe}/log", "culprits/1/compiler.log?target=1"):
        answer = client.get(f"/v1/jobs/{scene.hostile}/{path}")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "onerror=alert('log')" in answer.text
    # the file is the compiler's, byte by byte; a log is for reading
    log = client.get(f"/v1/jobs/{scene.hostile}/probes/{scene.hostile_probe}/log").text
    assert not ACTIVE.search(log.replace("\ufffe", "")), "XML alone forbids that one"
