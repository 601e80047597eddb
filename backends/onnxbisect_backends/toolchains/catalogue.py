"""Which toolchains there are: definitions that come with this program, by name and version."""

import hashlib
import tomllib
from importlib import resources

from onnxbisect.errors import OptionError
from onnxbisect_backends.options import WorthTrying, unknown
from onnxbisect_backends.toolchains.toolchain import Toolchain

#: What the option `version` of a backend with a toolchain is.
VERSION_HELP = (
    "the version to use of those that 'onnx-bisect backends install NAME==VERSION' makes; without it the newest that "
    "is installed"
)


def installed_versions(name: str) -> WorthTrying:
    """Marks the option `version` of a backend: all versions of this toolchain that are installed are worth trying."""
    return WorthTrying(values=lambda: tuple(it.version for it in toolchains().get(name, ()) if it.installed))


def in_use(name: str, version: str = "") -> Toolchain:
    """The toolchain that a backend works with: of that version, else the newest that is installed, else the newest.

    Raises OptionError where there is no such version.
    """
    if version:
        return toolchain(name, version)
    installed = [one for one in toolchains().get(name, ()) if one.installed]
    return installed[-1] if installed else toolchain(name)


def toolchain(name: str, version: str | None = None) -> Toolchain:
    """The toolchain of that name: of that version, else of the newest known; raises OptionError where there is none."""
    known = toolchains()
    if name not in known:
        raise OptionError(unknown("compiler that can be installed", name, known))
    if version is None:
        return known[name][-1]
    for one in known[name]:
        if one.version == version:
            return one
    raise OptionError(unknown(f"version of {name} that can be installed", version, [it.version for it in known[name]]))


def named(requirement: str) -> Toolchain:
    """The toolchain that `NAME` or `NAME==VERSION` means."""
    name, _, version = requirement.partition("==")
    return toolchain(name.strip(), version.strip() or None)


def toolchains() -> dict[str, tuple[Toolchain, ...]]:
    """All that can be installed: name to versions, the newest last."""
    found: dict[str, list[Toolchain]] = {}
    for entry in resources.files("onnxbisect_backends.toolchains").iterdir():
        if entry.name.endswith(".toml"):
            one = _read(entry.read_text(encoding="utf-8"))
            found.setdefault(one.name, []).append(one)
    return {name: tuple(sorted(found[name], key=lambda it: _numbers(it.version))) for name in sorted(found)}


def _read(text: str) -> Toolchain:
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
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
