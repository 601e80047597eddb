"""What searches of real models cost with vendors' compilers: calls, compiler seconds, and what was found.

    python benchmarks/compilers.py [--reports FOLDER] MODEL.onnx… -- --backend rknn [OPTIONS OF onnx-bisect run]
    python benchmarks/compilers.py FOLDER --dearest docs/compilers.md [--reports FOLDER] [--seconds 900]

The second form searches eight pairs that take most of a compiler's time, and puts the calls and seconds of each into
its table as soon as it ends, beside those of an earlier search, which stay. A pair whose report is in `--reports` is
not searched again, so a run that was stopped goes on; a search that takes longer than `--seconds` is ended.

One model after the other, one compile at a time, without verdicts of other runs. Seconds are wall time: on a machine
that does other things as well they are upper bounds. `make compilers` installs the compilers.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tables

#: The dearest searches, and the options of `onnx-bisect run` for them.
_DEAREST = (
    ("control_captures", "--backend rknn"),
    ("sequence_ops", "--backend rknn"),
    ("quant_qdq_timm_resnet18__ts17", "--backend tpu-mlir --option version=1.8.1 --timeout 300 --budget-calls 200"),
    ("sam_part1_prompt__ts11", "--backend qnn --option soc_model=SM8350 --budget-calls 150"),
    ("local_functions", "--backend rknn"),
    ("custom_domain_unknown", "--backend rknn"),
    ("sam_decoder__ts11", "--backend qnn --option soc_model=SM8350"),
    ("control_captures", "--backend tpu-mlir --option version=1.8.1 --timeout 300 --budget-calls 200"),
)
_HEAD = ["model", "units", "calls", "compiler s", "culprits", "certificate", "unknown"]


def main() -> None:
    """Print a row as soon as its search ends: a table takes an hour."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.onnx")
    parser.add_argument("--reports", type=Path, metavar="FOLDER", help="keep the reports here, as MODEL.json")
    parser.add_argument("--seconds", type=float, default=900, help="for each search of --dearest")
    parser.add_argument("--dearest", type=Path, metavar="FILE.md", help="where the table of the dearest pairs is")
    given, options = parser.parse_args(words[:at]), words[at + 1 :]
    if given.reports:
        given.reports.mkdir(parents=True, exist_ok=True)
    if given.dearest:
        with TemporaryDirectory() as scratch:
            _dearest(given.models[0], given.dearest, given.reports or Path(scratch), given.seconds)
        return
    print(tables.table(_HEAD, []), flush=True)
    for model in given.models:
        report = _search(model, options)
        if given.reports:
            (given.reports / f"{model.stem}.json").write_text(json.dumps(report))
        print(f"| {' | '.join(_row(model, report))} |", flush=True)


def _dearest(folder: Path, path: Path, reports: Path, seconds: float) -> None:
    """Search the dearest pairs, and write what each took beside what it took before."""
    for model, options in _DEAREST:
        name, target = model.partition("__")[0], _target(options)
        kept = reports / f"{name}, {target}.json"
        if not kept.exists():
            words = [*options.split(), "--budget-seconds", str(seconds)]
            kept.write_text(json.dumps(_search(folder / f"{model}.onnx", words)))
        report = json.loads(kept.read_text())
        stats = report["stats"]
        ended = "" if report["certificate"]["status"] == "proven" else ", *bounded*"
        now = f"{stats['compiler_calls']}{ended} | {stats['compile_seconds']:.0f}"
        document = path.read_text("utf-8")
        inside = document.split("<!-- begin dearest -->")[1].split("<!-- end dearest -->")[0].strip()
        row = rf"^(\| {re.escape(name)} \| {re.escape(target)} \| [^|]+ \| [^|]+ \|) .*"
        inside, count = re.subn(row, rf"\1 {now} |", inside, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"{path} must have one row of {name} and {target}")
        path.write_text(tables.fill(document, {"dearest": inside}), "utf-8")
        print(f"| {name} | {target} | {now} |", flush=True)


def _target(options: str) -> str:
    """The compiler and the chip, of the options of a search."""
    words = options.split()
    return " ".join(word for word in words if word in ("rknn", "tpu-mlir", "qnn") or word.startswith("soc_model="))


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
