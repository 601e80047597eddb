"""Asks backends what they are, in a process that may die of it: a line of JSON for each, its name, whether it can be
used, what it says, and how far its compiles are kept away from the rest of the machine.
"""

import json
import sys

from onnxbisect.errors import OnnxBisectError, OptionError
from onnxbisect.report.text import clip
from onnxbisect_backends import registry
from onnxbisect_backends.sandbox.isolation import Isolation
from onnxbisect_service.settings import load_settings
from onnxbisect_worker.model_processes.confinement import level

_LONGEST = 500


def said(name: str) -> tuple[bool, str]:
    """True, and tool and version of the backend; False, and the sentence why it cannot be used here."""
    try:
        backend = registry.make(name, {})
        complaint = backend.check()
        if complaint is not None:
            return False, complaint
        description = backend.describe()
    except OptionError as error:  # what is to be said in a job's target is nothing against the tool
        return True, str(error)
    except OnnxBisectError as error:
        return False, str(error)
    except Exception as error:  # whatever a third party's backend raises
        return False, f"It cannot be asked: {type(error).__name__}: {error}"
    return True, f"{description.tool} {description.version}"


def isolated(name: str, here: Isolation) -> Isolation:
    """That of the backend's compiles and of what reads their models, where the machine allows so much."""
    try:
        return here if registry.find(name).isolated else Isolation.NONE
    except OnnxBisectError:  # it compiles nothing
        return Isolation.NONE


def main() -> None:
    """Tell of the backends that are named on the command line."""
    here = level(load_settings())
    for name in sys.argv[1:]:
        usable, words = said(name)
        print(json.dumps([name, usable, clip(words, _LONGEST), isolated(name, here)]), flush=True)


if __name__ == "__main__":
    main()
