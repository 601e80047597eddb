"""Measures which ops a compiler accepts, with single-node models, and writes a profile with the same answers.

ONNX has tests of every op, each a model of one node. `node_tests` writes their values into the model, as real models
have them, in up to five forms; a compiler's answers to those become a profile for the simulator
(`measured.measured_profile`). A limit is stated only where two uses that differ in nothing else show it.
`recorded.recorded_profile` makes a profile from reports of runs, without a compiler. Start with `measured`.
"""
