"""Makes a model of tens of megabytes small enough for a repository: `python examples/shrink.py BIG.onnx small.onnx`.

Graph, names, shapes, attributes and metadata stay as they are; only the values of large weights go. Every float32
initializer above 1 kB becomes external data at one of two places of one file, `small.weights`: they all share the same
bytes, a short pattern over and over, which git packs to a few kilobytes. What is small stays exact, and so does
everything that is not float32: shapes, axes and indices decide what a compiler says. `--weights NAME` names a file that
several models share; it grows as needed and is the same from its beginning for all of them. In stack traces, the place
of the virtual environment on the exporter's machine becomes `/venv`.
"""

import argparse
import re
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

#: Initializers of up to so many bytes stay in the model, exactly.
SMALL = 1024
#: The file begins with so many positive numbers, for vectors: a variance or a scale must not be negative.
VECTOR_BYTES = 1 << 16
#: A period that is prime, so that rows of a matrix are not all alike; zero mean, so that deep models stay finite.
WAVE = np.cos(np.arange(61, dtype=np.float32) ** 2) / 20


def main() -> None:
    """Read, replace, write."""
    parser = argparse.ArgumentParser(description="Replace the large weights of an ONNX model by a short pattern.")
    parser.add_argument("big", type=Path)
    parser.add_argument("small", type=Path)
    parser.add_argument("--weights", help="file for the weights, beside the small model; default: its name, .weights")
    arguments = parser.parse_args()
    model = onnx.load(arguments.big)
    weights = arguments.small.with_name(arguments.weights or f"{arguments.small.stem}.weights")
    for node in model.graph.node:
        for entry in node.metadata_props:
            entry.value = re.sub(r'(?<=")/[^"\n]*(?=/lib/python)', "/venv", entry.value)
    sizes = [move(tensor, weights.name) for tensor in model.graph.initializer]
    written = weights.stat().st_size if weights.exists() else 0
    weights.write_bytes(pattern(max(written, *sizes)))
    onnx.save(model, arguments.small)
    onnx.checker.check_model(str(arguments.small))
    print(f"{arguments.small}: {arguments.small.stat().st_size} bytes, {weights.name}: {weights.stat().st_size} bytes")


def move(tensor: TensorProto, location: str) -> int:
    """Point a large tensor at the shared bytes; returns how long the file must be for it, 0 where it stays."""
    size = int(np.prod(tensor.dims, dtype=np.int64)) * 4
    if tensor.data_type != TensorProto.FLOAT or size <= SMALL:
        return 0
    offset = 0 if len(tensor.dims) == 1 and size <= VECTOR_BYTES else VECTOR_BYTES
    moved = TensorProto(name=tensor.name, dims=tensor.dims, data_type=TensorProto.FLOAT, doc_string=tensor.doc_string)
    moved.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, "length": size}.items():
        moved.external_data.add(key=key, value=str(value))
    tensor.CopyFrom(moved)
    return offset + size


def pattern(length: int) -> bytes:
    """The first `length` bytes of the shared file."""
    positive = np.resize(np.abs(WAVE) + np.float32(0.5), VECTOR_BYTES // 4).astype("<f4").tobytes()
    return (positive + np.resize(WAVE, length // 4 + 1).astype("<f4").tobytes())[:length]


if __name__ == "__main__":
    main()
