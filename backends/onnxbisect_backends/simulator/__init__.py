"""The `whitelist` backend: a compiler simulated from a profile of the ops that a real one supports.

A profile (`profiles`) is a TOML file with ops, constraints and the words of refusals; `refusals` applies it to a model.
Profiles come from documents, from a measurement (`onnxbisect_backends.measurement`) or from reports of runs.
"""
