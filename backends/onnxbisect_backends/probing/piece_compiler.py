"""Compiles pieces of a model that are already files, and keeps the compiler's output."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxbisect.verdict import Verdict
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.probing.prober import WriteSamples, keep_products

#: The folder beside the pieces; the compiler's output for each is in a subfolder of its name.
COMPILED = "compiled"


@dataclass(frozen=True, kw_only=True)
class PieceCompiler:
    """Compiles files with one backend; `folder` is for temporary files. `samples` writes a target's samples."""

    backend: Backend
    folder: Path
    limits: Limits
    samples: WriteSamples | None = None

    def __call__(self, file: Path, renamed: Mapping[str, str]) -> Verdict:
        """Compile a file. After a pass, the files for the device are in `compiled/NAME/` beside it.

        `renamed` maps names in the file to the model's. Errors of the backend pass through.
        """
        with tempfile.TemporaryDirectory(prefix="piece-", dir=self.folder) as place:
            probe, workdir = Path(place, "probe", file.name), Path(place, "work")
            probe.parent.mkdir()
            workdir.mkdir()
            for source in (file, file.with_suffix(".data")):
                if source.exists():
                    shutil.copyfile(source, probe.with_name(source.name))
            if self.samples is not None:
                self.samples(probe, renamed)
            outcome = self.backend.compile(probe, workdir, self.limits)
            verdict = self.backend.judge(outcome)
            if verdict.passed:
                keep_products(self.backend, outcome, workdir, file.parent / COMPILED / file.stem)
        return verdict
