"""An export's report as a page and as SARIF, which points to the lines of the user's code."""

from onnxbisect.export.report import Blamed, ExportReport, exports, footer, line, part
from onnxbisect.language import in_english
from onnxbisect.report.ci import located, log, text
from onnxbisect.report.html import environment
from onnxbisect.report.text import clean, plural


def html(report: ExportReport) -> str:
    """One file that opens offline, without scripts."""
    compiles = {it.path: it.compiles for it in report.parts if it.compiles}
    page = environment().get_template("export.html.j2")
    return page.render(report=report, compiles=compiles, line=line, exports=exports, part=part, footer=footer(report))


@in_english
def sarif(report: ExportReport, root: str = "") -> str:
    """One run with one result for each module that does not export; files below `root` are relative to it.

    The physical location is the line that the exporter complains about, else line 1 of the file with the function.
    """
    kinds = list(dict.fromkeys(str(it.kind) for it in report.culprits))
    results = [_result(report, it, kinds.index(str(it.kind)), root) for it in report.culprits]
    rules: list[dict[str, object]] = [
        {
            "id": kind,
            "name": kind,
            "shortDescription": {"text": f"PyTorch code that does not export to ONNX: {kind}"},
            "help": {"text": clean(next(it.remedy for it in report.culprits if it.kind == kind))},
        }
        for kind in kinds
    ]
    return log(rules, results, {"verdict": clean(report.headline), "proven": report.proven})


def _result(report: ExportReport, one: Blamed, rule: int, root: str) -> dict[str, object]:
    places = f" (at {plural(len(one.places), 'place')})" if len(one.places) > 1 else ""
    said = f"{one.path or 'the model'} ({one.cls}) does not export{places}: {one.message}. Instead: {one.remedy}"
    file, number, code = (
        (one.place.file, one.place.line, one.place.source) if one.place else (report.source.rpartition(":")[0], 1, "")
    )
    below = root.rstrip("/") + "/"
    file = file.removeprefix(below) if root else file
    return {
        "ruleId": str(one.kind),
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": text(said)},
        "locations": [located(file, number, code, one.places)],
        "partialFingerprints": {"module/v1": clean(f"{one.path}:{one.kind}")},
    }
