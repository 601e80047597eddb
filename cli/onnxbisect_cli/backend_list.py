"""`onnx-bisect backends`: which compilers can be asked here."""

import shutil
import textwrap
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.report.text import clean, clip, plural
from onnxbisect_backends import isolation
from onnxbisect_backends.isolation import Isolation
from onnxbisect_backends.options import OptionHelp
from onnxbisect_backends.process import kill_running
from onnxbisect_backends.registry import BrokenBackend, LoadedBackend, available
from onnxbisect_cli.signals import stopping

#: Options of one backend that are listed; `backends options` shows all.
_MOST_OPTIONS = 8


class _State(IntEnum):
    """In the order of the list."""

    USABLE = 0
    WITH_OPTIONS = 1
    NOT_USABLE = 2
    BROKEN = 3


def show() -> int:
    """One paragraph for each backend; a broken one is listed with the reason, never fatal. The exit status."""
    found = available()
    # some start their tool to learn its version
    with stopping(kill_running) as interruption, ThreadPoolExecutor(max_workers=4) as pool:
        answers = list(pool.map(_asked, found.values()))
    if interruption.number is not None:
        return interruption.exit_code
    width = max((len(clean(name)) for name in found), default=0) + 2
    for backend, (_, text) in sorted(zip(found.values(), answers, strict=True), key=lambda it: it[1][0]):
        _print(clean(backend.name), text, width)
        if isinstance(backend, LoadedBackend) and backend.options:
            _print("", f"options: {_options(backend)}", width)
    outside = [clean(it.name) for it in found.values() if isinstance(it, LoadedBackend) and not it.isolated]
    level = isolation.available()
    but = f", but for {', '.join(outside)}" if outside and level is not Isolation.NONE else ""
    _print("", f"Isolation of compiles, and of what reads models, in a service on this machine: {level}{but}.", 0)
    print("Any command:             onnx-bisect run MODEL -- my_compile {model}")
    print("Your own as a TOML file: onnx-bisect run MODEL --backend ./mychip.toml")
    return 0


def _asked(backend: LoadedBackend | BrokenBackend) -> tuple[_State, str]:
    if isinstance(backend, BrokenBackend):
        return _State.BROKEN, f"broken: {backend.reason}"
    try:
        made = backend.factory({})
        if complaint := made.check():
            raise BackendUnusableError(complaint)
        description = made.describe()
    except BackendUnusableError as error:
        return _State.NOT_USABLE, f"{backend.summary} Not usable: {error}".lstrip()
    except OptionError as error:  # it cannot be asked about without options
        return _State.WITH_OPTIONS, f"usable with options: {error}"
    except Exception as error:  # a third party's bug must not hide the others
        return _State.BROKEN, f"broken: {type(error).__name__}: {error}"
    ops = "" if description.ops is None else f", {plural(len(description.ops), 'op')} advertised"
    return _State.USABLE, f"usable: {description.tool} {description.version}{ops}"


def _options(backend: LoadedBackend) -> str:
    told = [_told(option) for option in backend.options[:_MOST_OPTIONS]]
    if len(backend.options) > len(told):
        told.append(f"and {len(backend.options) - len(told)} more (onnx-bisect backends options {backend.name})")
    return ", ".join(told)


def _told(option: OptionHelp) -> str:
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
