"""The stored form of a network: two lines of JSON.

The first is the drawing of the whole model, which a page is sent as it is. The second has the facts of the units; a
part of the model, or a unit, needs both.
"""

import json
from typing import IO

from onnxbisect.drawing.network import Network, drawing


def to_bytes(network: Network) -> bytes:
    """The file; equal networks give equal bytes."""
    rest = {
        name: getattr(network, name)
        for name in ("name", "tensors", "links", "inputs", "outputs", "read", "made", "facts", "facts_of")
    }
    return b"%b\n%b\n" % (dumped(drawing(network, range(len(network)))), dumped(rest))


def dumped(document: object) -> bytes:
    """Compact JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def whole(file: IO[bytes]) -> bytes:
    """The first line: the drawing of the whole model."""
    return file.readline().rstrip(b"\n")


def network(file: IO[bytes]) -> Network:
    """The network, from both lines."""
    drawn, rest = json.loads(file.readline()), json.loads(file.readline())
    return Network(names=drawn["names"], ops=drawn["ops"], **rest)
