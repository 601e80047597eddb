"""`onnx-bisect backends`: the compilers of this machine and their options."""

import shutil
import textwrap

import onnx_bisect
from onnx_bisect import BackendInfo, BackendState
from onnxbisect.report.text import clean, clip, plural
from onnxbisect_backends import registry
from onnxbisect_backends.options import OptionHelp
from onnxbisect_backends.sandbox import isolation
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_backends.sandbox.process import kill_running
from onnxbisect_cli.signals import stopping

#: Most options of one backend that are listed; `backends options` shows all.
_MOST_OPTIONS = 8


def show() -> int:
    """Print one paragraph for each backend; a broken one is listed with the reason. Returns the exit status."""
    with stopping(kill_running) as interruption:
        found = onnx_bisect.backends()
    if interruption.number is not None:
        return interruption.exit_code
    width = max((len(clean(it.name)) for it in found), default=0) + 2
    for backend in found:
        _print(clean(backend.name), _state(backend), width)
        if backend.options:
            _print("", f"options: {_options(backend)}", width)
    outside = [clean(it.name) for it in found if it.state is not BackendState.BROKEN and not it.isolated]
    level = isolation.available()
    but = f", but for {', '.join(outside)}" if outside and level is not Isolation.NONE else ""
    _print("", f"Isolation of compiles, and of what reads models, in a service on this machine: {level}{but}.", 0)
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


def _state(backend: BackendInfo) -> str:
    if backend.state is BackendState.NOT_USABLE:
        return f"{backend.summary} Not usable: {backend.reason}".lstrip()
    if backend.description is None:
        return f"{backend.state}: {backend.reason}"
    it = backend.description
    ops = "" if it.ops is None else f", {plural(len(it.ops), 'op')} advertised"
    return f"{backend.state}: {it.tool} {it.version}{ops}"


def _options(backend: BackendInfo) -> str:
    listed = [_option(option) for option in backend.options[:_MOST_OPTIONS]]
    if len(backend.options) > len(listed):
        listed.append(f"and {len(backend.options) - len(listed)} more (onnx-bisect backends options {backend.name})")
    return ", ".join(listed)


def _option(option: OptionHelp) -> str:
    return f"{option.name}={clip('|'.join(option.choices), 60)}" if option.choices else option.name


def _print(name: str, text: str, width: int) -> None:
    lines = textwrap.wrap(
        clean(text),
        width=max(shutil.get_terminal_size().columns, width + 40),
        initial_indent=f"{name:{width}}",
        subsequent_indent=" " * width,
        break_long_words=False,
        break_on_hyphens=False,
    )
    print("\n".join(lines))
