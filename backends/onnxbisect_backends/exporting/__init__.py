"""Asks the ONNX exporter of a user's PyTorch about modules, in the user's Python, and checks what it exported."""
