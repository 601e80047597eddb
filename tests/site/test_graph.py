"""The graph on the page of a job, in real Chromium: what is drawn is where it is clicked, and keys lead along it."""

import pytest
from playwright.sync_api import Locator, Page, expect

from support.api.callers import Callers
from support.site.browser import Installation, Look, drawn
from support.site.scenery import NET, REFUSED, ended, submit

_AT_REST = "() => new Promise(done => setTimeout(() => requestAnimationFrame(done), 300))"


@pytest.fixture(scope="module")
def job(installation: Installation) -> str:
    """Its culprits are Sin, Cos and Abs, in 44 units."""
    with installation.client() as client:
        made = submit(client, NET, ("whitelist", REFUSED))
        ended(client, made)
        return made


def graph(page: Page) -> Locator:
    """The canvas, drawn and in view."""
    canvas = page.locator(".graph-canvas")
    canvas.scroll_into_view_if_needed()
    drawn(page)
    page.evaluate(_AT_REST)
    return canvas


def colours(canvas: Locator) -> set[str]:
    """Every colour of the picture that more than a few pixels have, as `r,g,b`."""
    found: list[str] = canvas.evaluate(
        """canvas => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const count = {};
            for (let i = 0; i < data.length; i += 4) {
                const colour = data.slice(i, i + 3).join();
                if (data[i + 3] === 255) count[colour] = (count[colour] ?? 0) + 1;
            }
            return Object.keys(count).filter(colour => count[colour] > 100);
        }"""
    )
    return set(found)


def test_it_begins_at_the_culprit_that_the_address_names_and_tells_of_it(look: Look, job: str) -> None:
    page = look(f"/jobs/{job}?culprit=2")
    canvas = graph(page)
    panel = page.locator(".graph-panel")
    ops = page.locator("article.culprit").nth(1).locator("code.op").all_inner_texts()
    expect(panel.get_by_role("heading", level=3)).to_have_text(ops[0])
    expect(panel).to_contain_text("culprit 2: the compiler refuses it")
    expect(panel).to_contain_text("float[")
    bad = "200,38,27"  # --bad in report.css
    assert bad in colours(canvas), "its border has the colour of culprits"
    page.locator("article.culprit").first.get_by_role("link", name="Show in graph").click()
    expect(panel).to_contain_text("culprit 1: the compiler refuses it")
    assert "culprit=1" in page.url


def test_its_data_is_asked_for_once_and_with_the_page_where_the_page_knows_what_is_wanted(look: Look, job: str) -> None:
    asked = """performance.getEntriesByType("resource").filter(({ name }) => /(states|graph)[?]/.test(name))
        .map(({ name, initiatorType }) => `${name.split(/[/?]/).at(-2)} by ${initiatorType}`).sort()"""
    page = look(f"/jobs/{job}")
    graph(page)
    assert page.evaluate(asked) == ["graph by link", "states by link"]
    page = look(f"/jobs/{job}?culprit=2")
    graph(page)
    assert page.evaluate(asked) == ["graph by fetch", "states by link"]
    assert look(f"/jobs/{job}", scripts=False).evaluate(asked) == []


def test_a_click_selects_the_node_that_is_there_and_its_probes_are_a_link_away(look: Look, job: str) -> None:
    page = look(f"/jobs/{job}")
    canvas = graph(page)
    canvas.press("Escape")
    expect(page.locator(".graph-panel")).to_be_hidden()
    box = canvas.bounding_box()
    assert box is not None
    middle = {"x": box["width"] / 2, "y": box["height"] / 2}
    canvas.press("Shift+ArrowDown")  # what is nearest to the middle
    name = page.locator(".graph-name").inner_text()
    canvas.press("Escape")
    page.evaluate(_AT_REST)
    for aside in (0, 20, -20, 40, -40, 60, -60):
        canvas.hover(position={"x": middle["x"], "y": middle["y"] + aside})
        if canvas.get_attribute("title", timeout=100) and name in (canvas.get_attribute("title") or ""):
            canvas.click(position={"x": middle["x"], "y": middle["y"] + aside})
            break
    expect(page.locator(".graph-name")).to_have_text(name)
    page.get_by_role("link", name="Probes with this node").click()
    page.wait_for_url("**/probes?target=1&unit=*")


def test_keys_walk_along_the_edges_and_a_search_jumps_beyond_what_is_here(look: Look, job: str) -> None:
    page = look(f"/jobs/{job}?unit=0")
    page.get_by_label("Around it").select_option("1 hop")
    canvas = graph(page)
    says, size = page.locator(".graph-says"), page.locator(".graph-size")
    expect(size).to_contain_text("of 44 nodes")
    first = page.locator(".graph-name").inner_text()
    canvas.press("Shift+ArrowDown")
    expect(page.locator(".graph-name")).not_to_have_text(first)
    expect(says).to_contain_text("before")
    canvas.press("Shift+ArrowUp")
    expect(page.locator(".graph-name")).to_have_text(first)

    find = page.get_by_role("combobox", name="Find a node")
    find.fill("concat")
    found = page.get_by_role("listbox", name="Nodes found").get_by_role("option")
    expect(found.first).to_contain_text("Concat")
    last = found.count() - 1
    wanted = found.nth(last).locator("span").inner_text()
    find.press("ArrowUp")  # from the first to the last
    find.press("Enter")
    expect(page.locator(".graph-name")).to_have_text(wanted)
    expect(canvas).to_be_focused()
    canvas.press("Enter")
    expect(page.locator(".graph-facts")).to_be_focused()


def test_hops_decide_how_much_is_there(look: Look, job: str) -> None:
    page = look(f"/jobs/{job}", dark=True, width=375)
    graph(page)
    size = page.locator(".graph-size")
    expect(size).to_contain_text("of 44 nodes")
    selected = page.locator(".graph-name").inner_text()
    page.get_by_label("Around it").select_option("whole model")
    expect(size).to_have_text("44 nodes")
    expect(page.locator(".graph-name")).to_have_text(selected)
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_without_scripts_there_is_no_empty_canvas(look: Look, job: str) -> None:
    page = look(f"/jobs/{job}", scripts=False)
    expect(page.locator("#graph noscript p")).to_be_visible()
    expect(page.locator(".graph-canvas")).to_be_hidden()


def test_modules_that_a_script_imports_are_at_addresses_that_browsers_keep(callers: Callers) -> None:
    nobody = callers.nobody()
    page = nobody.get("/login").text
    folder = page[page.index("/static/") : page.index("/icon.svg")]
    for name in ("graph.js", "graph_view.js", "site.css"):
        assert "immutable" in nobody.get(f"{folder}/{name}").headers["cache-control"]
    assert nobody.get("/static/before/graph.js").headers["cache-control"] == "no-cache"
