"""The files that reproduce each culprit: `model.onnx` and the log of the compile that failed on that very file.

A culprit's file is handed out only when a fresh process was seen to fail on exactly its bytes. Mostly the search
itself has done that; its probe is then cut again, and equal bytes are the proof. Where the verdict came from
another place of equal structure (its weights differ, so its bytes do), the driver is asked to compile this file
too, and keeps the answer under the digest of the file, so that the next run need not. Under the key of its
structure all files that share it would be attempts of one question, and each new one would walk through them all.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from onnxbisect.answer import Answer
from onnxbisect.diagnosis import Culprit
from onnxbisect.errors import OnnxBisectError
from onnxbisect.shortage import shortage
from onnxbisect.unitset import UnitSet
from onnxbisect_backends.probing.prober import PROBE_NAME, WriteProbe, WriteSamples, file_digest

LOG_NAME = "compiler.log"
#: What `onnxbisect.cut.write` puts beside a piece of a model with external data.
DATA_NAME = "model.data"


class CulpritFiles:
    """Cuts culprits again and compares them with what was compiled; `accompany` puts more beside what is handed out."""

    def __init__(self, write: WriteProbe, folder: Path, accompany: WriteSamples | None = None) -> None:
        self._write = write
        self._accompany = accompany
        self._folder = folder
        self._digests: dict[UnitSet, str] = {}

    def is_seen(self, culprit: Culprit, answers: Mapping[UnitSet, Answer]) -> bool:
        """Whether a compiler failed on exactly the bytes that `write` would write."""
        answer = answers.get(culprit.evidence.own)
        if answer is None or not answer.verdict.failed:
            return False
        return answer.file_sha256 == self.digest(culprit.evidence.own)

    def files(self, culprit: Culprit, answers: Mapping[UnitSet, Answer]) -> dict[str, Path | bytes]:
        """The culprit's files by their paths, in a folder of their own; none where its failure was not seen."""
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
        """SHA-256 of the piece's file as it would be written (`prober.file_digest`); empty where it cannot be cut."""
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
