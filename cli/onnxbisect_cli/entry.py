"""The entry point of `onnx-bisect`, before anything is imported that takes time."""

import os
import signal
import sys

#: Commands that end with 0 when they are told to stop.
_SERVICES = ("serve", "worker")


def run() -> None:
    """Run the command. A service that is told to stop while it still starts has nothing to give back."""
    if sys.argv[1:] and sys.argv[1] in _SERVICES:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from onnxbisect_cli import main

    main.run()
