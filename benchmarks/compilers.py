"""What searches of real models cost with vendors' compilers: calls, compiler seconds, and what was found.

    python benchmarks/compilers.py [--reports FOLDER] MODEL.onnx… -- --backend rknn [OPTIONS OF onnx-bisect run]

One model after the other, one compile at a time, without verdicts of other runs. Seconds are wall time: on a machine
that does other things as well they are upper bounds. `make compilers` installs the compilers.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tables

_HEAD = ["model", "units", "calls", "compiler s", "culprits", "certificate", "unknown"]


def main() -> None:
    """Print a row as soon as its search ends: a table takes an hour."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.onnx")
    parser.add_argument("--reports", type=Path, metavar="FOLDER", help="keep the reports here, as MODEL.json")
    given, options = parser.parse_args(words[:at]), words[at + 1 :]
    print(tables.table(_HEAD, []), flush=True)
    for model in given.models:
        report = _search(model, options)
        if given.reports:
            given.reports.mkdir(parents=True, exist_ok=True)
            (given.reports / f"{model.stem}.json").write_text(json.dumps(report))
        print(f"| {' | '.join(_row(model, report))} |", flush=True)


def _search(model: Path, options: Sequence[str]) -> Mapping[str, Any]:
    program = str(Path(sys.executable).with_name("onnx-bisect"))
    command = [program, "run", "--as-is", "--no-cache", "--format", "json", *options, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"onnx-bisect ended with {done.returncode} on {model}: {done.stderr}")
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def _row(model: Path, report: Mapping[str, Any]) -> Iterator[str]:
    stats = report["stats"]
    yield model.stem
    yield str(report["model"]["units"])
    yield str(stats["compiler_calls"])
    yield f"{stats['compile_seconds']:.0f}"
    yield ", ".join(map(_culprit, report["culprits"])) or f"none: {report['verdict']}"
    yield report["certificate"]["status"]
    yield " ".join(report["certificate"]["unknown"]) or "-"


def _culprit(culprit: Mapping[str, Any]) -> str:
    sure = "" if culprit["certainty"] == "confirmed" else f" ({culprit['certainty']})"
    return f"{' + '.join(culprit['ops'])} {len(culprit['occurrences'])}{sure}"


if __name__ == "__main__":
    main()
