"""The pictures of README.md and docs/page.md, of a real `serve`: `make screenshots` writes them into docs/images/."""

import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page

from support.site.browser import Installation, drawn, launched, log_in, serving
from support.site.scenery import ended, submit
from support.worker.process_tree import within

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
DECODER = ROOT / "examples" / "sam_decoder.onnx"
PROMPT = ROOT / "tests" / "models" / "sam_part1_prompt__ts11.onnx"
#: The largest that a picture may be, in bytes.
MOST = 150_000


def main() -> None:
    """Make the jobs, wait, look."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        if browser is None:
            raise SystemExit("Chromium is not installed: apt-get install chromium")
        _take_culprits(browser, Path(folder, "culprits"))
        jobs = Path(folder, "jobs")
        jobs.mkdir()
        with serving(jobs, ONNXBISECT_SLOTS="4", PYTHONPATH="") as here, here.client() as client:
            labels = {"repo": "sam", "branch": "main"}
            decoder = ("sam_decoder.onnx", DECODER.read_bytes())
            weights = {"data": ("sam_decoder.weights", DECODER.with_suffix(".weights").read_bytes())}
            targets = [("whitelist", {"profile": "edgesam"}), ("whitelist", {"profile": "pulsar2-ax650"})]
            one = submit(client, decoder[1], targets[0], name=decoder[0], labels=labels, files=weights)
            both = submit(client, decoder[1], *targets, name=decoder[0], labels=labels, files=weights)
            before = submit(client, PROMPT.read_bytes(), ("whitelist", {"deny": "Sin,Cos,Abs"}), labels=labels)
            after = submit(client, PROMPT.read_bytes(), ("whitelist", {"deny": "Abs,Clip"}), labels=labels)
            refused = ("whitelist", {"deny": "Gather,Abs,Sin,Cos"})
            repaired = submit(
                client, decoder[1], refused, name=decoder[0], labels=labels, files=weights, repair={"allow": "domain"}
            )
            for job in (one, both, before, after, repaired):
                ended(client, job)
            slow = {"deny": "Sin,Clip,Gemm,Erf", "report": "first", "delay": "2"}
            running = submit(client, decoder[1], ("whitelist", slow), name=decoder[0], labels=labels, files=weights)
            _take(browser, here, f"/jobs/{running}", "running", until="text=culprits found so far")
            client.post(f"/v1/jobs/{running}/cancel").raise_for_status()
            for dark in (False, True):
                _take(browser, here, f"/jobs/{one}", "job", dark=dark)
                _take(browser, here, f"/jobs/{one}#graph", "graph", dark=dark, until=".graph-canvas", height=760)
            _take(browser, here, f"/jobs/{repaired}#repair", "repair", until="section#repair")
            _take(browser, here, f"/jobs/{one}", "phone", width=375, height=760)
            _take(browser, here, f"/jobs/{both}", "targets")
            _take(browser, here, f"/jobs/{one}/probes", "probes")
            _take(browser, here, f"/compare?a={before}&b={after}", "compare")
            _take(browser, here, "/jobs", "jobs")
            _take(browser, here, "/new", "new")


def _take_culprits(browser: Browser, folder: Path) -> None:
    """After the service's compiler was updated: its second version takes Sin and refuses Cos."""
    folder.mkdir()
    for version in ("1", "2"):
        settings = {"ONNXBISECT_COMPILER_ENV": "SIMULATED_VERSION", "SIMULATED_VERSION": version}
        with serving(folder, **settings) as here, here.client() as client:
            for model in (PROMPT, PROMPT.with_name("torch_cond__dynamo18.onnx")):
                ended(client, submit(client, model.read_bytes(), ("versioned", {}), name=model.name))
            if version == "2":
                if not within(120, lambda: bool(client.get("/v1/culprits?state=fixed").json())):
                    raise SystemExit("No culprit was found to be fixed in two minutes.")
                _take(browser, here, "/culprits", "culprits")


def _take(
    browser: Browser,
    here: Installation,
    address: str,
    name: str,
    *,
    dark: bool = False,
    width: int = 1280,
    height: int = 860,
    until: str = "h1",
) -> None:
    """What one sees of a page at first."""
    context = browser.new_context(
        base_url=here.url,
        color_scheme="dark" if dark else "light",
        viewport={"width": width, "height": height},
        reduced_motion="reduce",
    )
    log_in(context, here.url, here.token)
    page: Page = context.new_page()
    page.goto(address)
    page.locator(until).first.wait_for(timeout=60_000)
    if page.locator(".graph-canvas").count():
        drawn(page)
    if "#" in address:
        page.wait_for_timeout(1000)  # the browser's own way there
        page.evaluate("document.getElementById(location.hash.slice(1)).scrollIntoView({behavior: 'instant'})")
    page.wait_for_timeout(300)
    path = IMAGES / f"{name}{'-dark' if dark else ''}.png"
    page.screenshot(path=path, animations="disabled")
    context.close()
    if path.stat().st_size > MOST:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes: show less of the page")


if __name__ == "__main__":
    main()
