"""Asks backends what they are, in a process that may die of it: a line of JSON for each, its name and what it says."""

import json
import sys

from onnxbisect.errors import OnnxBisectError
from onnxbisect.report.text import clip
from onnxbisect_backends import registry

_LONGEST = 500


def said(name: str) -> str:
    """Tool and version of the backend, or the sentence why it cannot be used here."""
    try:
        backend = registry.make(name, {})
        complaint = backend.check()
        if complaint is not None:
            return complaint
        description = backend.describe()
    except OnnxBisectError as error:
        return str(error)
    except Exception as error:  # whatever a third party's backend raises
        return f"It cannot be asked: {type(error).__name__}: {error}"
    return f"{description.tool} {description.version}"


def main() -> None:
    """Tell of the backends that are named on the command line."""
    for name in sys.argv[1:]:
        print(json.dumps([name, clip(said(name), _LONGEST)]), flush=True)


if __name__ == "__main__":
    main()
