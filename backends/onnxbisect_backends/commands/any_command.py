"""Any command as a compiler, like `git bisect run`: the words after `--` on the command line.

The command runs as the user typed it: in the directory where onnx-bisect was started, with the user's environment. Only
`TMPDIR` points into the empty work directory of the compile. The log's format is unknown; ops and nodes of the model
that occur in its last complaint, and in others of the same form, become hints.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import onnx

from onnxbisect.errors import OptionError
from onnxbisect.fingerprint import complains, fingerprint, plain
from onnxbisect.model.scopes import qualified, walk
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.commands.named_files import files_named, short_hash
from onnxbisect_backends.contract import Description, Limits, Outcome
from onnxbisect_backends.logs import crashed, read_log, unfinished
from onnxbisect_backends.sandbox.process import find_executable, not_found, run, with_artifacts

#: A word; other characters may surround a name in a sentence.
_WORD = re.compile(r"[^\s'\"`,;()\[\]{}<>=|]+")
_QUOTES = "'\"`"
#: Ops that are also words of sentences: at the beginning, or in capitals.
_SENTENCE_WORDS = frozenset({"And", "If", "Max", "Min", "Not", "Or", "Range", "Shape", "Size", "Split", "Where"})
_LETTERS = re.compile(r"[a-z]+|[A-Z][a-z]+")
#: What compilers put before the name of an op: domains and dialects. `my.Conv` is an op of another domain.
_DIALECT = re.compile(
    r"^(?:ai\.onnx|onnx|top|tpu|torch|aten|tosa|tf|tfl|mhlo|stablehlo|relax)(?:\.v?\d+)?\.", re.IGNORECASE
)
#: An op with the number of the node: `Abs_12`, `Abs:12`, `Abs#12`.
_NUMBERED = re.compile(r"(.+?)[_:#-]\d+")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9]{2,}|[A-Z0-9]+(?:_[A-Z0-9]+)+")
_SNAKE = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")
#: Most characters of a line, and most lines, that are read.
_LINE = 2000
_MOST_LINES = 1000


@dataclass(frozen=True, kw_only=True)
class Mentions:
    """The ops and nodes that a complaint names, as `hints`.

    `blanked` is the complaint with `<op>` and `<node>` in place of the names, equal for two ops refused alike.
    """

    hints: Hints
    blanked: str


NOTHING = Mentions(hints=Hints(), blanked="")


def mentions(complaint: str, probe: Path, log: str = "") -> Mentions:
    """Ops and nodes of the model in the file `probe`, those in bodies too, that a complaint names.

    None if the file cannot be read.

    Many compilers write a line for each node that they refuse, and perhaps a last one that says how many they were. So
    with the last complaint of `log` that names something, those of the same form are read. Lines that do not complain,
    such as of progress, are not.
    """
    try:
        nodes = list(walk(onnx.load(probe, load_external_data=False).graph))
    except Exception:  # an invalid file may be why it was refused
        return NOTHING
    vocabulary = _Vocabulary(nodes)
    said = vocabulary.read(complaint)
    if not complains(complaint):
        return said
    lines = [line[:_LINE].strip() for line in plain(log).split("\n")[-_MOST_LINES:]]
    complaints = [said, *(vocabulary.read(line) for line in reversed(lines) if complains(line))]
    naming = [other for other in complaints if other.hints]
    alike = [other.hints for other in naming if fingerprint(other.blanked) == fingerprint(naming[0].blanked)]
    named = dict.fromkeys(op for hints in alike for op in hints.ops)
    names = dict.fromkeys(name for hints in alike for name in hints.nodes)
    return Mentions(hints=Hints(ops=tuple(named), nodes=tuple(names)), blanked=said.blanked)


class _Vocabulary:
    """The ops and the node names of one probe, each with its op.

    A name that looks like an English word counts only in quotes, or beside its op.
    """

    def __init__(self, nodes: Collection[onnx.NodeProto]) -> None:
        self._names = {node.name: qualified(node) for node in nodes if node.name}
        self._odd_names = [name for name in self._names if not _WORD.fullmatch(name) and name.strip()]
        self._ops = {qualified(node) for node in nodes}
        #: By their names in small letters: some write `GLOBAL_AVERAGE_POOL` or `global_average_pool`.
        self._spellings = {op.lower(): op for op in self._ops}

    def read(self, sentence: str) -> Mentions:
        found: dict[str, dict[str, None]] = {"op": {}, "node": {}}
        blanked, at = "", 0
        for start, end, what, value in self._mentioned(sentence):
            found[what][value] = None
            blanked += f"{sentence[at:start]}<{what}>"
            at = end
        return Mentions(
            hints=Hints(ops=tuple(found["op"]), nodes=tuple(found["node"])), blanked=blanked + sentence[at:]
        )

    def _mentioned(self, sentence: str) -> Iterator[tuple[int, int, str, str]]:
        """Where something is named (begin and end), whether an op or a node, and its name in the model."""
        at = 0
        words = set(_WORD.findall(sentence))
        # where the sentence holds names with blanks, quotes or brackets in them; the longest at each place
        whole: dict[int, str] = {}
        for odd in self._odd_names:
            start = sentence.find(odd)
            while start >= 0:
                beside = sentence[start - 1 : start] + sentence[start + len(odd) :][:1]
                if not any(it.isalnum() or it in "_/" for it in beside):  # no part of a longer word
                    whole[start] = max(odd, whole.get(start, ""), key=len)
                start = sentence.find(odd, start + 1)
        for word in _WORD.finditer(sentence):
            if word.start() < at:
                continue
            if name := whole.get(word.start()):
                at = word.start() + len(name)
                yield word.start(), at, "node", name
                continue
            text = word[0] if word[0] in self._names else word[0].rstrip(".:!")
            around = sentence[: word.start()][-1:], sentence[word.end() :][:1]
            quoted = all(it and it in _QUOTES for it in around)
            end = word.start() + len(text)
            english = _LETTERS.fullmatch(text) and (text in self._ops or not (quoted or self._names.get(text) in words))
            if text in self._names and not english:
                yield word.start(), end, "node", text
            elif (op := self._op(text, quoted=quoted)) and not (word.start() == 0 and text in _SENTENCE_WORDS):
                yield word.start(), end, "op", op

    def _op(self, text: str, *, quoted: bool) -> str:
        """The op that a word means; empty if it means none."""
        if text in self._ops:
            return text
        bare = _DIALECT.sub("", text.rpartition("::")[2])
        prefixed = bare != text
        if bare not in self._ops and (numbered := _NUMBERED.fullmatch(bare)):
            bare = numbered[1]
        if bare in self._ops:
            return bare
        op = self._spellings.get(bare.replace("_", "").lower(), "")
        if _CAPITALS.fullmatch(bare):
            return op if op not in _SENTENCE_WORDS else ""
        return op if quoted or prefixed or _SNAKE.fullmatch(bare) else ""


#: The exit status for no answer, as for `git bisect run`.
_UNRESOLVED = 125


@dataclass(frozen=True, kw_only=True)
class _Ran(Outcome):
    """An outcome, with the ops and nodes named in the log's last complaint."""

    mentions: Mentions = NOTHING


class CommandBackend:
    """Exit status 0 is a pass, 125 unresolved, anything else a failure; a signal is a crash.

    `{model}` is the probe's path, `{workdir}` the empty directory of this compile and `{out}` a path in it that does
    not exist yet; all are absolute. Raises OptionError if `{model}` is not used. Picklable, so that it can be sent to
    worker processes.
    """

    name = "command"

    def __init__(self, argv: Sequence[str], *, cwd: Path | None = None) -> None:
        if not argv:
            raise OptionError("There is no command after '--'; give one, such as: -- python my_compile.py {model}.")
        if not any("{model}" in element for element in argv):
            raise OptionError(
                f"The command '{' '.join(argv)}' does not say where the model goes; write {{model}} in its place."
            )
        self._argv = tuple(argv)
        #: The directory it runs in.
        self.folder = (cwd or Path.cwd()).absolute()
        self._files = files_named(self._argv, self.folder)

    @property
    def options(self) -> dict[str, Any]:
        """The command as typed."""
        return {"command": list(self._argv)}

    def describe(self) -> Description:
        """The version is a hash of the command and the files it names, so an edited script is a new compiler."""
        version = short_hash(json.dumps([self._argv, self._files]))
        return Description(tool=Path(self._argv[0]).name, version=version, dynamic_shapes=True)

    def check(self) -> str | None:
        """Whether the command's first word can be executed."""
        found = find_executable(self._argv[0], cwd=self.folder, path=os.environ.get("PATH"))
        return None if found else not_found(self._argv[0])

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Run the command on one probe."""
        workdir = workdir.absolute()
        values = {"{model}": str(probe.absolute()), "{workdir}": str(workdir), "{out}": str(workdir / "out")}
        argv = list(self._argv)
        for placeholder, value in values.items():
            argv = [element.replace(placeholder, value) for element in argv]
        outcome = run(argv, cwd=self.folder, env={**os.environ, "TMPDIR": str(workdir)}, limits=limits)
        outcome = with_artifacts(outcome, probe.absolute(), workdir)
        if not outcome.exit_code or outcome.exit_code == _UNRESOLVED:
            return outcome
        kept = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        return _Ran(**kept, mentions=mentions(read_log(outcome.log).message, probe, outcome.log))

    def judge(self, outcome: Outcome) -> Verdict:
        """Decide by the exit status; the log only provides the message."""
        if verdict := unfinished(outcome):
            return verdict
        reading = read_log(outcome.log)
        if outcome.exit_code == 0:
            return Verdict(status=Status.PASS, seconds=outcome.seconds)
        if verdict := crashed(outcome, reading):
            return verdict
        code = outcome.exit_code
        said = outcome.mentions if isinstance(outcome, _Ran) else NOTHING
        return Verdict(
            status=Status.UNRESOLVED if code == _UNRESOLVED else Status.FAIL,
            kind=Kind.ERROR,
            hints=said.hints,
            fingerprint=fingerprint(said.blanked) if said.hints else reading.fingerprint,
            message=reading.message or f"Ended with exit status {code}, without a word.",
            seconds=outcome.seconds,
        )
