"""The files that belong to a report on a server."""

from collections.abc import Mapping
from pathlib import Path

from onnx_bisect.client import Client
from onnx_bisect.job_documents import TargetStatus
from onnxbisect.report import model_explorer
from onnxbisect_backends.probing.culprit_files import DATA_NAME, LOG_NAME
from onnxbisect_backends.probing.prober import PROBE_NAME


class RemoteFiles:
    """The attachments of a report, downloaded from the server."""

    def __init__(self, client: Client, job_id: str, target: TargetStatus) -> None:
        self._client = client
        self._job_id = job_id
        self._target = target["number"]
        self._paths = target["files"]

    def of_culprit(self, number: int, folder: Path) -> Mapping[str, Path | bytes]:
        mine = [path.rpartition("/")[2] for path in self._paths if path.startswith(f"culprits/{number:02d}-")]
        paths = {name: folder / f"{number}-{name}" for name in (PROBE_NAME, DATA_NAME, LOG_NAME) if name in mine}
        return {
            name: path
            for name, path in paths.items()
            if self._client.culprit_file(self._job_id, self._target, number, name, path)
        }

    def pictures(self) -> Mapping[str, bytes]:
        found = {
            place: self._client.model_explorer(self._job_id, self._target, place.rpartition("/")[2])
            for place in model_explorer.FILES
        }
        return {place: content for place, content in found.items() if content is not None}
