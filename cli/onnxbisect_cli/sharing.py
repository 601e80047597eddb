"""`onnx-bisect share`: a culprit's file reduced to what the compiler refuses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from onnx_bisect.backend_choice import chosen_backend
from onnxbisect.errors import BackendUnusableError, ModelError, OptionError
from onnxbisect.report.text import clean, clip, plural
from onnxbisect.shareable import shareable
from onnxbisect.verdict import Kind, Verdict
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext, search_context
from onnxbisect_backends.sandbox.working_folder import working_folder


@dataclass(frozen=True, kw_only=True)
class ShareRequest:
    """The user's request."""

    culprit: Path
    output: Path
    backend: str
    options: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None


def run(request: ShareRequest) -> int:
    """Write the file; returns the exit status, 1 if no reduced file fails in the same way."""
    backend = chosen_backend(request.backend, request.options)
    if complaint := backend.check():
        raise BackendUnusableError(complaint)
    if not request.output.parent.is_dir():
        raise OptionError(f"{request.output.parent} is no folder; create it first.")
    if request.output.resolve() == request.culprit.resolve():
        raise OptionError(f"{request.output} is the culprit's own file; write the other one elsewhere.")
    limits = Limits() if request.seconds is None else Limits(seconds=request.seconds)
    with working_folder() as scratch:
        compiler = _Compiler(backend=backend, limits=limits, folder=scratch)
        own = compiler.verdict(compiler.context(request.culprit))
        if own is None or not own.failed:
            said = f", but {own.status.value}: {clip(own.message, 200)}" if own is not None and own.message else ""
            raise OptionError(f"{request.culprit} is not refused{said}. Give a file that is, and its target.")
        calls = 0

        def fails(model: onnx.ModelProto) -> bool:
            nonlocal calls
            calls += 1
            verdict = compiler.verdict_on(model)
            return verdict is not None and verdict.failed and _complaint(verdict) == _complaint(own)

        found = shareable(onnx.load(request.culprit), fails)
        if found is None:
            print("It fails only with its own weights or names: no other file shows the same failure.")
            return 1
        compiler.write(found, request.output)
    size, before = (path.stat().st_size for path in (request.output, request.culprit))
    print(clean(f"{request.output}: {plural(len(found.graph.node), 'node')}, {size} bytes ({before} before)"))
    print(clean(f"  fails alike, in {plural(calls, 'compiler call')}: {clip(own.message, 200)}"))
    return 0


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
