"""`share`: reduces the file of a culprit to what the compiler refuses, without the user's weights and names."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import onnx

from onnx_bisect.backend_choice import BackendChoice
from onnx_bisect.diagnosing import usable_backend
from onnxbisect.errors import ModelError, OptionError
from onnxbisect.report.text import clip
from onnxbisect.shareable import shareable
from onnxbisect.verdict import Kind, Verdict
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext, search_context


@dataclass(frozen=True, kw_only=True)
class SharedFile:
    """A file that fails like the culprit's: `path`, with so many `nodes`; `message` is the compiler's."""

    path: Path
    nodes: int
    message: str
    compiler_calls: int


def share(
    culprit: str | PathLike[str],
    output: str | PathLike[str],
    *,
    backend: BackendChoice,
    options: Mapping[str, object] | None = None,
    timeout: float | None = None,
) -> SharedFile | None:
    """Write a file that fails like `culprit`, with random weights, neutral names and the smallest shapes.

    The compiler compiles the result of every step, in at most `timeout` seconds, and has failed on the file that is
    written with the same kind and fingerprint of message. Returns None, and writes nothing, if only the culprit's own
    weights or names fail. Raises OptionError if the compiler does not refuse `culprit`, BackendUnusableError and
    ModelError.
    """
    source, target = Path(culprit), Path(output)
    chosen = usable_backend(backend, options or {}, 1)
    if not target.parent.is_dir():
        raise OptionError(f"{target.parent} is no folder; create it first.")
    if target.resolve() == source.resolve():
        raise OptionError(f"{target} is the culprit's own file; write the other one elsewhere.")
    with working_folder() as scratch:
        compiler = _Compiler(
            backend=chosen, limits=Limits() if timeout is None else Limits(seconds=timeout), folder=scratch
        )
        own = compiler.verdict(compiler.context(source))
        if own is None or not own.failed:
            said = f", but {own.status.value}: {clip(own.message, 200)}" if own is not None and own.message else ""
            raise OptionError(f"{source} is not refused{said}. Give a file that is, and its target.")
        calls = 0

        def fails(model: onnx.ModelProto) -> bool:
            nonlocal calls
            calls += 1
            verdict = compiler.verdict_on(model)
            return verdict is not None and verdict.failed and _complaint(verdict) == _complaint(own)

        found = shareable(onnx.load(source), fails)
        if found is None:
            return None
        compiler.write(found, target)
    return SharedFile(path=target, nodes=len(found.graph.node), message=own.message, compiler_calls=calls)


def _complaint(verdict: Verdict) -> tuple[Kind | None, str]:
    return verdict.kind, verdict.fingerprint


@dataclass(frozen=True, kw_only=True)
class _Compiler:
    """Compiles files as a whole, with the probe format of the target."""

    backend: Backend
    limits: Limits
    folder: Path

    def context(self, file: Path) -> SearchContext:
        return search_context(LoadedModel(file, {}), self.backend, None)

    def verdict(self, context: SearchContext) -> Verdict | None:
        asked = context.prober(self.backend, self.folder, self.limits).ask(context.universe.everything, None)
        return None if asked.answer is None else asked.answer.verdict

    def verdict_on(self, model: onnx.ModelProto) -> Verdict | None:
        """The verdict; None for an invalid model."""
        try:
            return self.verdict(self._context_of(model))
        except ModelError:
            return None

    def write(self, model: onnx.ModelProto, path: Path) -> None:
        """Write the file that `verdict_on` compiles for this model."""
        context = self._context_of(model)
        context.write(context.universe.everything, path)

    def _context_of(self, model: onnx.ModelProto) -> SearchContext:
        file = self.folder / "model.onnx"
        onnx.save(model, file)
        return self.context(file)
