"""Backends as they may be asked for over the network: by name, and with options that name nothing of this machine.

What the command line takes on its user's own word (a TOML file that is a command, a program, a folder, an image) would
let a stranger run or read what is here.
"""

import re
from collections.abc import Mapping

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.options import unknown
from onnxbisect_backends.registry import LoadedBackend

_NUMBER = re.compile(r"-[0-9.]+(?:e-?[0-9]+)?(?:,.*)?", re.DOTALL)


def find(name: str) -> LoadedBackend:
    """`registry.find` for a stranger: no file is looked for. Raises OptionError and BackendUnusableError."""
    if name.endswith(".toml"):
        raise OptionError("A TOML file as a backend is for the command line: over the network a backend goes by name.")
    return registry.find(name)


def make(name: str, options: Mapping[str, str]) -> Backend:
    """`registry.make` for a stranger. Raises OptionError for what only the command line may say, too."""
    backend = find(name)
    refuse_local(backend, options)
    return backend.factory(dict(options))


def refuse_local(backend: LoadedBackend, given: Mapping[str, str]) -> None:
    """Raises OptionError where an option is not one that the backend tells of, or reaches for what is on this machine.

    A `local` option takes its listed choices and its default. No value may look like a flag: compilers' command lines
    are filled with them.
    """
    known = {option.name: option for option in backend.options}
    for name, value in given.items():
        if name not in known:
            raise OptionError(unknown(f"option of the backend '{backend.name}'", name, known))
        option = known[name]
        if option.local and value not in (*option.choices, option.default):
            among = f"; choose among {', '.join(option.choices)}" if option.choices else ""
            raise OptionError(
                f"The option '{name}' of the backend '{backend.name}' names something of the machine where it runs, "
                f"which is for the command line there{among}."
            )
        if value.startswith("-") and not _NUMBER.fullmatch(value):
            raise OptionError(
                f"The option '{name}' of the backend '{backend.name}' cannot be {value[:40]!r}: it begins like a flag."
            )
