"""The compiler interface of a repair: every call searches a model or a piece, and all share verdicts."""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import onnx

from onnxbisect.cut import units_of_nodes
from onnxbisect.diagnosis import CertificateStatus, Diagnosis, DiagnosisProof, Stats
from onnxbisect.errors import CutError, ModelError
from onnxbisect.model.external import locations
from onnxbisect.model.scopes import is_constant, reads
from onnxbisect.remedies import SearchedModel
from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext

_NO_CALLS = Stats(compiler_calls=0, cached=0, rounds=0, compile_seconds=0, engine_seconds=0, wall_seconds=0)
#: The file name of a repaired model.
REPAIRED = "repaired.onnx"
#: Most calls with options that messages name: where one rule of a compiler is left out, it may crash in the next.
_MOST_WITH_OPTIONS = 3


class SearchModel(Protocol):
    """A search of a model; the library runs it in threads, the service in workers."""

    def __call__(
        self, model: LoadedModel, *, piece: bool, whole: bool, brief: bool, most_calls: int | None
    ) -> SearchedModel:
        """Find the refused parts of the model, or with `whole` compile it once as a whole.

        A `piece` has inputs of its own, without samples. It is searched in brief (`onnxbisect.search.plan`), and so is
        another model with `brief`. After `most_calls` it ends with what is known.
        """


class InMessages(Protocol):
    """Options of the target that its messages may name (`other_options.OtherOptions`)."""

    def named_in(self, message: str) -> "tuple[InMessages, Mapping[str, str], Backend] | None":
        """These for the next message, the options that this one names, and the backend that has them."""


@dataclass(frozen=True, kw_only=True)
class NamedOptions:
    """The options, and how to `ask` about a whole model with changed ones."""

    options: InMessages
    ask: Callable[[LoadedModel, Mapping[str, str], Backend], SearchedModel]


@dataclass(kw_only=True)
class RepairCompiler:
    """Searches models for the repair of the model `loaded`; implements `onnxbisect.remedies.Compiler`.

    Models are written to `folder`, which outlives it. `context_of` returns the search context of a model, given whether
    it is a piece. `calls` counts compiler calls, `seconds` those that they took. Where the compiler refuses a whole
    model and names one of the `named` options, it is asked with that one, too; `tell` gets a sentence for each step.
    Once `calls` reaches `most_calls`, nothing more is asked.
    """

    loaded: LoadedModel
    search: SearchModel
    context_of: Callable[[LoadedModel, bool], SearchContext]
    folder: Path
    named: NamedOptions | None = None
    tell: Callable[[str], None] = lambda sentence: None
    calls: int = 0
    seconds: float = 0
    most_calls: int | None = None

    def __post_init__(self) -> None:
        self._latest: tuple[onnx.ModelProto, bytes, LoadedModel] | None = None
        self._latest_piece: tuple[bytes, LoadedModel] | None = None
        self._inside = 0

    def original(self) -> SearchedModel:
        """The diagnosis of the model as the user gave it."""
        return self._search(self.loaded)

    def original_whole(self) -> SearchedModel:
        """Whether that model passes: one call."""
        return self._whole(self.loaded)

    def diagnose(self, model: onnx.ModelProto, refused: Collection[str] = (), *, brief: bool = False) -> SearchedModel:
        loaded = self.read(model)
        loaded.doubted = refused
        if self.named is not None and ((found := self._whole(loaded)).compiles or found.stopped):
            return found
        return replace(self._search(loaded, brief=brief), brief=brief)

    def whole(self, model: onnx.ModelProto) -> SearchedModel:
        return self._whole(self.read(model))

    def with_named_options(self, refused: SearchedModel, loaded: LoadedModel) -> SearchedModel:
        """The same, or the answer with the options that the compiler names, if it accepts the model with these."""
        if self.named is None:
            return refused
        found, others, changed = refused, self.named.options, dict[str, str]()
        for _ in range(_MOST_WITH_OPTIONS):
            following = None if found.stopped else others.named_in(found.message)
            if following is None:
                break
            others, more, backend = following
            changed |= more
            words = ", ".join(f"{key}={value}" for key, value in changed.items())
            self.tell(f"asking the compiler with the option that it names: {words}")
            found = self.named.ask(loaded, changed, backend)
            self._count(found)
            if found.compiles:
                return replace(found, options=changed)
            if found.unanswered:
                self.tell(f"no answer about that: {found.unanswered}")
        return replace(refused, stopped=found.stopped)

    def refuses_each(self, model: onnx.ModelProto, places: Iterable[Collection[str]]) -> bool:
        """Whether the model has all these places and each fails by itself: one call for each, until one does not."""
        return all(self.ask(model, nodes, whole=True).diagnosis.verdict is Status.FAIL for nodes in places)

    def ask(
        self, model: onnx.ModelProto, nodes: Collection[str], doubted: Collection[str] = (), *, whole: bool = False
    ) -> SearchedModel:
        """Search the piece of these nodes and required producers, or with `whole` compile it once.

        The search leaves out the `doubted` nodes first. Unresolved if the piece cannot be cut or loaded.
        """
        loaded = self.read(model)
        context = self.context_of(loaded, False)
        piece = self.folder / "piece" / "model.onnx"
        shutil.rmtree(piece.parent, ignore_errors=True)
        piece.parent.mkdir()
        try:
            # The nodes, and the producers of their scalar inputs: some tools change the rank of an input of rank 0.
            graph = loaded.model.proto.graph
            makers = {output: node for node in graph.node for output in node.output}
            asked = {node.name: node for node in graph.node if node.name in nodes}
            work = list(asked.values())
            while work:
                for name in reads(work.pop()):
                    kind, maker = loaded.model.types.get(name), makers.get(name)
                    scalar = kind is not None and kind.tensor_type.HasField("shape") and not kind.tensor_type.shape.dim
                    if scalar and maker is not None and not is_constant(maker) and maker.name not in asked:
                        asked[maker.name] = maker
                        work.append(maker)
            units = context.universe.with_required_producers(units_of_nodes(loaded.model, list(asked)))
            names = context.write(units, piece)
            own = [own for own, name in names.items() if name in doubted]
            found = self._search(self._piece(piece, [*own, *doubted]), piece=True, whole=whole)
        except (CutError, ModelError) as error:
            return unanswered(context, str(error))
        return replace(found, names=names)

    def _piece(self, path: Path, doubted: Collection[str]) -> LoadedModel:
        """Load a piece; the latest one is often searched after it was compiled."""
        content = path.read_bytes()
        if self._latest_piece is None or self._latest_piece[0] != content:
            self._latest_piece = content, LoadedModel(path, {})
        loaded = self._latest_piece[1]
        loaded.doubted = doubted
        return loaded

    def inside(self, model: onnx.ModelProto) -> "RepairCompiler":
        """A compiler for a model with inputs of its own, such as the body of a Loop; its calls count here, too."""
        self._inside += 1
        folder = self.folder / f"inside-{self._inside}"
        folder.mkdir()
        path = folder / "body.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        return RepairCompiler(
            loaded=LoadedModel(path, {}),
            search=lambda model, *, piece, whole, brief, most_calls: self._search(model, piece=True, whole=whole),
            context_of=lambda loaded, piece: self.context_of(loaded, True),
            folder=folder,
        )

    def _whole(self, loaded: LoadedModel) -> SearchedModel:
        found = self._search(loaded, whole=True)
        return found if found.compiles else self.with_named_options(found, loaded)

    def _search(
        self, loaded: LoadedModel, *, piece: bool = False, whole: bool = False, brief: bool = False
    ) -> SearchedModel:
        left = None if self.most_calls is None else self.most_calls - self.calls
        if left is not None and left <= 0:
            return replace(unanswered(self.context_of(loaded, piece), "the repair has made its calls"), limited=True)
        found = self.search(loaded, piece=piece, whole=whole, brief=brief, most_calls=left)
        self._count(found)
        return replace(found, limited=self.most_calls is not None and self.calls >= self.most_calls)

    def _count(self, found: SearchedModel) -> None:
        self.calls += found.job.stats.compiler_calls
        self.seconds += found.job.stats.compile_seconds

    def read(self, model: onnx.ModelProto) -> LoadedModel:
        """Load the model from a file, with copies of the original's data files, because onnx follows no links. The
        model must not change afterwards: pieces of it are asked about one after the other.
        """
        if self._latest is not None and self._latest[0] is model:
            return self._latest[2]
        content = model.SerializeToString(deterministic=True)
        if self._latest is None:
            copy_data(self.loaded.model.proto, self.loaded.model.path.parent, self.folder)
        if self._latest is not None and self._latest[1] == content:
            loaded = self._latest[2]
        else:
            loaded = changed_model(self.loaded, model, self.folder / REPAIRED, content)
        self._latest = model, content, loaded
        return loaded


def changed_model(
    loaded: LoadedModel, changed: onnx.ModelProto, path: Path, content: bytes | None = None
) -> LoadedModel:
    """The changed copy of a loaded model, written to `path`; its data files are beside it already. `content` are its
    bytes, if they are at hand.
    """
    path.write_bytes(changed.SerializeToString(deterministic=True) if content is None else content)
    own = _inputs(changed)  # a change may have renamed an input, or given it another form
    shapes = {name: dims for name, dims in loaded.shapes_without_values.items() if name in own}
    same = _inputs(loaded.model.proto).items() <= own.items()
    return LoadedModel(path, shapes, sample=loaded.sample if same else None)


def _inputs(model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """The dtype and rank of each input."""
    types = {value.name: value.type.tensor_type for value in model.graph.input}
    return {name: (kind.elem_type, len(kind.shape.dim)) for name, kind in types.items()}


def unanswered(context: SearchContext, why: str, *, stopped: bool = False) -> SearchedModel:
    """The result for a model that was not compiled."""
    nothing = Diagnosis(
        verdict=Status.UNRESOLVED,
        culprits=(),
        needs_context=(),
        certificate=DiagnosisProof(status=CertificateStatus.BOUNDED, unknown=(why,)),
        remainder=0,
    )
    return SearchedModel(job=context.job(nothing, (), _NO_CALLS), stopped=stopped)


def copy_data(model: onnx.ModelProto, source: Path, target: Path) -> None:
    """Copy the data files that a model refers to, to the same places below another folder."""
    for file in locations(model, source):
        copy = target / file.relative_to(source)
        if copy.resolve() != file.resolve():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
