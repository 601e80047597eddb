"""Vendors' compilers from PyPI, each in a Python environment of its own in the user's cache.

Their pins conflict with ours and with each other's, some need an older Python, and some install packages with the first
pip they find. So each has its own environment without a pip, created once from exact pins in
`toolchains/NAME-VERSION.toml`; `Toolchain.environment` is the environment of its processes.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from onnxbisect.errors import BackendUnusableError
from onnxbisect.report.text import plural
from onnxbisect_backends.cache import cache_folder
from onnxbisect_backends.sandbox.process import clean_env
from onnxbisect_backends.toolchains.environments import PipError, Say, find_python, run_to_end

#: A script in place of the environment's `pip`, because some tools install packages with it.
_NO_PIP = "#!/bin/sh\necho 'this environment is pinned; nothing is installed into it' >&2\nexit 1\n"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """One version of a vendor's compiler, installed or not.

    `pythons` are the minor versions of CPython that it runs on, best first. `requirements` are exact pins of
    everything, installed without dependency resolution; `elsewhere` are further ones, by the address of the package
    index with the right build. `set_aside` are files below site-packages that keep the tool from starting on other
    systems than its vendor's; they are renamed. `digest` is of the definition, so that a changed one gets a new
    environment. `made`: the definition was resolved here (`series`) and is not shipped.
    """

    name: str
    version: str
    pythons: tuple[str, ...]
    requirements: tuple[str, ...]
    elsewhere: Mapping[str, tuple[str, ...]]
    set_aside: tuple[str, ...]
    gigabytes: float
    digest: str
    made: bool = False

    @property
    def folder(self) -> Path:
        """The environment's root."""
        return cache_folder() / "toolchains" / f"{self.name}-{self.version}-{self.digest}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def installed(self) -> bool:
        """Whether the environment is complete, and its interpreter still exists."""
        return self._mark.exists() and self.python.exists()

    @property
    def missing(self) -> str | None:
        """A sentence that says what to install; None if it is installed."""
        if self.installed:
            return None
        return (
            f"{self.name} {self.version} is not installed; run: "
            f"onnx-bisect backends install {self.name}=={self.version} (about {self.gigabytes:g} GB)."
        )

    def environment(self, workdir: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The variables of the tool's processes: PATH has its own and the system's programs, and HOME is `workdir`."""
        path = os.pathsep.join([str(self.folder / "bin"), "/usr/bin", "/bin"])
        own = {"PATH": path, "VIRTUAL_ENV": str(self.folder), "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return clean_env(workdir, extra={**own, "PYTHONIOENCODING": "utf-8:backslashreplace", **(extra or {})})

    def install(self, say: Say) -> None:
        """Create the environment, unless it exists; raises BackendUnusableError with what is missing.

        Several processes may call this: one creates it, the others wait. An interrupted installation does not count as
        installed.
        """
        called = f"{self.name} {self.version}"

        def report(line: str) -> None:
            say(f"{called}: {line}")

        try:
            with self._alone(report) as lock:
                if not self.installed:
                    self._make(report, lock)
        except PipError as error:
            raise BackendUnusableError(f"{called} could not be installed: {error}") from None
        except OSError as error:
            raise BackendUnusableError(
                f"{called} could not be installed in {self.folder}: {error.strerror or error}; "
                f"ONNXBISECT_CACHE_DIR names another place."
            ) from error

    @cached_property
    def site_packages(self) -> Path:
        """The folder of its packages, once installed."""
        return next(iter((self.folder / "lib").glob("python*/site-packages")))

    @property
    def _mark(self) -> Path:
        return self.folder / "onnx-bisect-complete"

    @contextmanager
    def _alone(self, say: Say) -> Iterator[int]:
        """Hold the lock of this environment; child processes inherit it, so that it outlives a killed caller."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_name(self.folder.name + ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another process that installs it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock.fileno()

    def _make(self, say: Say, lock: int) -> None:
        base = self._interpreter()
        self._remove()
        try:
            say(f"a new environment of {base}")
            run_to_end([str(base), "-I", "-m", "venv", str(self.folder)], say, lock)
            packages = len(self.requirements) + sum(map(len, self.elsewhere.values()))
            say(f"installing {plural(packages, 'package')}, about {self.gigabytes:g} GB")
            pip = [str(self.python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
            install = [*pip, "install", "--no-deps", "--progress-bar=off"]
            run_to_end([*install, *self.requirements], say, lock)
            for index, requirements in self.elsewhere.items():
                run_to_end([*install, "--extra-index-url", index, *requirements], say, lock)
            scripts = [*(self.folder / "bin").glob("pip*")]
            run_to_end([*pip, "uninstall", "--yes", "pip"], say, lock)
            for script in scripts:
                script.write_text(_NO_PIP)
                script.chmod(0o755)
            self._set_aside()
            self._mark.touch()
        except BaseException:
            with suppress(OSError):
                self._remove()
            raise
        say(f"installed in {self.folder}")
        for other in sorted(self.folder.parent.glob(f"{self.name}-{self.version}-{'[0-9a-f]' * len(self.digest)}")):
            if other != self.folder:
                say(f"no longer used by this version of onnx-bisect, and may be removed: {other}")

    def _interpreter(self) -> Path:
        for version in self.pythons:
            if path := find_python(version):
                return path
        raise BackendUnusableError(
            f"{self.name} {self.version} runs on CPython {' or '.join(self.pythons)}, which was not found on PATH, "
            f"under pyenv or under uv; install it (for example: uv python install {self.pythons[0]}) and try again."
        )

    def _remove(self) -> None:
        self._mark.unlink(missing_ok=True)  # first, so that a partly removed environment does not count as installed
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _set_aside(self) -> None:
        for name in self.set_aside:
            path = self.site_packages / name
            if path.exists():
                path.rename(path.with_name(path.name + ".set-aside"))
