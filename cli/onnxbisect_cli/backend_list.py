"""`onnx-bisect backends`: the compilers of this machine and their options."""

import shutil
import textwrap

import onnx_bisect
from onnx_bisect import BackendInfo, BackendState
from onnxbisect.report.text import clean
from onnxbisect_backends import registry
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_cli import table
from onnxbisect_cli.signals import stopping


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
    _print(f"Isolation of compiles, and of what reads models, in a service on this machine: {level}{but}.")
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


def _print(text: str) -> None:
    print("\n".join(textwrap.wrap(clean(text), max(shutil.get_terminal_size().columns, 40), break_on_hyphens=False)))
