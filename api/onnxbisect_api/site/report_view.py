"""The values for the templates `_report.html.j2` and `_overview.html.j2` on a page of the service."""

from onnxbisect.language import _, marked
from onnxbisect.report.contents import Report
from onnxbisect.report.links import CulpritLinks, Link, Links
from onnxbisect.report.overview import Overview
from onnxbisect.report.overview_forms import overview_page
from onnxbisect.report.readers import readers
from onnxbisect_api.culprit_files import address_of, number_of
from onnxbisect_api.forms import Form
from onnxbisect_api.overviews import labelled
from onnxbisect_db.tables import Job, Search

_FORMS = {
    Form.JSON: "JSON",
    Form.MD: "Markdown",
    Form.HTML: marked("HTML file"),
    Form.JUNIT: "JUnit",
    Form.SARIF: "SARIF",
    Form.GITLAB: "GitLab Code Quality",
}


def report_view(job: Job, search: Search, document: Report) -> dict[str, object]:
    """The values for one target, whose report is `document`, in the reader's language."""
    return {"doc": readers(document), "links": _links(job, search)}


def overview_view(job: Job, document: Overview) -> dict[str, object]:
    """The values for all targets of the job, whose overview is `document`, in the reader's language."""
    numbers = {label: search.ordinal + 1 for label, search in labelled([job])[0].items()}
    return {"overview": overview_page(document, lambda label: f"/jobs/{job.id}?target={numbers[label]}")}


def _links(job: Job, search: Search) -> Links:
    target = search.ordinal + 1
    url = f"/v1/jobs/{job.id}"
    culprits: dict[int, dict[str, str]] = {}
    for path in (it for it in search.files if it.startswith("culprits/")):
        folder, _slash, name = path.removeprefix("culprits/").partition("/")
        culprits.setdefault(number_of(folder), {})[name] = address_of(url, path, target)
    return Links(
        culprits={number: _culprit(job, target, number, files) for number, files in culprits.items()},
        forms=(
            *(Link(text=_(text), href=f"{url}/report?target={target}&format={form}") for form, text in _FORMS.items()),
            *(_model_explorer(url, target) if search.graph is not None else ()),
        ),
        probes=f"/jobs/{job.id}/probes?target={target}",
        may_repair=job.request.get("repair") is None,
        each_probe=f"/jobs/{job.id}/probes/{{}}?target={target}",
    )


def _model_explorer(url: str, target: int) -> tuple[Link, ...]:
    return tuple(
        Link(text=text, href=f"{url}/model-explorer/{name}.json?target={target}")
        for name, text in (("graph", _("Model Explorer: graph")), ("verdicts", _("Model Explorer: verdicts")))
    )


def _culprit(job: Job, target: int, number: int, files: dict[str, str]) -> CulpritLinks:
    names = [name for name in ("model.onnx", "model.data") if name in files]
    netron = f"/jobs/{job.id}/culprits/{number}/netron?target={target}"
    return CulpritLinks(
        files=tuple(Link(text=_("Download {file}", file=name), href=files[name]) for name in names),
        saved_as="model.onnx",
        log=files.get("compiler.log", ""),
        graph="#graph",
        viewers=(Link(text=_("Open in Netron"), href=netron),) if names else (),
    )
