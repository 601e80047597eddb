"""Split a model into pieces for the NPU and the host that, run one after another, compute the same.

The noun is the **piece**: units that run together on one side. `choose` decides which units run on the NPU, from what
compiled and what did not. `schedule` orders them into as few pieces as possible; any assignment of units has an order,
because dataflow has no cycle. `write.split` cuts the pieces, compiles them, writes the manifest and a program that runs
them, and proves in onnxruntime that all together compute what the model does (`prove`). Start with `write.split`.
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
