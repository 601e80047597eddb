"""The types of the fixtures with which file remedies are tested."""

from collections.abc import Callable
from pathlib import Path

from onnxbisect.file_remedies import ChangedCopy

#: Writes a model, given as ONNX's text without its header or as a proto.
Save = Callable[..., Path]
#: Applies remedies to a file.
Repair = Callable[..., ChangedCopy]
#: Asserts that a changed file computes the same.
Same = Callable[..., None]
