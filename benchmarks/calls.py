"""Compiler calls, rounds, engine seconds and culprits found, side by side with what else there is.

    python benchmarks/calls.py [--quick] [--write docs/benchmarks.md]

`make bench` installs the peers and writes the document.
"""

import argparse
import sys
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import blocks
import engine
import generated
import nvidia
import side_by_side
import tables


def main() -> None:
    """Measure everything, then write; a table is never made of two runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a subset, in about a minute; never for the document")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this document")
    parser.add_argument("--without-polygraphy", action="store_true", help="leave NVIDIA Polygraphy out")
    parser.add_argument("--peer-seconds", type=float, default=300.0, help="end a run of a peer after so long")
    given = parser.parse_args()
    if given.write and (given.quick or given.without_polygraphy):
        parser.error("--write is for the whole benchmark: leave --quick and --without-polygraphy out")
    trouble = None if given.without_polygraphy else nvidia.missing()
    if trouble:
        parser.error(f"{trouble} --without-polygraphy goes on without it")
    document = given.write.read_text() if given.write else ""
    found = {
        **generated.run(quickly=given.quick),
        **blocks.run(),
        **side_by_side.run(quick=given.quick, peer_seconds=given.peer_seconds, polygraphy=not given.without_polygraphy),
        **engine.run(quick=given.quick),
        "versions": _versions(polygraphy=not given.without_polygraphy),
    }
    if given.write:
        given.write.write_text(tables.fill(document, found))
        print(f"wrote {given.write}", file=sys.stderr)
    else:
        print("\n\n".join(f"{name}\n\n{block}" for name, block in found.items()))


def _versions(*, polygraphy: bool) -> str:
    names = [
        "onnx-bisect",
        "onnx",
        "onnxruntime",
        "numpy",
        *(["polygraphy", "onnx-graphsurgeon"] if polygraphy else []),
    ]
    return ", ".join([f"Python {python_version()}", *[f"{name} {version(name)}" for name in names]]) + "."


if __name__ == "__main__":
    main()
