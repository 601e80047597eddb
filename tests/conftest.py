"""Nothing here is timed: a machine that does much else is slow, not wrong."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.examples import SHARE, WHOLE

settings.register_profile("patient", max_examples=WHOLE, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("patient"), max_examples=SHARE)
settings.load_profile("patient")

# Under `nohup`, and in a script's background, SIGINT is ignored, which programs inherit: tests of Ctrl-C would wait for
# an end that never comes. A signal that has a handler here has its default action in every program that is started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Import test modules by their path, whatever the options: many have the same name as one in another folder."""
    config.option.importmode = "importlib"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that takes the browser, before `-m` chooses."""
    for item in items:
        if isinstance(item, pytest.Function) and "chromium" in item.fixturenames:
            item.add_marker(pytest.mark.browser)


#: A disk of so many kilobytes, in an empty folder.
SmallDisk = Callable[[int], Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Real ones, which only root can mount."""
    with ExitStack() as stack:

        def mounted(kilobytes: int) -> Path:
            folder = tmp_path / f"disk-{kilobytes}"
            folder.mkdir()
            argv = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
            return folder

        yield mounted


@pytest.fixture
def fill() -> Callable[[Path], Path]:
    """Writes a file that takes what is left of a disk."""

    def filled(folder: Path) -> Path:
        path = folder / "something else"
        with path.open("wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(os.urandom(1) * size)
                except OSError:
                    size //= 2
        return path

    return filled
