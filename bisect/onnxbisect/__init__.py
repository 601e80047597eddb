"""The engine of onnx-bisect: model, cuts, search, diagnosis, report. Pure: no network, no database, no process."""
