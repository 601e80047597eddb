"""`onnx-bisect backends`: the compilers of this machine and their options."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

import onnx_bisect
from onnx_bisect import BackendInfo, BackendState
from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.report.text import clean
from onnxbisect_backends import registry
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_backends.toolchains import series
from onnxbisect_backends.toolchains.catalogue import toolchain_named, toolchains
from onnxbisect_backends.toolchains.toolchain import Toolchain
from onnxbisect_cli import table
from onnxbisect_cli.signals import stopping


def install(names: Sequence[str], *, everything: bool = False) -> int:
    """Install the named toolchains, or all of them; a failed installation does not stop the others.

    Returns the exit status, 3 if one failed. OptionError for a wrong name.
    """
    known = toolchains()
    if not names and not everything:
        sizes = ", ".join(f"{name} ({versions[-1].gigabytes:g} GB)" for name, versions in known.items())
        raise OptionError(f"Name what to install, or say --all; there are {sizes}.")
    chosen = [_chosen(name) for name in names]
    if everything:
        chosen += [one for versions in known.values() for one in versions if one not in chosen and not one.made]
    failed = 0
    with stopping(_interrupt) as interruption:
        try:
            defined: list[Toolchain] = []
            for one in chosen:  # a wrong version is reported before anything is installed
                try:
                    defined.append(one if isinstance(one, Toolchain) else _defined(*one))
                except BackendUnusableError as error:
                    failed = _report(error)
            for toolchain in defined:
                if toolchain.installed:
                    _say(f"{toolchain.name} {toolchain.version}: installed in {toolchain.folder}")
                    continue
                try:
                    toolchain.install(_say)
                except BackendUnusableError as error:
                    failed = _report(error)
        except KeyboardInterrupt:
            print("onnx-bisect: interrupted; nothing half-made is left.", file=sys.stderr)
            return interruption.exit_code
    return failed


def _report(error: BackendUnusableError) -> int:
    """Print the error; returns its exit status."""
    print(f"onnx-bisect: {clean(str(error))}", file=sys.stderr, flush=True)
    return error.exit_code


def _defined(name: str, version: str) -> Toolchain:
    """A toolchain for a version without pins in this program."""
    with series.opened(name, _say) as index:
        return index.define(version)


def _chosen(name: str) -> Toolchain | tuple[str, str]:
    """A known toolchain, or the name and version to look up on the package index."""
    try:
        return toolchain_named(name)
    except OptionError:
        compiler, _, version = (part.strip() for part in name.partition("=="))
        if version and compiler in series.SERIES:
            return compiler, version
        backend = registry.available().get(name)
        if not isinstance(backend, registry.LoadedBackend):
            raise
        try:
            missing = backend.factory({}).check()
        except OptionError:  # only options are missing, which no installation provides
            missing = None
        if missing:
            raise OptionError(f"'{name}' cannot be installed by this program. {missing}") from None
        raise OptionError(f"'{name}' needs nothing installed.") from None


def _interrupt() -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(clean(line), flush=True)


def show() -> int:
    """Print a row for each backend; a broken one is listed with the reason. Returns the exit status."""
    with stopping(kill_running) as interruption:
        found = onnx_bisect.backends()
    if interruption.number is not None:
        return interruption.exit_code
    table.show(("name", "state", "version", "how to get it"), [_row(it) for it in found])
    print("Options of one: onnx-bisect backends options NAME")
    outside = [clean(it.name) for it in found if it.state is not BackendState.BROKEN and not it.isolated]
    level = isolation.available()
    but = f", but for {', '.join(outside)}" if outside and level is not Isolation.NONE else ""
    isolated = clean(f"Isolation of compiles, and of what reads models, in a service on this machine: {level}{but}.")
    width = max(shutil.get_terminal_size().columns, 40)
    print("\n".join(textwrap.wrap(isolated, width, break_on_hyphens=False)))
    print("Any command:             onnx-bisect run MODEL -- my_compile {model}")
    print("Your own as a TOML file: onnx-bisect run MODEL --backend ./mychip.toml")
    return 0


def show_options(name: str) -> None:
    """Print one paragraph for each option; raises OptionError and BackendUnusableError."""
    options = registry.find(name).options
    if not options:
        print(f"{clean(name)} has no options that it tells.")
    for option in options:
        default = f"  (default: {option.default})" if option.default else ""
        print(clean(f"{option.name}={'|'.join(option.choices) or 'VALUE'}{default}"))
        if option.help:
            print(f"    {clean(option.help)}")
        if option.alternatives:
            print(f"    worth trying: {clean(', '.join(option.alternatives))}")


def _row(backend: BackendInfo) -> tuple[str, str, str, str]:
    """Its name, state, version, and what is missing."""
    about = backend.description
    version = "" if about is None else f"{about.tool} {about.version}"
    reason = f"{backend.summary} {backend.reason}".strip() if about is None else ""
    return backend.name, backend.state, version, reason
