"""Kendryte's compiler alone, for its toolchain's Python: `ask_nncase.py MODEL`; exit status 0 if the K210 has it.

The model must have the shapes of all tensors, which its importer does not infer.
"""

import sys
from pathlib import Path

import nncase  # type: ignore[import-not-found]

options = nncase.CompileOptions()
options.target = "k210"
compiler = nncase.Compiler(options)
compiler.import_onnx(Path(sys.argv[1]).read_bytes(), nncase.ImportOptions())
compiler.compile()
sys.exit(not compiler.gencode_tobytes())
