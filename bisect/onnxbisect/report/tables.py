"""Tables that compilers print beside their verdicts, such as where each node runs: which ones a report shows."""

from collections import Counter

from onnxbisect.diagnosis import CompletedDiagnosis
from onnxbisect.language import _
from onnxbisect.report.contents import TableEntry
from onnxbisect.report.records import Records
from onnxbisect.report.text import clean, plural
from onnxbisect.unitset import is_subset

#: Most values that a summary counts separately.
_COUNTED = 6


def tables(job: CompletedDiagnosis, records: Records) -> list[TableEntry]:
    """The tables of the whole model, if it got that far; else those of the probes that prove the remainder.

    A probe whose units are all in earlier ones is left out.
    """
    whole = job.model.universe.everything
    asked = [(name, probe) for name, probe in records.named_probes if probe.verdict.tables]
    chosen = [(name, probe) for name, probe in asked if probe.units == whole][-1:]
    if not chosen:
        proof = set(job.diagnosis.certificate.probes)
        shown = 0
        for name, probe in asked:
            if probe.units in proof and probe.verdict.passed and not is_subset(probe.units, shown):
                shown |= probe.units
                chosen.append((name, probe))
    return [
        {
            "title": table.title,
            "probe": name,
            "columns": list(table.columns),
            "rows": [list(row) for row in table.rows],
            "counted": table.counted or None,
        }
        for name, probe in chosen
        for table in probe.verdict.tables
    ]


def summary(table: TableEntry) -> str:
    """`NPU 41, CPU 3`: the rows by their value in the column that counts; else `44 rows`."""
    rows = table["rows"]
    if table["counted"] not in table["columns"]:
        return plural(len(rows), "row")
    column = table["columns"].index(table["counted"])
    counts = Counter(clean(row[column]) for row in rows).most_common()
    shown = [f"{value} {count}" for value, count in counts[:_COUNTED]]
    return ", ".join(shown) + (
        (" " + _("and {more} more", more=len(counts) - _COUNTED)) if len(counts) > _COUNTED else ""
    )
