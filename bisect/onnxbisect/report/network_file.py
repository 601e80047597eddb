"""What is stored of a model for its pictures: the drawing of all of it, and what else is known of its units.

Two lines of JSON. The first is what a page is sent, as it is; a part of the model, or a unit, needs both.
"""

import json
from typing import IO

from onnxbisect.report.network import Network, drawing


def to_bytes(network: Network) -> bytes:
    """The same bytes for the same network."""
    rest = {
        name: getattr(network, name)
        for name in ("name", "tensors", "links", "inputs", "outputs", "read", "made", "facts", "facts_of")
    }
    return b"%b\n%b\n" % (dumped(drawing(network, range(len(network)))), dumped(rest))


def dumped(document: object) -> bytes:
    """As short as JSON gets."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def whole(file: IO[bytes]) -> bytes:
    """The drawing of the whole model."""
    return file.readline().rstrip(b"\n")


def network(file: IO[bytes]) -> Network:
    """The network."""
    drawn, rest = json.loads(file.readline()), json.loads(file.readline())
    return Network(names=drawn["names"], ops=drawn["ops"], **rest)
