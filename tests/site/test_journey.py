"""From the model on somebody's disk to the node that is to be replaced, through real Chromium, server and worker."""

from pathlib import Path

import onnx
import pytest
from playwright.sync_api import Page, expect

from support.site.browser import Look, drawn
from support.site.scenery import NET


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "prompt_encoder.onnx"
    path.write_bytes(NET)
    return path


def submitted(page: Page, net: Path, backend: str = "whitelist", **options: str) -> None:
    """A new job, by the form; its page is open then."""
    page.get_by_role("link", name="New job").click()
    page.get_by_label("ONNX file").set_input_files(net)
    expect(page.get_by_text("prompt_encoder.onnx is uploaded.")).to_be_attached()
    page.locator(f"input[name=backend][value={backend}]").check()
    group = page.get_by_role("group", name=f"Options of {backend}")
    for name, value in options.items():
        field = group.get_by_label(name, exact=True)
        if not field.is_visible():
            group.get_by_text("more options").click()
        if field.evaluate("field => field.localName") == "select":
            field.select_option(value)
        else:
            field.fill(value)
    page.get_by_label("Labels").fill("branch:main")
    page.get_by_role("button", name="Find the culprits").click()
    page.wait_for_url("**/jobs/*-*")


def ended(page: Page) -> None:
    """The report came by itself: nobody has reloaded the page."""
    expect(page.get_by_role("heading", level=1)).to_contain_text("compile")
    expect(page.get_by_role("heading", name="Culprits")).to_be_visible()


def clicked_node(page: Page) -> str:
    """Clicks where the graph has a node; what the panel says of it."""
    canvas = page.locator(".graph-canvas")
    canvas.scroll_into_view_if_needed()
    drawn(page)
    box = canvas.bounding_box()
    assert box is not None
    for down in range(10, int(box["height"]), 18):
        canvas.hover(position={"x": box["width"] / 2, "y": down})
        if "on-node" in (canvas.get_attribute("class") or ""):
            canvas.click(position={"x": box["width"] / 2, "y": down})
            break
    panel = page.locator(".graph-panel")
    expect(panel).to_contain_text("float[")
    return panel.inner_text()


def test_from_the_upload_to_the_culprit_and_to_the_comparison(look: Look, net: Path, tmp_path: Path) -> None:
    page = look("/jobs")
    submitted(page, net, backend="gated", deny="Sin,Cos", report="none", gate=str(tmp_path))
    expect(page.get_by_text("1 compiler call", exact=True)).to_be_visible()
    (tmp_path / "open").touch()
    ended(page)
    card = page.locator("article.culprit").first
    expect(card).to_contain_text("Sin")
    with page.expect_download() as download:
        card.get_by_role("link", name="Download model.onnx").click()
    download.value.save_as(tmp_path / "culprit.onnx")
    onnx.checker.check_model(tmp_path / "culprit.onnx", full_check=True)
    assert [node.op_type for node in onnx.load(tmp_path / "culprit.onnx").graph.node] == ["Sin"]
    assert "/" in clicked_node(page), "the name of the node"
    submitted(page, net, deny="Sin,Abs")
    ended(page)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Jobs").click()
    for newest in (0, 1):
        page.locator("input[name=job]").nth(newest).check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?*")
    compared = page.get_by_role("main")
    for op in ("Sin", "Cos", "Abs"):
        expect(compared).to_contain_text(op)


@pytest.mark.parametrize(("dark", "width"), [(True, 1280), (False, 375)], ids=["dark", "phone"])
def test_the_same_in_the_dark_and_on_a_phone(look: Look, net: Path, dark: bool, width: int) -> None:
    page = look("/jobs", dark=dark, width=width)
    submitted(page, net, deny="Sin,Cos")
    ended(page)
    expect(page.locator("article.culprit").first).to_be_visible()
    clicked_node(page)


def test_a_job_is_cancelled_where_it_runs(look: Look, net: Path) -> None:
    page = look("/jobs")
    submitted(page, net, deny="Sin", delay="300")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("It was cancelled after 0 compiler calls.")).to_be_visible()
