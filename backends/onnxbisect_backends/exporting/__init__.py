"""Asks the ONNX exporter of a user's PyTorch about modules, in the user's Python, and checks what it exported.

The exporter is that of the user's environment, whose versions are not ours. So a script runs there that needs torch
alone (`torch_probe`): it loads the model once and forks a child for each export, which may crash, hang or change the
model. The modules named `probed_…` are parts of that script and import nothing of ours. `probe.ExportProcess` starts it
and asks it, and `checking.check` compares an exported file with the module. What to ask is decided in
`onnxbisect.export.plan`. Start with `probe`.
"""
