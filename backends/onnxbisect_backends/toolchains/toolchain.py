"""Vendors' compilers from PyPI, each in a Python environment of its own in the user's cache.

Their pins conflict with ours and with each other's, some need an older Python, and some install packages with the first
pip they find. So each has its own environment without a pip, created once from exact pins in
`toolchains/NAME-VERSION.toml`; `Toolchain.environment` is the environment of its processes.
"""

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import IO, cast

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.language import english
from onnxbisect.report.text import plural
from onnxbisect_backends.folders import cache_folder
from onnxbisect_backends.options import WorthTrying, unknown
from onnxbisect_backends.sandbox.process import clean_env

#: Patterns for the paths of interpreters that are not on PATH.
_PLACES = (
    "~/.pyenv/versions/{version}.*/bin/python{version}",
    "~/.local/share/uv/python/cpython-{version}.*/bin/python{version}",
    "/opt/python/cp{digits}-cp{digits}/bin/python{version}",
)

_WHO = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
#: The option that selects the version of a backend's toolchain.
VERSION = "version"
#: The description of that option.
VERSION_HELP = (
    "the version to use of those that 'onnx-bisect backends install NAME==VERSION' makes; without it the newest that "
    "is installed"
)


def find_python(version: str) -> Path | None:
    """An interpreter such as `3.10` that can create environments; None if there is none."""
    return next((path for path in _candidates(version) if _is_python(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    if "{}.{}".format(*sys.version_info) == version:
        yield Path(getattr(sys, "_base_executable", sys.executable))
    for folder in os.get_exec_path():
        yield Path(folder, f"python{version}")
    for pattern in _PLACES:
        path = Path(pattern.format(version=version, digits=version.replace(".", ""))).expanduser()
        root = Path(path.anchor)
        yield from sorted(root.glob(str(path.relative_to(root))), reverse=True)


def _is_python(path: Path, version: str) -> bool:
    """Whether it has that version and can create environments; pyenv's shims exist and may fail."""
    if not path.is_file():
        return False
    try:
        done = subprocess.run([str(path), "-I", "-c", _WHO], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.decode(errors="replace").strip() == version


#: Called with a line about each step.
Say = Callable[[str], None]

#: pip's line for a large download.
_FETCHING = re.compile(r"\s*Downloading (?:\S*/)?(\S+ \(\d[\d.]* [MG]B\))")

#: The user's settings that would redirect or forbid the installation; indexes and certificates stay.
_MISLEADING = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")


class PipError(Exception):
    """pip failed; the text is its complaint, as a sentence."""


def run_to_end(argv: Sequence[str], say: Say, lock: int | None = None) -> list[str]:
    """Run a command to its end, and return the printed lines; raises PipError with its complaint.

    The command inherits the descriptor `lock`, so that the lock lasts while it still works for a killed caller. If this
    call is interrupted, the command is killed.
    """
    said: list[str] = []
    process = subprocess.Popen(
        argv,
        env={name: value for name, value in os.environ.items() if name not in _MISLEADING},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=() if lock is None else (lock,),
        start_new_session=True,
    )
    with process:
        try:
            for line in cast("IO[str]", process.stdout):
                said.append(line.strip())
                if fetching := _FETCHING.match(line):
                    say(f"fetching {fetching[1]}")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # it must not write into a folder that is about to be removed
            raise
    if process.returncode:
        errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR")]
        words = (errors or [line for line in said if line] or ["it ended without a word"])[-1]
        offline = any("Retrying (" in line for line in said)
        raise PipError(f"{words.rstrip('.')}{' (a package index could not be reached)' if offline else ''}.")
    return said


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
        return english(
            "{name} {version} is not installed; run: onnx-bisect backends install {name}=={version} "
            "(about {gigabytes} GB).",
            name=self.name,
            version=self.version,
            gigabytes=f"{self.gigabytes:g}",
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
        _, base = self.interpreter()
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
            for name in self.set_aside:
                path = self.site_packages / name
                if path.exists():
                    path.rename(path.with_name(path.name + ".set-aside"))
            self._mark.touch()
        except BaseException:
            with suppress(OSError):
                self._remove()
            raise
        say(f"installed in {self.folder}")
        for other in sorted(self.folder.parent.glob(f"{self.name}-{self.version}-{'[0-9a-f]' * len(self.digest)}")):
            if other != self.folder:
                say(f"no longer used by this version of onnx-bisect, and may be removed: {other}")

    def interpreter(self) -> tuple[str, Path]:
        """The first of `pythons` that is here, and its path; raises BackendUnusableError."""
        for version in self.pythons:
            if path := find_python(version):
                return version, path
        raise BackendUnusableError(
            f"{self.name} {self.version} runs on CPython {' or '.join(self.pythons)}, which was not found on PATH, "
            f"under pyenv or under uv; install it (for example: uv python install {self.pythons[0]}) and try again."
        )

    def _remove(self) -> None:
        self._mark.unlink(missing_ok=True)  # first, so that a partly removed environment does not count as installed
        if self.folder.exists():
            shutil.rmtree(self.folder)


def installed_versions(name: str) -> WorthTrying:
    """Marks the option `version` of a backend: all installed versions of this toolchain are worth trying."""
    return WorthTrying(values=lambda: tuple(it.version for it in toolchains().get(name, ()) if it.installed))


def in_use(name: str, version: str = "") -> Toolchain:
    """The toolchain that a backend uses: of that version, else the newest installed one, else the newest.

    Shipped versions precede others, which are installed for comparison. Raises OptionError for an unknown version.
    """
    known = toolchains().get(name, ())
    if version:
        if version not in (one.version for one in known):
            raise OptionError(
                f"{unknown(f'version of {name} that is here', version, (one.version for one in known))} "
                f"'onnx-bisect backends install {name}=={version}' makes it, if the package index has it."
            )
        return toolchain(name, version)
    installed = [one for one in known if one.installed]
    shipped = [one for one in installed if not one.made]
    return (shipped or installed or [toolchain(name)])[-1]


def toolchain(name: str, version: str | None = None) -> Toolchain:
    """The toolchain of that name and version; by default the newest shipped one. Raises OptionError."""
    known = toolchains()
    if name not in known:
        raise OptionError(unknown("compiler that can be installed", name, known))
    if version is None:
        return ([one for one in known[name] if not one.made] or list(known[name]))[-1]
    for one in known[name]:
        if one.version == version:
            return one
    raise OptionError(unknown(f"version of {name} that can be installed", version, [it.version for it in known[name]]))


def toolchain_named(requirement: str) -> Toolchain:
    """The toolchain for `NAME` or `NAME==VERSION`."""
    name, _, version = requirement.partition("==")
    return toolchain(name.strip(), version.strip() or None)


def toolchains() -> dict[str, tuple[Toolchain, ...]]:
    """All known toolchains: name to versions, newest last."""
    found: dict[str, list[Toolchain]] = {}
    for entry in resources.files("onnxbisect_backends.toolchains").iterdir():
        if entry.name.endswith(".toml"):
            one = read_definition(entry.read_text(encoding="utf-8"))
            found.setdefault(one.name, []).append(one)
    for path in sorted(made_folder().glob("*.toml")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # a damaged definition is resolved again when needed
            one = read_definition(path.read_text(encoding="utf-8"), made=True)
            if all(one.version != other.version for other in found.get(one.name, ())):
                found.setdefault(one.name, []).append(one)
    return {name: tuple(sorted(found[name], key=lambda it: version_order(it.version))) for name in sorted(found)}


def made_folder() -> Path:
    """The folder of definitions that are not shipped, beside their environments."""
    return cache_folder() / "toolchains"


def read_definition(text: str, *, made: bool = False) -> Toolchain:
    """The toolchain that TOML describes; `made` if it is not shipped."""
    data = tomllib.loads(text)
    return Toolchain(
        name=data["name"],
        version=data["version"],
        pythons=tuple(data["pythons"]),
        requirements=tuple(data["requirements"]),
        elsewhere={index: tuple(pins) for index, pins in data.get("elsewhere", {}).items()},
        set_aside=tuple(data.get("set_aside", ())),
        gigabytes=data["gigabytes"],
        digest=hashlib.sha256(text.encode()).hexdigest()[:8],
        made=made,
    )


def version_order(version: str) -> list[int]:
    """A sort key for versions."""
    return [int(part) for part in version.split(".") if part.isdecimal()]
