"""pulsar2's error messages, translated to the ONNX file's ops.

Sources: pulsar2-docs issues #5 and #9, ax-samples issue #114, and the logs kept in onnxsim's scripts/axera (pulsar2 2.x
to 6.0-lite). It names the first offending node only, mostly by op type, and after quantisation by its own op types
(AxQuantizedSin for Sin).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx.defs

from onnxbisect.fingerprint import plain
from onnxbisect.verdict import Kind, Table
from onnxbisect_backends.logs import Reading, pattern, read_log

#: The message for an invalid configuration.
_CONFIGURATION = r"Message type \"[\w.]+\" has no field named \"\w+\""

#: Errors of the configuration or samples, not of the model: they give no verdict.
_CONFIGURATION_ERRORS = (
    pattern(r"FileNotFoundError: Could not find file `.*?' in `.*?'", Kind.ERROR),
    pattern(
        r"Numpy File\(.*?\) has dtype\(\w+\), however corresponding type of inputs\((?P<tensor>.*?)\) is", Kind.ERROR
    ),
    pattern(_CONFIGURATION, Kind.ERROR),
)

#: The first match gives the kind; patterns that name a node precede those that name an op.
_REFUSALS = (
    pattern(r"op name: (?P<node>.+?), (?P<op>\w+), .*(?:get opr|pyrun) failed"),
    pattern(r"Graph op: (?P<node>.+)\((?P<op>\w+)\) has no backend implementation"),
    pattern(r"Operator\(name:(?P<node>.+?), type:(?P<op>\w+)\) convert error"),
    pattern(r"TileFailException\W+(?P<op>Ax\w+, Ax\w+) dont support(?:.*\n +op: (?P<node>\S.*))?"),
    pattern(r"OpBuildException\W+op: (?P<op>Ax\w+), 'dont support \w+ opr in [A-Z/_]+"),
    pattern(r"dont support (?P<op>[\w.]+) opr in [A-Z/_]+"),
    pattern(r"AssertionError: (?P<op>Ax\w+) dont support"),
    pattern(r"TileFailException\W+(?P<op>Ax\w+), tuple index out of range(?:.*\n +op: (?P<node>\S.*))?", Kind.ERROR),
    pattern(r"TileFailException\W+(?P<op>Ax\w+), .+(?:\n +op: (?P<node>\S.*))?", Kind.RESOURCE),
    pattern(r"ocm alloc with", Kind.RESOURCE),
    pattern(r"integer \d+ does not fit uint16_t", Kind.RESOURCE),
    pattern(r"'(?P<tensor>[^'\n]+) But var\.dtype = <.*> vs expect_type = <.*>'", Kind.ERROR),
    pattern(r"check onnx parser e2e failed, \['(?P<tensor>[^']*)'", Kind.ERROR),
    pattern(r"Seems config of input\((?P<tensor>.+)\) doesn't exist", Kind.ERROR),
    pattern(r"Op Execution Error: (?P<node>.+)\(TargetPlatform", Kind.ERROR),
    pattern(r"^ +op: (?P<node>\S.*)$", Kind.ERROR),
    pattern(r"ZeroDivisionError: .*", Kind.ERROR),
    pattern(r"IndexError: list index out of range", Kind.ERROR),
    pattern(r"ValueError: list\.remove\(x\): x not in list", Kind.ERROR),
    pattern(r"terminate called after throwing.*", Kind.CRASH),
    pattern(r"<ErrorCode\.\w+: \d+>.*", Kind.ERROR),
)

PATTERNS = (*_CONFIGURATION_ERRORS, *_REFUSALS)

_AX = re.compile(r"^Ax(?:Quantized)?")
#: pulsar2's ops that differ from the ONNX op of the same name, such as its fused MatMul and Add.
_STANDS_FOR = {
    "Reshape": ("Reshape", "Flatten"),
    "Gemm": ("Gemm", "MatMul"),
    "Conv": ("Conv", "MatMul"),
    "GlobAvgPool": ("GlobalAveragePool",),
}

_CELLS = re.compile(r"^[│┃](.*)[│┃]$")
_TITLE = "Quant Precision Table"


def read(log: str) -> Reading:
    """The reading of a log, with the ONNX file's ops."""
    reading = read_log(log, PATTERNS)
    ops: dict[str, None] = {}
    for name in reading.hints.ops:
        # a name of pulsar2 may stand for several ops, an internal one (`lut_float`) for none
        bare = _AX.sub("", name)
        candidates = _STANDS_FOR.get(bare, (bare,)) if bare != name else (name,)
        ops |= dict.fromkeys(op for op in candidates if onnx.defs.has(op))
    return replace(reading, hints=replace(reading.hints, ops=tuple(ops)))


def complaint_about_configuration(log: str) -> str:
    """pulsar2's message about an invalid configuration, before it reads the model; empty if there is none."""
    match = re.search(_CONFIGURATION, plain(log))
    return match[0] if match else ""


def blames_configuration(log: str) -> bool:
    """Whether pulsar2 refuses the configuration or the samples, not the model."""
    text = plain(log)
    return any(pattern.regex.search(text) for pattern in _CONFIGURATION_ERRORS)


def precision_tables(log: str) -> tuple[Table, ...]:
    """The tables of the precision analysis, worst layers first, with multi-line cells joined."""
    tables: list[Table] = []
    title = ""
    rows: list[list[str]] = []
    fresh = True
    for line in log.splitlines():
        line = line.strip()
        if _TITLE in line:
            title, rows, fresh = line, [], True
        elif not title:
            continue
        elif cells := _CELLS.match(line):
            parts = [cell.strip() for cell in re.split("[│┃]", cells[1])]
            if fresh or not rows or len(parts) != len(rows[-1]):
                rows.append(parts)
            else:
                rows[-1] = [before + after for before, after in zip(rows[-1], parts, strict=True)]
            fresh = False
        elif line.startswith("└"):
            if rows:
                columns, *body = (tuple(row) for row in rows)
                whole = tuple(row for row in body if len(row) == len(columns))
                table = Table(title=title, columns=columns, rows=whole)
                tables.append(replace(table, rows=tuple(sorted(whole, key=partial(_cosine, table)))))
            title = ""
        else:
            fresh = True
    return tuple(tables)


@dataclass(frozen=True, kw_only=True)
class AnalysedLayer:
    """A row of the precision analysis."""

    node: str
    type: str
    cosine: float


def layers(table: Table) -> list[AnalysedLayer]:
    """The layers of a precision table, worst first, without those that have no number."""
    if not {"Operator", "Type", "Cosin"} <= set(table.columns):
        return []
    node, kind = (table.columns.index(name) for name in ("Operator", "Type"))
    return [
        AnalysedLayer(node=row[node], type=row[kind], cosine=cosine)
        for row in table.rows
        if (cosine := _cosine(table, row)) <= 1.01
    ]


def _cosine(table: Table, row: Sequence[str]) -> float:
    """The cosine of a layer; larger than any cosine if there is none."""
    try:
        found = float(row[table.columns.index("Cosin")])
    except ValueError:  # no such column, or no number in it
        return 2.0
    return -2.0 if found != found else found  # NaN counts as the worst cosine
