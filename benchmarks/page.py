"""The page of a job with a large model, from a real `serve`, in Chromium: when it is there, how it moves, its weight.

    python benchmarks/page.py [--quick] [--write docs/benchmarks.md]

`make bench-page` writes its part of the document, on a machine that does nothing else.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page

import tables
from models import transformer
from support.site.browser import Installation, drawn, launched, log_in, serving
from support.site.scenery import submit

#: A layer of the transformer has 22 nodes.
_LAYERS = (23, 228, 1273)
_TIMES = 3
_FRAMES = 120

#: Keeps how long each drawing takes.
_DRAWINGS = """(() => {
    const ask = window.requestAnimationFrame.bind(window);
    window.drawings = [];
    window.untimed = ask;
    window.requestAnimationFrame = draw => ask(now => {
        const began = performance.now();
        draw(now);
        window.drawings.push(performance.now() - began);
    });
})()"""
#: Drags the canvas in every frame; how far these are apart, and how long the drawing of each took, in ms.
_PAN = """frames => new Promise(done => {
    const canvas = document.querySelector('.graph-canvas');
    const box = canvas.getBoundingClientRect();
    const send = (type, step) => canvas.dispatchEvent(new PointerEvent(type, {
        bubbles: true, pointerId: 1, pointerType: 'mouse', button: 0, buttons: 1,
        clientX: box.x + 300 + step % 40, clientY: box.y + 300 + 7 * (step % 40)}));
    canvas.setPointerCapture = () => {};  // there is no such pointer
    const apart = [];
    let last = 0, step = 0;
    window.drawings.length = 0;
    send('pointerdown', 0);
    const frame = now => {
        if (step) apart.push(now - last);
        last = now;
        send('pointermove', ++step);
        if (step < frames) return window.untimed(frame);
        send('pointerup', step);
        setTimeout(() => done({apart, drawings: window.drawings.slice()}), 100);
    };
    window.untimed(frame);
})"""
#: Asks for the whole graph; how long it takes until that is drawn. The text says `12 of 345 nodes` of a part.
_WHOLE = """() => new Promise(done => {
    const began = performance.now();
    const look = () => window.drawings.length ? done(performance.now() - began) : setTimeout(look, 1);
    new MutationObserver((_, observer) => {
        observer.disconnect();
        window.drawings.length = 0;
        look();
    }).observe(document.querySelector('.graph-size'), {childList: true});
    const hops = document.querySelector('.graph-hops');
    hops.value = '';
    hops.dispatchEvent(new Event('change'));
})"""
_TIMINGS = """() => ({
    page: performance.getEntriesByName('first-contentful-paint')[0].startTime,
    graph: performance.getEntriesByName('graph-painted')[0].startTime,
})"""


@dataclass(kw_only=True)
class Seen:
    """One page, opened several times; ms and bytes."""

    nodes: int
    first_paint: list[float] = field(default_factory=list)
    graph: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    apart: list[float] = field(default_factory=list)
    drawings: list[float] = field(default_factory=list)
    bytes: Counter[str] = field(default_factory=Counter)
    whole_bytes: int = 0


def main() -> None:
    """Measure everything, then write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest model once; never for the document")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this document")
    given = parser.parse_args()
    if given.write and given.quick:
        parser.error("--write is for the whole benchmark: leave --quick out")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        if browser is None:
            parser.error("no Chromium is installed")
        with serving(Path(folder)) as here:
            seen = [
                _measure(here, browser, Path(folder), layers, given.quick)
                for layers in _LAYERS[: 1 if given.quick else 3]
            ]
        machine = f"Chromium {browser.version}, {os.cpu_count()} cores, no GPU; load average when it began: {load:.1f}."
        text = f"{_table(seen)}\n\n{machine}"
    if given.write:
        given.write.write_text(tables.fill(given.write.read_text(), {"page": text}))
        print(f"wrote {given.write}", file=sys.stderr)
    else:
        print(text)


def _measure(here: Installation, browser: Browser, folder: Path, layers: int, quick: bool) -> Seen:
    path = folder / f"{layers}.onnx"
    transformer(path, layers)
    with here.client() as client:
        job = submit(client, path.read_bytes(), ("whitelist", {"deny": "Erf"}), name=path.name)
        print(f"{layers} layers: job {job}", file=sys.stderr)
        found = _ended(client, job)
    seen = Seen(nodes=found["targets"][0]["units"])
    for _ in range(1 if quick else _TIMES):
        context = browser.new_context(base_url=here.url, viewport={"width": 1280, "height": 900})
        log_in(context, here.url, here.token)
        context.add_init_script(_DRAWINGS)
        _look(context.new_page(), f"/jobs/{job}", seen)
        context.close()
    return seen


def _look(page: Page, address: str, seen: Seen) -> None:
    seen.bytes = _weighed(page.context.new_cdp_session(page))
    page.goto(address)
    drawn(page)
    timings = page.evaluate(_TIMINGS)
    seen.first_paint.append(timings["page"])
    seen.graph.append(timings["graph"])
    page.wait_for_load_state("networkidle")
    before = seen.bytes.total()
    page.locator(".graph-canvas").scroll_into_view_if_needed()
    seen.whole.append(page.evaluate(_WHOLE))
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    seen.whole_bytes = seen.bytes.total() - before
    page.get_by_role("button", name="Fit").click()
    panned = page.evaluate(_PAN, _FRAMES)
    seen.apart += panned["apart"]
    seen.drawings += panned["drawings"]


def _weighed(protocol: CDPSession) -> Counter[str]:
    """Bytes as they go over the network from now on, by kind."""
    kinds: dict[str, str] = {}
    counted: Counter[str] = Counter()
    protocol.on("Network.responseReceived", lambda told: kinds.update({told["requestId"]: told["type"]}))
    protocol.on(
        "Network.loadingFinished",
        lambda told: counted.update({kinds.get(told["requestId"], "Other"): int(told["encodedDataLength"])}),
    )
    protocol.send("Network.enable")
    return counted


def _ended(client: Any, job: str) -> dict[str, Any]:
    while True:
        found: dict[str, Any] = client.get(f"/v1/jobs/{job}", params={"wait": 30}).json()
        if found["ended_at"] is not None:
            assert found["state"] == "done", json.dumps(found)[:2000]
            return found


def _table(seen: list[Seen]) -> str:
    def ms(values: list[float], part: int) -> str:
        return f"{quantiles(values, n=100)[part - 1]:.1f}" if len(values) > 1 else f"{values[0]:.1f}"

    def kb(count: int) -> str:
        return f"{count / 1000:.0f}"

    rows = [
        ("first paint of the page, ms", *(f"{min(it.first_paint):.0f}" for it in seen)),
        ("the graph around the first culprit is painted, ms", *(f"{min(it.graph):.0f}" for it in seen)),
        (
            "the whole graph instead: asked for, laid out, painted, ms, the first time / later",
            *(f"{it.whole[0]:.0f} / {min(it.whole):.0f}" for it in seen),
        ),
        (
            "panning, all of it in view: drawing a frame, p50 / p95, ms",
            *(f"{ms(it.drawings, 50)} / {ms(it.drawings, 95)}" for it in seen),
        ),
        ("from frame to frame, p50 / p95, ms", *(f"{ms(it.apart, 50)} / {ms(it.apart, 95)}" for it in seen)),
        ("page, kB: HTML", *(kb(it.bytes["Document"]) for it in seen)),
        ("scripts", *(kb(it.bytes["Script"]) for it in seen)),
        ("styles", *(kb(it.bytes["Stylesheet"]) for it in seen)),
        ("data for the first picture", *(kb(it.bytes["Fetch"] + it.bytes["XHR"] - it.whole_bytes) for it in seen)),
        ("data for the whole graph", *(kb(it.whole_bytes) for it in seen)),
    ]
    return tables.table(("nodes", *(f"{it.nodes:,}" for it in seen)), rows)


if __name__ == "__main__":
    main()
