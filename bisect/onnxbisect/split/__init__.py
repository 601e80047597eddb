"""Split a model into pieces for the NPU and the host that, run one after another, compute the same."""

from onnxbisect.split.choose import SHARE
from onnxbisect.split.manifest import FORMAT, Entry, Manifest
from onnxbisect.split.schedule import Kind, Part, schedule
from onnxbisect.split.write import MANIFEST, RUNNER, Compile, split

__all__ = [
    "FORMAT",
    "MANIFEST",
    "RUNNER",
    "SHARE",
    "Compile",
    "Entry",
    "Kind",
    "Manifest",
    "Part",
    "schedule",
    "split",
]
