"""Intake: from an ONNX file to a Model."""
