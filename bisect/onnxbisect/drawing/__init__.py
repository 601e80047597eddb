"""Pictures of a model's dataflow: the network of its units, where each is drawn, and files for viewers.

The noun is the **network**: the units by number, with names that are safe to show, and without the contents of tensors.
It is made once, when the model is read (`graph.network_of`). All else needs neither ONNX nor numpy and works on stored
networks, because the API draws them and reads no model.

`layout.layout` places units in rows so that an edge runs down, `network.drawing` lays out some units with their links,
`network_bytes` and `read_network` are its file, and `model_explorer.files` writes it for Google's Model Explorer. Start
with `network`.
"""
