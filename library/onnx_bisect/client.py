"""`Client` submits jobs to an onnx-bisect server over its REST API and fetches their results."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast, get_type_hints
from urllib.parse import urljoin
from uuid import uuid4

import httpx2

from onnx_bisect.job_documents import JobStatus, JobTerms, Part, RemoteTarget, TargetStatus
from onnx_bisect.server_connection import ServerConnection
from onnxbisect.errors import BackendUnusableError, OnnxBisectError, OptionError
from onnxbisect.input_value import InputValues
from onnxbisect.model.external import locations
from onnxbisect.model.read import read
from onnxbisect.report.contents import Report
from onnxbisect.terms import PrecisionTerms, RepairTerms, SearchTerms, requested, values_of

if TYPE_CHECKING:  # they import what makes reports, and the engine
    from onnx_bisect.remote_results import RemotePrecision, RemoteRepair
    from onnx_bisect.result import Result
    from onnxbisect.report.overview import Overview

#: For uploads: the server answers only after gigabytes are on its disk.
_UPLOAD_TIMEOUT = httpx2.Timeout(60.0, connect=10.0, read=900.0)
#: Seconds that the server may keep a request open until a job ends.
_WAIT = 30


class Client:
    """A client of one server, and a context manager that closes its connections.

    Every method raises OptionError if the server rejects the request, and BackendUnusableError if the server cannot be
    reached or fails.
    """

    def __init__(self, url: str, token: str) -> None:
        self._server = ServerConnection(url, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def submit(
        self,
        model: str | PathLike[str],
        *,
        input_shapes: Mapping[str, Sequence[int]] | None = None,
        input_values: InputValues | None = None,
        calibration: str | PathLike[str] | None = None,
        **terms: Unpack[JobTerms],
    ) -> "RemoteJob":
        """Upload a model and create a job that diagnoses it.

        `calibration` is a `.npz` or `.npy` file, or a folder of them. Raises ModelError for an invalid model.
        """
        part = Part(
            label="",
            model=Path(model),
            input_shapes=input_shapes or {},
            input_values=input_values or {},
            calibration=None if calibration is None else Path(calibration),
        )
        (job,) = self.submit_parts([part], **terms)
        return job

    def submit_parts(self, parts: Sequence[Part], **terms: Unpack[JobTerms]) -> tuple["RemoteJob", ...]:
        """Upload several models and create a job for each, all with the same targets. Returns the jobs in their order.

        `parts_table` makes one table of the results; the server returns the same table at `GET /v1/parts`.
        """
        if unknown := sorted(terms.keys() - get_type_hints(JobTerms).keys()):
            raise TypeError(f"There is no argument {unknown[0]!r}: JobTerms has those that there are.")
        targets = list(terms.get("targets", ()))
        if (backend := terms.get("backend")) is not None:
            targets.insert(0, RemoteTarget(backend=backend, options=terms.get("options") or {}))
        for target in targets:
            if "/" in target.backend or target.backend.endswith(".toml"):
                raise OptionError(
                    f"The backend {target.backend} is a file, and a server takes names of backends that it has; "
                    "'onnx-bisect run' takes files."
                )
        self._demand_offered(targets)
        sent = [self._sent(part) for part in parts]
        repair, precision = terms.get("repair"), terms.get("precision")
        wanted = {
            **(sent[0] if len(sent) == 1 else {"models": sent}),
            "targets": [{"backend": target.backend, "options": dict(target.options)} for target in targets],
            **requested(SearchTerms, terms),
            "labels": dict(terms.get("labels") or {}),
            "webhook": terms.get("webhook"),
            "priority": terms.get("priority"),
            "repair": None if repair is None else self._repair(repair),
        }
        if precision is not None:  # `low` is sent in any case, because a request without fields would not be sent
            wanted["precision"] = {"low": precision.low, **requested(PrecisionTerms, vars(precision))}
        asked = {key: it for key, it in wanted.items() if it not in (None, {}, False, 0)}
        jobs = []
        for made, part in zip(self.create(asked, key=str(uuid4())), parts, strict=True):
            # servers of earlier versions send no `page`
            url, page = (urljoin(f"{self._server.url}/", it) for it in (made["url"], made.get("page", made["url"])))
            jobs.append(RemoteJob(client=self, id=made["id"], url=url, page=page, model=part.model))
        return tuple(jobs)

    def _demand_offered(self, targets: Sequence[RemoteTarget]) -> None:
        """OptionError for a backend or an option that the server does not have, before gigabytes are uploaded.

        Values are for the server to judge; so are the options of a backend that it knows from workers alone.
        """
        answer = self._server.send("GET", "/v1/backends", fine=(403, 404))
        if not answer.is_success:
            return
        offered = {it["name"]: [option["name"] for option in it["options"]] for it in answer.json()}
        for target in targets:
            known = offered.get(target.backend)
            wrong = [key for key in target.options if known and key not in known]
            if known is None or wrong:
                from onnxbisect_backends.options import unknown  # it takes time, and is only for mistakes

                raise OptionError(
                    unknown("backend of this server", target.backend, offered)
                    if known is None
                    else unknown(f"option of the backend '{target.backend}'", wrong[0], known)
                )

    def _sent(self, part: Part) -> dict[str, Any]:
        """Upload one model and its calibration. Returns the fields of the job request for this model."""
        proto, sha256, _ = read(part.model)
        data = [file.relative_to(part.model.parent).as_posix() for file in locations(proto, part.model.parent)]
        del proto
        return {
            "model": self.upload(part.model, sha256, data),
            "input_shapes": {name: list(shape) for name, shape in part.input_shapes.items()},
            "input_values": {
                name: list(value) if isinstance(value, Sequence) else value for name, value in part.input_values.items()
            },
            "calibration": {}
            if part.calibration is None
            else {sample.name: self.store(sample) for sample in _samples(part.calibration)},
        }

    def _repair(self, terms: RepairTerms) -> dict[str, Any]:
        from onnxbisect_backends.other_options import listed  # it imports all backends

        samples = [] if terms.sample_path is None else _samples(terms.sample_path)
        return {
            **requested(RepairTerms, values_of(terms)),
            "samples": {sample.name: self.store(sample) for sample in samples},
            **({} if terms.alternatives is None else {"alternatives": listed(terms.alternatives)}),
        }

    def upload(self, model: Path, sha256: str, data: Sequence[str]) -> str:
        """Upload a model, unless the server has it by its name, and return the SHA-256 under which it is stored there.

        `data` are the locations of its external data, relative to its folder. `sha256` is the hash of all these files.
        """
        known = self._server.send("GET", f"/v1/models/{sha256}", fine=(404,))
        if known.is_success and known.json()["name"] == model.name:  # reports name it, and CI looks for that file
            return sha256
        if not data:
            named = {"name": model.name}
            sent = self._server.send("PUT", "/v1/models", params=named, content=model, timeout=_UPLOAD_TIMEOUT)
        else:
            with ExitStack() as files:
                opened = [("model", (model.name, files.enter_context(model.open("rb"))))]
                for location in data:
                    opened.append(("data", (location, files.enter_context((model.parent / location).open("rb")))))
                sent = self._server.send("POST", "/v1/models", files=opened, timeout=_UPLOAD_TIMEOUT)
        return str(sent.json()["sha256"])

    def store(self, content: Path) -> str:
        """Upload a file that a job refers to, and return the SHA-256 under which the server stores it."""
        return str(self._server.send("PUT", "/v1/files", content=content).json()["sha256"])

    def create(self, job: Mapping[str, object], key: str) -> list[JobStatus]:
        """Create jobs, one for each model. A retry with the same `key` returns the jobs that were created before."""
        made = self._server.send("POST", "/v1/jobs", json=dict(job), headers={"Idempotency-Key": key}).json()
        jobs: list[JobStatus] = made.get("jobs", [made])
        return jobs

    def ended(self, job_id: str, told: Callable[[JobStatus], None]) -> JobStatus:
        """Wait until the job has ended and return it. `told` is called with each state that the server returns."""
        while True:
            job = cast(JobStatus, self._server.json("GET", f"/v1/jobs/{job_id}", params={"wait": _WAIT}))
            told(job)
            if job["state"] not in ("queued", "running"):
                return job

    def cancel(self, job_id: str) -> None:
        """Cancel the job; no effect if it has ended."""
        self._server.send("POST", f"/v1/jobs/{job_id}/cancel", fine=(409,))

    def report(self, job_id: str, target: int) -> Report:
        """The report on a target; targets count from 1."""
        params = {"format": "json", "target": target}
        return cast(Report, self._server.json("GET", f"/v1/jobs/{job_id}/report", params=params))

    def overview(self, job_id: str) -> "Overview":
        """The overview of a job with several targets."""
        return cast("Overview", self._server.json("GET", f"/v1/jobs/{job_id}/report", params={"format": "json"}))

    def repair(self, job_id: str, target: int) -> "RemoteRepair":
        """The result of the repair of a target; targets count from 1."""
        from onnx_bisect.remote_results import RemoteRepair
        from onnxbisect.remedies.document import RepairDocument

        def fetch(path: str, to: Path) -> bool:
            path, _, form = path.partition("?format=")
            params = {"target": str(target)} | ({"format": form} if form else {})
            address = f"/v1/jobs/{job_id}/repair{path}"
            return self._server.send("GET", address, fine=(404,), to=to, params=params).is_success

        document = self._server.json("GET", f"/v1/jobs/{job_id}/repair", params={"target": target})
        return RemoteRepair(document=RepairDocument.of_json(document), fetch=fetch)

    def precision(self, job_id: str, target: TargetStatus) -> "RemotePrecision":
        """The result of the search for a target's nodes that must stay precise."""
        from onnx_bisect.remote_results import FOLDER, RemotePrecision

        number, names = target["number"], [it.removeprefix(FOLDER) for it in target["files"] if it.startswith(FOLDER)]

        def fetch(name: str, to: Path) -> None:
            address = f"/v1/jobs/{job_id}/{FOLDER}{name}"
            self._server.send("GET", address, to=to, params={"target": str(number)})

        address = f"/v1/jobs/{job_id}/{FOLDER}precision.json"
        document = self._server.json("GET", address, params={"target": number})
        return RemotePrecision.of(document, names, fetch)

    def culprit_file(self, job_id: str, target: int, number: int, name: str, to: Path) -> bool:
        """Download a file of a culprit to `to`; culprits count from 1. Returns False if it has no file of that name."""
        path = f"/v1/jobs/{job_id}/culprits/{number}/{name}"
        return self._server.send("GET", path, fine=(404,), to=to, params={"target": target}).is_success

    def model_explorer(self, job_id: str, target: int, name: str) -> bytes | None:
        """One of the files for Model Explorer; None if the server has none for this job."""
        path = f"/v1/jobs/{job_id}/model-explorer/{name}"
        answer = self._server.send("GET", path, fine=(404, 409), params={"target": target})
        return answer.content if answer.is_success else None


@dataclass(frozen=True, kw_only=True)
class RemoteJob:
    """A job on a server. `url` is its REST address, `page` its page in the browser, `model` the file that was given."""

    id: str
    url: str
    page: str
    model: Path | None = None
    client: Client = field(repr=False, compare=False)

    def wait(self, told: Callable[[JobStatus], None] = lambda job: None) -> JobStatus:
        """Wait until the job has ended and return it (docs/api.md). `told` is called with its state while it runs."""
        return self.client.ended(self.id, told)

    def cancel(self) -> None:
        """Cancel the job; its verdicts so far are kept. No effect if it has ended."""
        self.client.cancel(self.id)

    def result(self, target: int = 1) -> "Result":
        """Wait until the job has ended, and fetch the result for a target; targets count from 1.

        Raises OptionError if the target failed because of a mistake in the request, else BackendUnusableError.
        """
        found = self.wait()["targets"][target - 1]
        if found["state"] != "done":
            raise failure(found)
        return self.fetched(found)

    def repair(self, target: int = 1) -> "RemoteRepair":
        """Wait until the job has ended, and fetch the result of a target's repair; targets count from 1.

        Raises OptionError if no repair was requested, BackendUnusableError if the repair or its target has failed.
        """
        found = self.wait()["targets"][target - 1]
        if found["state"] != "done":
            raise failure(found)
        repair = found.get("repair")  # servers of earlier versions have no such field
        if repair is None:
            raise OptionError("No repair was asked for: submit the model with 'repair'.")
        if repair["url"] is None:
            raise BackendUnusableError(f"There is no repair: {repair['problem'] or repair['state']}")
        return self.client.repair(self.id, target)

    def precision(self, target: int = 1) -> "RemotePrecision":
        """Wait until the job has ended, and fetch a target's nodes that must stay precise; targets count from 1.

        Raises OptionError if they were not asked for, or by a mistake in the request; BackendUnusableError if the
        target, or the search for them, has failed.
        """
        found = self.wait()["targets"][target - 1]
        if found["state"] != "done":
            raise failure(found)
        precision = found.get("precision")  # servers of earlier versions have no such field
        if precision is None:
            raise OptionError("Precision was not asked for: submit the model with 'precision'.")
        if precision["url"] is None:
            raise BackendUnusableError(f"There is nothing on precision: {precision['problem'] or precision['state']}")
        return self.client.precision(self.id, found)

    def fetched(self, target: TargetStatus) -> "Result":
        """Fetch the result for a target whose state is "done"."""
        from onnx_bisect.remote_results import RemoteFiles
        from onnx_bisect.result import Result
        from onnxbisect.report.contents import path_below

        number = target["number"]
        files = RemoteFiles(
            paths=target["files"],
            fetch=partial(self.client.culprit_file, self.id, number),
            picture=partial(self.client.model_explorer, self.id, number),
        )
        report = self.client.report(self.id, number)
        if self.model is not None and (path := path_below(self.model)) is not None:
            report["model"]["path"] = path  # the server knows the name only
        return Result.of(report, files)


def failure(ended: JobStatus | TargetStatus) -> OnnxBisectError:
    """The error for a job or target without a report: OptionError for a mistake in the request, else
    BackendUnusableError.
    """
    problem = ended["problem"] or f"The job is {ended['state']}."
    return OptionError(problem) if ended.get("fault") == "request" else BackendUnusableError(problem)


def _samples(calibration: Path) -> list[Path]:
    given = sorted(calibration.iterdir()) if calibration.is_dir() else [calibration]
    samples = [path for path in given if path.suffix in (".npz", ".npy")]
    if not samples:
        raise OptionError(f"{calibration} has no .npz or .npy: a server takes these, or a folder of them.")
    return samples
