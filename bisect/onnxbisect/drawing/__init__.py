"""Pictures of a model's dataflow: the network of its units, where each is drawn, and files for viewers.

`graph` makes the `Network` of a model that was read. All else needs no ONNX and works on stored networks, because the
API draws them: `layout` places the units in rows, `network` draws and stores a network, and `model_explorer` writes it
for Google's Model Explorer.
"""
