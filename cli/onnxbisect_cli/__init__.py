"""The `onnx-bisect` command."""
