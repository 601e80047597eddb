"""The known toolchains by name and version: shipped ones, and those defined on this machine."""

import hashlib
import tomllib
from contextlib import suppress
from importlib import resources
from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect_backends.cache import cache_folder
from onnxbisect_backends.options import WorthTrying, unknown
from onnxbisect_backends.toolchains.toolchain import Toolchain

#: The option that selects the version of a backend's toolchain.
VERSION = "version"

#: The description of that option.
VERSION_HELP = (
    "the version to use of those that 'onnx-bisect backends install NAME==VERSION' makes; without it the newest that "
    "is installed"
)


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
