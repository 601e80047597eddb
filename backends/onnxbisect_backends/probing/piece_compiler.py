"""Compiling a model's pieces that are already files, and keeping what the compiler makes of them."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxbisect.verdict import Verdict
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.probing.prober import WriteSamples, keep_products

#: Beside a piece, the folder in which a folder of its name has what the compiler made of it.
COMPILED = "compiled"


@dataclass(frozen=True, kw_only=True)
class PieceCompiler:
    """Asks one backend about files; `folder` is for what is gone after each. `samples` writes a target's samples."""

    backend: Backend
    folder: Path
    limits: Limits
    samples: WriteSamples | None = None

    def __call__(self, file: Path, renamed: Mapping[str, str]) -> Verdict:
        """Compile a file. On a pass, what the device needs is then in `compiled/NAME/` beside it.

        `renamed` are names in the file, and the model's for them. OnnxBisectError of the backend passes through.
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
