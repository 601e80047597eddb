"""Read an ONNX file into a `Model`: numbered units, and all that is known of its tensors before anything is compiled.

Files are hostile: `gate` checks once what all later code relies on. A cut through a tensor needs its concrete type,
which shape inference alone does not find, so the model is run once in onnxruntime (`run`), and inference fills the rest
(`shapes`). Values that no input changes are known values and stay with the units that read them. Start with `load`.
"""

from onnxbisect.model.load import MEMORY_LIMIT, load
from onnxbisect.model.model import Established, Model, Unit

__all__ = ["MEMORY_LIMIT", "Established", "Model", "Unit", "load"]
