"""A toy compiler for examples/mychip.toml: `mychip.py MODEL OUTPUT --chip NAME` refuses ops its chip does not have.

It behaves like many real ones: it names the first op that it stumbles over, and prints a banner around it.
"""

import argparse
import sys
from pathlib import Path

import onnx

MISSING = {"mc1": {"Erf", "Gather", "Einsum", "Sin", "Cos"}, "mc2": {"Einsum"}}


def main() -> int:
    """Compile; the exit status is 0 only where a binary was written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", action="version", version="mychip compiler 0.3.1 (toy)")
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--chip", default="mc1", choices=sorted(MISSING))
    args = parser.parse_args()
    model = onnx.load(args.model, load_external_data=False)
    print(f"[mychip] lowering {len(model.graph.node)} nodes for {args.chip}")
    for node in model.graph.node:
        if node.domain or node.op_type in MISSING[args.chip]:
            name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            print(f"[mychip] error: node '{node.name}': operator {name} is not in the instruction set", file=sys.stderr)
            return 1
    args.output.write_bytes(b"MYCHIP" + len(model.graph.node).to_bytes(4, "little"))
    print("[mychip] done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
