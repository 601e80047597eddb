"""Real Chromium before a real `onnx-bisect serve`. A page that logs an error or breaks its policy fails its test."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

#: Without a sandbox since tests may run as root; without what would call home.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: Compilers that tests bring.
_PLUGIN = Path(__file__).with_name("plugin")
#: A machine that does much else is slow, not wrong.
_PATIENCE = 60_000
expect.set_options(timeout=_PATIENCE)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A service with its workers, as `serve` starts it."""

    url: str
    token: str

    def client(self) -> httpx2.Client:
        """For what a test wants to be there beforehand."""
        return httpx2.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60)


#: `look(path, dark=False, width=1280, scripts=True, refused=0)`: a page that has logged in, and may be told no with
#: the status `refused`.
Look = Callable[..., Page]


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[Installation]:
    """`onnx-bisect serve` with its data in `folder`, and with the compilers of tests unless PYTHONPATH is another."""
    command = [str(Path(sys.executable).with_name("onnx-bisect")), "serve", "--port", "0", "--data", str(folder)]
    # without vendors' compilers, of which each would be tried when it starts
    nothing = {"ONNXBISECT_CACHE_DIR": str(folder / "cache")}
    environment = {**os.environ, **nothing, "PYTHONPATH": str(_PLUGIN), **settings}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    try:
        assert process.stdout is not None
        url = re.search(r"http://\S+", process.stdout.readline())
        assert url is not None, (folder / "log").read_text()
        yield Installation(url=url[0], token=(folder / "token").read_text().strip())
    finally:
        process.terminate()
        process.communicate(timeout=30)


def log_in(context: BrowserContext, url: str, token: str) -> None:
    """Give the browser the cookie that the login page would."""
    answer = context.request.post(f"{url}/login", form={"token": token}, headers={"Origin": url}, max_redirects=0)
    assert answer.status == 303


@contextmanager
def launched() -> Iterator[Browser | None]:
    """The Chromium of this machine; None where there is none."""
    path = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield browser
        browser.close()


def drawn(page: Page) -> None:
    """Wait until the graph is to be seen. `wait_for_function` would need a policy that lets scripts be made of text."""
    for _ in range(600):
        if page.evaluate("performance.getEntriesByName('graph-painted').length > 0"):
            return
        page.wait_for_timeout(100)
    raise AssertionError("the graph is not drawn")


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    settings = {"ONNXBISECT_WEBHOOK_ALLOW": "127.0.0.1", "ONNXBISECT_SLOTS": "3"}
    with serving(tmp_path_factory.mktemp("served"), **settings) as found:
        yield found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        if browser is None:
            pytest.skip("no Chromium is installed")
        yield browser


@pytest.fixture
def look(chromium: Browser, installation: Installation) -> Iterator[Look]:
    """See `Look`. What any of its pages complained of fails the test at its end."""
    complaints: list[str] = []
    contexts = []

    def open_page(
        path: str, *, dark: bool = False, width: int = 1280, scripts: bool = True, refused: int = 0, **options: Any
    ) -> Page:
        context = chromium.new_context(
            base_url=installation.url,
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": 900},
            java_script_enabled=scripts,
            **options,
        )
        contexts.append(context)
        context.set_default_timeout(_PATIENCE)
        log_in(context, installation.url, installation.token)
        page = context.new_page()

        def complain(said: ConsoleMessage) -> None:
            # Chromium itself says that a form was refused, with its status.
            if said.type in ("error", "warning") and f"status of {refused} " not in said.text:
                complaints.append(f"{page.url}: {said.text} {said.location['url']}")

        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    if complaints:
        pytest.fail("\n".join(complaints))
