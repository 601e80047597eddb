"""The files that reproduce each culprit: `model.onnx` and the log of the compile that failed on that file.

A culprit's file is handed out only if a fresh process failed on exactly its bytes. Usually the search has compiled it;
its probe is then cut again, and equal bytes are the proof. If the verdict came from another place with equal structure,
whose weights and bytes differ, the driver compiles this file too. It keeps the answer under the file's digest, because
under the key of the structure all such files would count as attempts of one probe.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from onnxbisect.answer import Answer
from onnxbisect.diagnosis import DiagnosedCulprit
from onnxbisect.errors import OnnxBisectError
from onnxbisect.shortage import shortage
from onnxbisect.unitset import UnitSet
from onnxbisect_backends.probing.prober import PROBE_NAME, WriteProbe, WriteSamples, file_digest

LOG_NAME = "compiler.log"
#: The data file that `onnxbisect.cut.write` puts beside a piece with external data.
DATA_NAME = "model.data"


class CulpritFiles:
    """Cuts culprits again and compares them with what was compiled; `accompany` adds further files."""

    def __init__(self, write: WriteProbe, folder: Path, accompany: WriteSamples | None = None) -> None:
        self._write = write
        self._accompany = accompany
        self._folder = folder
        self._digests: dict[UnitSet, str] = {}

    def is_seen(self, culprit: DiagnosedCulprit, answers: Mapping[UnitSet, Answer]) -> bool:
        """Whether a compiler failed on exactly the bytes that `write` would write."""
        answer = answers.get(culprit.evidence.own)
        if answer is None or not answer.verdict.failed:
            return False
        return answer.file_sha256 == self.digest(culprit.evidence.own)

    def files(self, culprit: DiagnosedCulprit, answers: Mapping[UnitSet, Answer]) -> dict[str, Path | bytes]:
        """The culprit's files by path, in a folder of their own; none if its failure was not seen."""
        if not self.is_seen(culprit, answers):
            return {}
        folder = Path(mkdtemp(prefix="culprit-", dir=self._folder))
        renamed = self._write(culprit.evidence.own, folder / PROBE_NAME)
        if self._accompany is not None:
            self._accompany(folder / PROBE_NAME, renamed)
        log = answers[culprit.evidence.own].log.encode("utf-8", "replace")
        return {
            **{str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()},
            LOG_NAME: log,
        }

    def digest(self, units: UnitSet) -> str:
        """SHA-256 of the piece's file (`prober.file_digest`); empty if it cannot be cut."""
        if units not in self._digests:
            with TemporaryDirectory(prefix="culprit-", dir=self._folder) as folder:
                probe = Path(folder) / PROBE_NAME
                try:
                    self._write(units, probe)
                    self._digests[units] = file_digest(probe)
                except OnnxBisectError as error:
                    if (short := shortage(error)) is not None:
                        raise short from error
                    self._digests[units] = ""
        return self._digests[units]
