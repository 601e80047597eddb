"""Split a model into pieces for the NPU and the host that, run one after another, compute the same.

`choose` decides which units run on the NPU, `schedule` orders them into as few pieces as possible, and `write` cuts the
pieces, writes the manifest and a program that runs them, and proves the result.
"""

from onnxbisect.split.choose import SHARE
from onnxbisect.split.manifest import FORMAT, MANIFEST, Manifest, WrittenPiece
from onnxbisect.split.schedule import PieceKind, PieceUnits, schedule
from onnxbisect.split.write import RUNNER, Compile, split

__all__ = [
    "FORMAT",
    "MANIFEST",
    "RUNNER",
    "SHARE",
    "Compile",
    "Manifest",
    "PieceKind",
    "PieceUnits",
    "WrittenPiece",
    "schedule",
    "split",
]
