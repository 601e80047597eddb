"""What becomes of the culprits of real models, and what a repair costs beside its diagnosis.

    python benchmarks/remedies.py FOLDER [--only TEXT] [--write docs/compilers.md]

FOLDER holds the models of docs/compilers.md. Each is searched as it is, then repaired: within rounding first, and where
that leaves something, with replacements of any exactness, whose outputs may differ by 1 %. A repair asks what its
search has not asked; nothing is known from earlier runs. `make compilers` installs the compilers.
"""

import argparse
import os
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

import onnx_bisect
import tables
from onnx_bisect import Event, Exactness, FixResult, ModelError, ProbeAnswered
from onnxbisect.proof import Tolerance
from onnxbisect.report.text import clip, plural
from onnxbisect_backends.folders import cache_folder

_HEAD = ("model", "compiler", "culprit", "remedy", "exactness", "largest difference", "compiles")
_COSTS_HEAD = ("model", "compiler", "units", "diagnosis", "repair", "what comes of it")
_SHAPES = {"bert_base12_h256_dyn__ts17": dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, 16))}


@dataclass(frozen=True)
class Case:
    """A model, by the name of its file, and a compiler that refuses something of it; `ir_version` is the file's own
    where it is None.
    """

    model: str
    backend: str
    options: Mapping[str, str] = field(default_factory=dict)
    calls: int = 60
    ir_version: int | None = None

    @property
    def name(self) -> str:
        """The model as the table has it."""
        return self.model.partition("__")[0] + (f", IR {self.ir_version}" if self.ir_version else "")

    @property
    def target(self) -> str:
        """As the table has it."""
        return ", ".join([self.backend, *(f"{key}={value}" for key, value in self.options.items())])

    def file(self, folder: Path, scratch: Path) -> Path:
        """The model file; one that is made for the case is put into `scratch`."""
        path = folder / f"{self.model}.onnx"
        if self.ir_version is None:
            return path
        proto = onnx.load(path)
        proto.ir_version = self.ir_version
        onnx.save(proto, scratch / path.name)
        return scratch / path.name


_OLD_QNN = {"soc_model": "SM8350"}
_BF16_QNN = {"soc_model": "88", "precision": "bf16"}
_TPU = {"version": "1.8.1"}
_CASES = (
    Case("sparse_initializer", "rknn"),
    Case("sparse_initializer", "tpu-mlir", _TPU),
    Case("empty_optional_inputs", "qnn"),
    Case("empty_optional_inputs", "rknn"),
    Case("empty_optional_inputs", "tpu-mlir", _TPU),
    Case("sequence_ops", "qnn"),
    Case("sequence_ops", "rknn", calls=80),
    Case("sequence_ops", "tpu-mlir", _TPU),
    Case("custom_domain_unknown", "qnn"),
    Case("custom_domain_unknown", "rknn"),
    Case("custom_domain_unknown", "tpu-mlir", _TPU),
    Case("torch_cond__dynamo18", "qnn"),
    Case("torch_cond__dynamo18", "rknn"),
    Case("control_captures", "qnn"),
    Case("control_captures", "rknn"),
    Case("control_captures", "tpu-mlir", _TPU),
    Case("local_functions", "rknn"),
    Case("local_functions", "tpu-mlir", _TPU),
    Case("timm_repvit_m0_9__ts17", "rknn"),
    Case("timm_mobilenetv3_small_100__ts17", "qnn", _OLD_QNN),
    Case("timm_mobilenetv3_small_100__ts17", "qnn", _BF16_QNN),
    Case("timm_vit_tiny_patch16_224__ts17", "qnn", _OLD_QNN),
    Case("timm_repvit_m0_9__ts17", "qnn", _OLD_QNN),
    Case("bert_base12_h256_dyn__ts17", "rknn"),
    Case("bert_base12_h256_dyn__ts17", "tpu-mlir", _TPU),
    Case("bert_base12_h256_dyn__ts17", "qnn", _OLD_QNN),
    Case("sam_part1_prompt__ts11", "qnn", _BF16_QNN),
    Case("sam_part3_maskhead__ts11", "qnn", _OLD_QNN),
    Case("sam_decoder__dynamo18", "tpu-mlir", _TPU),
    Case("quant_qdq_timm_resnet18__ts17", "tpu-mlir", _TPU, calls=80),
    Case("sam2_hiera_tiny_encoder__ts17", "tpu-mlir", {**_TPU, "verify": "false"}, calls=130, ir_version=10),
    Case("sam_part1_prompt__ts11", "qnn", _OLD_QNN, calls=150),
    Case("sam_decoder__ts11", "qnn", _OLD_QNN),
)


#: The cells of one culprit, as `_HEAD` has them; the last is "yes", "in part" where other culprits are left, or no.
Row = tuple[str, ...]
_ENDED = "the time for the repair ended"


@dataclass(kw_only=True)
class Cost:
    """The compiler calls of a search or a repair, and their seconds: counts the events that it is called with."""

    calls: int = 0
    seconds: float = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, ProbeAnswered) and not event.cached:
            self.calls += 1
            self.seconds += event.verdict.seconds

    def __str__(self) -> str:
        return f"{plural(self.calls, 'call')}, {self.seconds:.0f} s"


def main() -> None:
    """Print a row as soon as it is known, and write those of each case: the table takes an hour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases whose 'model compiler' has this in it")
    parser.add_argument("--seconds", type=float, default=900, help="for each search and each repair")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="where the rows of these cases are put")
    given = parser.parse_args()
    rows: list[Row] = []
    costs: list[Row] = []
    with TemporaryDirectory() as record:
        (Path(record) / "toolchains").symlink_to(cache_folder() / "toolchains")
        os.environ["ONNXBISECT_CACHE_DIR"] = record
        for case in _CASES:
            if given.only not in f"{case.model} {case.target}":
                continue
            try:
                for row in _rows(case, given.models, given.seconds, costs):
                    rows.append(row)
                    print(f"| {' | '.join(row)} |", flush=True)
            except Exception:
                print(f"{case.model} {case.target} failed:\n{traceback.format_exc()}", flush=True)
            if given.write:
                put(given.write, rows, costs)
    print(_summary(rows))
    print(_table(_COSTS_HEAD, costs))


def put(path: Path, rows: list[Row], costs: list[Row]) -> None:
    """Put the rows into the tables of a document, in place of those of the same model and compiler."""
    document = path.read_text("utf-8")
    every, all_costs = _with(document, "remedies", rows), _with(document, "repairs", costs)
    blocks = {
        "remedies": f"{_summary(every)}\n\n{_table(_HEAD, every)}",
        "repairs": _table(_COSTS_HEAD, all_costs),
    }
    path.write_text(tables.fill(document, blocks), "utf-8")


def _with(document: str, mark: str, rows: list[Row]) -> list[Row]:
    """The rows of a table, with these; those that no case makes come first."""
    inside = document.split(f"<!-- begin {mark} -->")[1].split(f"<!-- end {mark} -->")[0]
    before = [tuple(line.strip("| ").split(" | ")) for line in inside.splitlines() if line.startswith("| ")][2:]
    new = {row[:2] for row in rows}
    order: dict[Row, int] = {(case.name, case.target): number for number, case in enumerate(_CASES)}
    return sorted([*(row for row in before if row[:2] not in new), *rows], key=lambda row: order.get(row[:2], -1))


def _table(head: Row, rows: list[Row]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ("---",) * len(head), *rows))


def _summary(rows: list[Row]) -> str:
    told = [row[-1] for row in rows]
    return (
        f"Of {plural(len(rows), 'culprit')} {told.count('yes')} ({told.count('yes') / max(len(rows), 1):.0%}) end in a "
        f"proven file that compiles, and {told.count('in part')} more are gone from a proven file that has others."
    )


def _rows(case: Case, folder: Path, seconds: float, costs: list[Row]) -> Iterator[Row]:
    with TemporaryDirectory() as scratch:
        yield from _measured(case, case.file(folder, Path(scratch)), seconds, costs)


def _measured(case: Case, model: Path, seconds: float, costs: list[Row]) -> Iterator[Row]:
    """The rows of a case's culprits; what they cost is added to `costs`."""
    shapes, diagnosis, repair = _SHAPES.get(case.model), Cost(), Cost()
    found = onnx_bisect.diagnose(
        model,
        backend=case.backend,
        options=case.options,
        input_shapes=shapes,
        as_is=True,
        budget_calls=case.calls,
        budget_seconds=seconds,
        files=False,
        progress=diagnosis,
    )
    if not found.culprits:
        return
    fixed = None
    for allow, relative in ((Exactness.ROUNDING, 1e-4), (Exactness.DOMAIN, 1e-2)):
        try:
            again = onnx_bisect.fix(
                model,
                backend=case.backend,
                options=case.options,
                input_shapes=shapes,
                allow=allow,
                tolerance=Tolerance(relative=relative),
                budget_calls=case.calls + 100,
                budget_seconds=seconds,
                progress=repair,
            )
        except ModelError as error:
            for culprit in found.culprits:
                yield (*_head(case, culprit), str(error), "-", "-", "**no**")
            return
        if fixed is None or again.repaired or not fixed.repaired:
            fixed = again
        if fixed.compiles:
            break
    assert fixed is not None
    units = str(found.report["model"]["units"])
    costs.append((case.name, case.target, units, str(diagnosis), str(repair), _outcome(fixed)))
    for culprit in found.culprits:
        yield _row(case, culprit, fixed)


def _row(case: Case, culprit: onnx_bisect.Culprit, fixed: FixResult) -> Row:
    told = fixed.document
    nodes = {name for place in culprit.occurrences for name in place}
    changes = [it for it in told.changes if it.node in nodes]
    left = [it for it in told.left if nodes.intersection(it.nodes)]
    file = told.file_change
    rules = list(dict.fromkeys(" + ".join(rule.id for rule in it.rules) for it in changes))
    if file is not None and (not changes or not fixed.compiles):
        rules.insert(0, file.sentence)
    elif not rules and fixed.compiles:
        rules = ["changes beside it"]
    covered = all(nodes_of & {it.node for it in changes} for nodes_of in map(set, culprit.occurrences))
    gone = fixed.compiles or (fixed.repaired and covered and not left)
    measured = [it for change in changes for it in change.differences] or list(told.outputs)
    exactness = max(
        [it.exactness for it in changes] + ([file.exactness] if file else []), key=list(Exactness).index, default=None
    )
    why = "; ".join(dict.fromkeys(reason for it in left for reason in it.reasons)) if told.complete else _ENDED
    return (
        *_head(case, culprit),
        ", ".join(f"`{rule}`" for rule in rules) if gone else clip(why, 240).replace("|", "/"),
        str(exactness) if gone and exactness else "-",
        f"{max((it.absolute for it in measured), default=inf):.2g}" if gone else "-",
        "yes" if fixed.compiles else "in part" if gone else "**no**",
    )


def _outcome(fixed: FixResult) -> str:
    told = fixed.document
    used = Counter(" + ".join(rule.id for rule in it.rules) for it in told.changes)
    made = [*([told.file_change.sentence] if told.file_change else []), *(f"{it} {used[it]}" for it in used)]
    worst = max((it.absolute for it in told.outputs), default=0.0)
    numbers = "outputs identical" if not worst else f"difference {worst:.2g}"
    if fixed.compiles:
        return f"{clip('; '.join(made), 120)}: compiles, {numbers}"
    return f"{plural(len(told.left), 'place')} left" if told.complete else _ENDED


def _head(case: Case, culprit: onnx_bisect.Culprit) -> tuple[str, str, str]:
    sure = "" if culprit.certainty == "confirmed" else f" ({culprit.certainty})"
    places = f"{' + '.join(culprit.ops)} {len(culprit.occurrences)}{sure}"
    return case.name, case.target, places


if __name__ == "__main__":
    main()
