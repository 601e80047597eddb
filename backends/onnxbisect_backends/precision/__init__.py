"""Runs a model with chosen nodes in low precision, each time in a process of its own, and scores what it computes.

The noun is the **arithmetic** (`arithmetic.Arithmetic`): it runs the model with all nodes low but some. Either
onnxruntime computes what low precision would (`low_precision`, a script), or a compiler's own emulator does
(`targets`). `scoring` compares the outputs with those of full precision, and `configurations` writes which nodes to
keep in each vendor's form. Which nodes to try is decided in `onnxbisect.precision.plan`. Start with `arithmetic`.
"""
