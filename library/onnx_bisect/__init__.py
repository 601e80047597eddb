"""Find every part of an ONNX model that a compiler refuses, and prove that nothing else is wrong (docs/library.md).

`__init__.pyi` says where each name is. Its module is imported with the first use of the name, because a program that
only submits jobs to a server needs neither the engine nor the compilers, which take longer to import than the rest.
"""

import os

import lazy_loader

# onnxruntime's official builds send telemetry to Microsoft by default; models are confidential
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
