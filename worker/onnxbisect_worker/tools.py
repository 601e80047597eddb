"""Asks backends to describe themselves, in a process of its own because they may crash it.

It prints a line of JSON for each: its name, whether it is usable, its description, and its isolation.
"""

import json
import os
import sys

from onnxbisect.errors import OnnxBisectError, OptionError
from onnxbisect.report.text import clip
from onnxbisect_backends import registry
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_service.settings import load_settings
from onnxbisect_worker.model_processes.confinement import level

_LONGEST = 500


def description(name: str) -> tuple[bool, str]:
    """True with the backend's tool and version; False with the reason why it is unusable here."""
    try:
        backend = registry.make(name, {})
        complaint = backend.check()
        if complaint is not None:
            return False, complaint
        description = backend.describe()
    except OptionError as error:  # a job's options may be missing, which is no fault of the tool
        return True, str(error)
    except OnnxBisectError as error:
        return False, str(error)
    except Exception as error:  # whatever a third party's backend raises
        return False, f"It cannot be asked: {type(error).__name__}: {error}"
    return True, f"{description.tool} {description.version}"


def isolated(name: str, here: Isolation) -> Isolation:
    """The isolation of the backend's compiles and model processes, as far as this machine allows."""
    try:
        return here if registry.find(name).isolated else Isolation.NONE
    except OnnxBisectError:  # a backend that cannot compile
        return Isolation.NONE


def main() -> None:
    """Describe the backends named on the command line."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for compilers that print while they are asked
    here = level(load_settings())
    for name in sys.argv[1:]:
        usable, words = description(name)
        print(json.dumps([name, usable, clip(words, _LONGEST), isolated(name, here)]), file=answers, flush=True)


if __name__ == "__main__":
    main()
