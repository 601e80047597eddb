"""Compiling pieces of a model, for the library and for the service.

`loaded_model` reads a model, `search_context` combines it with one target, `prober` writes and compiles one probe, and
`culprit_files` cuts the files of culprits. What becomes of the answers is decided elsewhere (`onnx_bisect.steps`).
"""
