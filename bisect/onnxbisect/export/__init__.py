"""Which modules of a PyTorch model cannot be exported to ONNX: what to ask the exporter next, and what its answers say.

The code here knows neither PyTorch nor processes: it sees the tree of modules that a probe in the user's Python
recorded, and that probe's answers.
"""
