"""The page of compilers and workers: which are available, and how many probes wait and run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from onnxbisect.language import english
from onnxbisect_api.access import Admin, Reader
from onnxbisect_api.errors.problems import Problem, missing
from onnxbisect_api.parameters import BackendName, TheService
from onnxbisect_api.routes.backends import BackendView, backend_views, worker_views
from onnxbisect_api.site.rendering import page
from onnxbisect_db import queues

router = APIRouter()

_MOST = 100_000


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row of the table: a backend with its workers, grouped by equal tools and by equal errors."""

    backend: BackendView
    tools: Sequence[tuple[str, Sequence[str]]]
    refusals: Sequence[tuple[str, Sequence[str]]]


@router.get("/backends")
def backend_list_page(request: Request, service: TheService, caller: Reader) -> Response:
    """The page; available backends come first. A script fetches it again and again and replaces its tables."""
    with service.database.session() as session:
        views, workers = backend_views(session), worker_views(session)
    rows = []
    for view in sorted(views, key=lambda view: (not view.usable, view.name)):
        takes: dict[str, list[str]] = {}
        refuses: dict[str, list[str]] = {}
        for worker in view.workers:
            group = takes if worker.takes and worker.usable is not False else refuses
            group.setdefault(worker.says, []).append(worker.id)
        rows.append(_Row(backend=view, tools=list(takes.items()), refusals=list(refuses.items())))
    return page(
        request,
        "backends.html.j2",
        caller,
        rows=rows,
        usable=sum(view.usable for view in views),
        queued=sum(view.queued for view in views),
        running=sum(view.running for view in views),
        workers=sorted(workers, key=lambda it: (not it.alive, it.id)),
    )


@router.post("/backends/{name}")
def limit_backend(
    name: BackendName, service: TheService, caller: Admin, at_most: Annotated[str, Form()] = ""
) -> Response:
    """Limit how many probes of a backend run at a time, and redirect to the page; an empty field removes the limit."""
    text = at_most.strip()
    if text and not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) and int(text) <= _MOST):
        raise Problem(
            422, english("How many may run at a time is a number from 0 to {most}, or empty for no bound.", most=_MOST)
        )
    with service.database.session() as session:
        if name not in {view.name for view in backend_views(session)}:
            raise missing(english("backend"))
    service.database.run(lambda session: queues.limit(session, name, int(text) if text else None))
    return RedirectResponse("/backends", 303)
