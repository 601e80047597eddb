"""Which modules of a PyTorch model cannot be exported to ONNX: what to ask the exporter next, and what its answers say.

The noun is the **question**: one export of one module, with stand-ins for modules in it. The insight is that of the
search for culprits: a model that exports with stand-ins for all modules that failed proves that nothing else is wrong.
The code here knows neither PyTorch nor processes: it sees the tree of modules that a probe in the user's Python
recorded, and that probe's answers (`onnxbisect_backends.exporting`).

`plan.plan` gives the next question or the outcome, `failure.cause_of` says what kind of problem a refusal is and on
which line, and `report.ExportReport` is the document with its forms. Start with `plan`.
"""
