"""Backends for requests over the network: by name, with options that name nothing on this machine.

The command line also accepts TOML files, which are commands, and names of programs, folders and images. Over the
network, these would let a client run programs or read files on this machine.
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
    """`registry.find` without files. Raises OptionError and BackendUnusableError."""
    if name.endswith(".toml"):
        raise OptionError("A TOML file as a backend is for the command line: over the network a backend goes by name.")
    return registry.find(name)


def make(name: str, options: Mapping[str, str]) -> Backend:
    """`registry.make` for remote requests. Raises OptionError also for options that only the command line accepts."""
    backend = find(name)
    refuse_local(backend, options)
    return backend.factory(dict(options))


def refuse_local(backend: LoadedBackend, given: Mapping[str, str]) -> None:
    """Raises OptionError for an undocumented option, or one that refers to this machine.

    A `local` option accepts its listed choices and its default. No value may look like a flag, because values become
    part of compilers' command lines.
    """
    known = {option.name: option for option in backend.options}
    for name, value in given.items():
        if name not in known:
            raise OptionError(unknown(f"option of the backend '{backend.name}'", name, known))
        option = known[name]
        if option.local and value not in (*option.choices, option.default):
            among = f"; choose among {', '.join(option.choices)}" if option.choices else ""
            raise OptionError(
                f"The option '{name}' of the backend '{backend.name}' names a file or a program of the machine where "
                f"it runs, which is for the command line there{among}."
            )
        if value.startswith("-") and not _NUMBER.fullmatch(value):
            raise OptionError(
                f"The option '{name}' of the backend '{backend.name}' cannot be {value[:40]!r}: it begins like a flag."
            )
