"""The search for all modules that do not export, and for the proof that the rest does.

`plan` is a pure function of the answers so far, like the search for culprits in a graph: it runs the whole search from
its beginning, and the first answer that is missing is the next question.

The model is exported as a whole. Where that fails, the exporter's complaint names a module; it is exported alone.
If it fails alone, the modules in it are searched in the same way, failing ones get a **stand-in** (an opaque node with
the recorded outputs), and what fails nonetheless fails for its own code. Then the model is exported again with
stand-ins for all that failed, until it passes, which proves that nothing else is wrong. A complaint only decides what
is asked first: where it leads nowhere, the children are asked one by one.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

#: The path of the model itself.
ROOT = ""


@dataclass(frozen=True, kw_only=True)
class Module:
    """One module as it was called: its `forward`, or another method that code outside of the module calls.

    The path of a method ends with its name (`encoder.encode`), and `home` is the path of its module.
    `key` is the digest of class, configuration and the shapes of its weights, of its own and of all modules inside.
    `signatures` describe the arguments of its calls, each distinct one once, in the order of the calls.
    `callers` are the paths of those that call it; only the model has none.
    """

    path: str
    cls: str
    key: str
    signatures: tuple[str, ...]
    callers: tuple[str, ...]
    home: str

    @property
    def question(self) -> tuple[str, tuple[str, ...]]:
        """Equal for modules of one class, configuration and calls."""
        return self.key, self.signatures


class Tree:
    """The called modules by their paths. What a module calls is in it, wherever the path says that it is kept."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self.modules: Mapping[str, Module] = {it.path: it for it in modules}
        self._children: dict[str, tuple[str, ...]] = {}
        self._alike: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        for path, it in self.modules.items():
            for caller in it.callers:
                self._children[caller] = (*self.children(caller), path)
            self._alike[it.question] = (*self._alike.get(it.question, ()), path)

    def children(self, path: str) -> tuple[str, ...]:
        """The modules that this one calls."""
        return self._children.get(path, ())

    def alike(self, path: str) -> tuple[str, ...]:
        """All modules of its class, configuration and calls, itself among them: they are one question."""
        return self._alike[self.modules[path].question]

    def reached(self, path: str, closed: Set[str] = frozenset()) -> frozenset[str]:
        """The module and what it calls, directly or not, where the modules in `closed` call nothing."""
        found, open_ = {path}, [path]
        while open_:
            one = open_.pop()
            fresh = set() if one in closed else {*self.children(one)} - found
            found |= fresh
            open_ += fresh
        return frozenset(found)

    def corresponding(self, path: str, first: str, other: str) -> str:
        """What `path` is in `first`, in `other`, which is like it; modules that are kept elsewhere are themselves."""
        if path == first:
            return other
        within, found = self.modules[first].home + ".", self.modules[other].home + "."
        moved = found + path[len(within) :]
        return moved if path.startswith(within) and moved in self.modules else path


@dataclass(frozen=True, kw_only=True)
class Question:
    """One export: a module with the arguments of one of its signatures, and with stand-ins for modules in it."""

    module: str
    stand_ins: frozenset[str] = frozenset()
    signature: int = 0


@dataclass(frozen=True, kw_only=True)
class ExportAnswer:
    """Whether the export succeeded and computes what the module computes.

    `suspect` is the module that the complaint is about; None if none is known.
    `undecided`: the export failed because of a stand-in, or was not possible here, which says nothing of the module.
    """

    exports: bool
    suspect: str | None = None
    undecided: bool = False


@dataclass(frozen=True, kw_only=True)
class FailingModule:
    """A module that does not export for its own code: it fails although all failing modules in it have stand-ins.

    `places` are all modules of its class, configuration and calls. `asked` is the export that shows it.
    """

    path: str
    places: tuple[str, ...]
    asked: Question


@dataclass(frozen=True, kw_only=True)
class ExportingModule:
    """A module that exports, with stand-ins for the paths `without`. `asked` has an export for each signature."""

    path: str
    without: frozenset[str]
    asked: tuple[Question, ...]


@dataclass(frozen=True, kw_only=True)
class ExportOutcome:
    """The end of the search. `undecided` are modules whose own code could not be judged with stand-ins in it.

    `parts` export and are in no other part.
    """

    culprits: tuple[FailingModule, ...]
    undecided: tuple[Question, ...]
    parts: tuple[ExportingModule, ...]

    @property
    def whole(self) -> ExportingModule | None:
        """The model with stand-ins for all culprits, the proof of the rest; None if its own code does not export."""
        return next((it for it in self.parts if it.path == ROOT), None)


def plan(tree: Tree, answers: Mapping[Question, ExportAnswer]) -> Question | ExportOutcome:
    """The next export to ask for, or the outcome."""
    search = _Search(tree, answers)
    try:
        search.failing(ROOT)
    except _UnansweredError as missing:
        return missing.question
    return search.outcome()


class _UnansweredError(Exception):
    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


class _Search:
    def __init__(self, tree: Tree, answers: Mapping[Question, ExportAnswer]) -> None:
        self._tree, self._answers = tree, answers
        self._found: dict[str, frozenset[str]] = {}  # by the first module of its kind
        self._culprits: dict[str, FailingModule] = {}
        self._undecided: dict[str, Question] = {}
        self._parts: dict[str, ExportingModule] = {}

    def failing(self, path: str) -> frozenset[str]:
        """The culprits in this module, itself included, and what stays undecided."""
        first = self._tree.alike(path)[0]
        if first not in self._found:
            self._found[first] = frozenset()  # for modules that call each other
            self._found[first] = self._search(first)
        return frozenset(self._tree.corresponding(it, first, path) for it in self._found[first])

    def outcome(self) -> ExportOutcome:
        """What the search found; only the outermost parts count."""
        paths = [it for it in self._tree.modules if it in self._parts]
        parts = [self._parts[it] for it in paths]
        culprits = [self._culprits[it] for it in self._tree.modules if it in self._culprits]
        reached = {it.path: self._tree.reached(it.path, it.without) - it.without for it in parts}
        inside = {path for outer, paths in reached.items() for path in paths if path != outer}
        return ExportOutcome(
            culprits=tuple(culprits),
            undecided=tuple(self._undecided.values()),
            parts=tuple(it for it in parts if it.path not in inside),
        )

    def _search(self, path: str) -> frozenset[str]:
        # what other parts of the search found to fail in this module: it need not be asked without stand-ins
        failing = self._everywhere(path, frozenset(self._culprits) | frozenset(self._undecided))
        explored: set[str] = set()
        while True:
            stand_ins = failing & self._tree.reached(path, failing)
            asked: list[Question] = []
            for number in range(len(self._tree.modules[path].signatures)):  # to the first that fails
                asked.append(Question(module=path, stand_ins=stand_ins, signature=number))
                if asked[-1] not in self._answers:
                    raise _UnansweredError(asked[-1])
                answer = self._answers[asked[-1]]
                if not answer.exports:
                    break
            if answer.exports:
                self._parts[path] = ExportingModule(path=path, without=stand_ins, asked=tuple(asked))
                return failing
            tried = stand_ins | explored
            suspect = (
                answer.suspect
                if answer.suspect != path and answer.suspect in self._tree.reached(path, tried) - tried
                else next((it for it in self._tree.children(path) if it not in tried), None)
            )
            if suspect is None:
                if answer.undecided:
                    self._undecided[path] = asked[-1]
                else:
                    self._culprits[path] = FailingModule(path=path, places=self._tree.alike(path), asked=asked[-1])
                return failing | {path}
            explored.update(self._tree.alike(suspect))
            failing |= self._everywhere(path, self.failing(suspect))

    def _everywhere(self, path: str, found: frozenset[str]) -> frozenset[str]:
        """These modules and all of their kind inside of the module."""
        alike = {it for one in found for it in self._tree.alike(one)} - {path}
        return self._tree.reached(path) & alike
