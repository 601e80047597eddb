"""The process of `torch_probe.py` in the user's Python: settings, starting it, asking it, what its problems mean."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self, cast

from pydantic import BaseModel, ConfigDict

from onnxbisect.errors import OptionError
from onnxbisect.export.plan import Question
from onnxbisect.language import english
from onnxbisect.report.text import clip
from onnxbisect_backends.options import unknown
from onnxbisect_backends.sandbox.process import AnsweringProcess

_SCRIPT = Path(__file__).with_name("torch_probe.py")

#: Seconds beyond a limit that the probe keeps itself, when it counts as dead.
_GRACE = 60.0

#: Bytes of the user's output that are kept for messages.
_LOG = 1 << 14
EXPORTERS = ("dynamo", "legacy")
#: What `--try all` asks a culprit with.
ALL = ("strict=true", "exporter=legacy", "attention=eager", "use_cache=false", "opset=17", "opset=23")


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class Line(_Message):
    """A line of the user's code; `message` is what was said of it."""

    file: str = ""
    line: int = 0
    source: str = ""
    message: str = ""


class DescribedModule(_Message):
    """A module, or a method of one, that the example inputs reach; see `onnxbisect.export.plan.Module`."""

    path: str
    cls: str
    key: str
    signatures: tuple[str, ...]
    calls: int
    callers: tuple[str, ...]
    home: str
    defined: Line = Line()


class Described(_Message):
    """The model of `build()`. `never` are the outermost modules that these inputs do not reach.

    `foreign` take or return other things than tensors, so that they cannot be asked alone.
    `methods` are those of the user's classes that did not run, `settings` those of models of transformers that it has.
    """

    modules: tuple[DescribedModule, ...]
    never: tuple[str, ...]
    foreign: tuple[str, ...]
    methods: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    torch: str
    python: str
    samples: int
    training: bool


class ExportRefusal(Line):
    """The exporter's complaint; `suspect` is a module relative to the exported one."""

    types: tuple[str, ...]
    op: str
    stage: str
    suspect: str | None
    stand_in: bool


class Exported(_Message):
    """The end of one export: a file, a refusal, or a problem on the way.

    `inputs` are pairs of a name in the file and a key in the samples; the file may lack some of them.
    """

    problem: str = ""
    detail: str = ""
    seconds: float = 0.0
    failure: ExportRefusal | None = None
    warnings: tuple[Line, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    samples: tuple[str, ...] = ()


class How(_Message):
    """The settings of an export."""

    exporter: str = "dynamo"
    strict: bool = False
    opset: int | None = None
    attention: str | None = None
    use_cache: bool | None = None

    @property
    def words(self) -> str:
        """The settings for people."""
        rest = {"opset": self.opset, "attention": self.attention, "use_cache": self.use_cache}
        said = [f"{name}={value}" for name, value in rest.items() if value is not None]
        return ", ".join([f"exporter={self.exporter}", *(["strict=true"] if self.strict else []), *said])


class ExportProcess:
    """A process that has loaded the model; a context manager, which ends it."""

    def __init__(self, python: Path, source: str, *, seconds: float, memory: int) -> None:
        self._python, self._source, self._seconds, self._memory = python, source, seconds, memory
        self._tail = bytearray()

    def __enter__(self) -> Self:
        try:
            command = [str(self._python), str(_SCRIPT), self._source]
            self._process = AnsweringProcess(command, stderr=subprocess.PIPE)
        except OSError as error:
            raise OptionError(f"{self._python} cannot be started: {error.strerror or error}.") from None
        self._drain = threading.Thread(target=self._keep_tail, daemon=True)
        self._drain.start()
        try:
            answer = self._process.ask(None, self._seconds)
            function, file = self._source.rpartition(":")[2], Path(self._source.rpartition(":")[0]).name
            if answer is None and self._process.alive:
                raise OptionError(
                    f"{function}() of {file} did not end within {self._seconds:g} s; --timeout gives it more."
                )
            if answer is None:
                raise OptionError(f"The process that called {function}() of {file} died{self._said()}.")
            if "problem" in answer:
                raise OptionError(sentence_of(answer, function, file, self._python))
            self.described = Described.model_validate(answer)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def export(self, question: Question, how: How, file: Path) -> Exported:
        """Export one module to the file; samples are beside it."""
        order = {
            "module": question.module,
            "stand_ins": sorted(question.stand_ins),
            "signature": question.signature,
            "file": str(file),
            "how": how.model_dump(),
            "seconds": self._seconds,
            "memory": self._memory,
        }
        answer = self._process.ask(order, self._seconds + _GRACE)
        if answer is None:
            raise OptionError(f"The process that exports modules of {self._source} died{self._said()}.")
        return Exported.model_validate(answer)

    def _keep_tail(self) -> None:
        for data in iter(lambda: os.read(cast("IO[bytes]", self._process.popen.stderr).fileno(), 1 << 16), b""):
            self._tail += data
            del self._tail[:-_LOG]

    def _said(self) -> str:
        """How the process ended, and its last words."""
        code = self._process.popen.poll()
        lines = self._tail.decode(errors="replace").split("\n")
        last = next((it.strip() for it in reversed(lines) if it.strip()), "")
        how = f" of {signal.Signals(-code).name}" if code is not None and code < 0 else ""
        return f"{how}{f'; its last line was: {clip(last, 200)}' if last else ''}"

    def _end(self) -> None:
        self._process.end()
        self._drain.join(timeout=5)
        cast("IO[bytes]", self._process.popen.stderr).close()


def active_python() -> Path:
    """The Python of the active environment, else the one that runs this program."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        found = Path(os.environ.get(variable, ""), "bin", "python")
        if variable in os.environ and found.is_file():
            return found
    return Path(sys.executable)


def sentence_of(answer: Mapping[str, object], function: str, file: str, python: Path) -> str:
    """What is wrong with the user's source, for people."""
    detail = clip(str(answer["detail"]), 400)
    build = f"hf:{function}" if file == "hf" else f"{function}() of {file}"
    match str(answer["problem"]):
        case "torch":
            return english(
                "{python} has no torch ({detail}); --python names the Python of your model.",
                python=python,
                detail=detail,
            )
        case "file":
            return english("{file} cannot be loaded: {detail}.", file=file, detail=detail)
        case "missing":
            return english(
                "{file} has no function {detail}; name the one that builds the model: {file}:FUNCTION.",
                file=file,
                detail=detail,
            )
        case "transformers":
            return english(
                "{build} needs transformers, which {python} does not have ({detail}); --python names another one.",
                build=build,
                python=python,
                detail=detail,
            )
        case "inputs":
            return english(
                "{build} has inputs that are not known here ({detail}); write a function that returns (model, args).",
                build=build,
                detail=detail,
            )
        case "raises":
            return english("{build} raised {detail}.", build=build, detail=detail)
        case "gpu":
            return english(
                "{build} asks for a GPU: {detail}. Exports are made on the CPU; build the model there (device='cpu').",
                build=build,
                detail=detail,
            )
        case "returns":
            return english(
                "{build} returned {detail}; it has to return (model, args), (model, args, kwargs) or "
                "(model, [(args, kwargs), …]).",
                build=build,
                detail=detail,
            )
        case _:
            return english("The model of {build} does not run on its inputs: {detail}.", build=build, detail=detail)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _exporter(text: str) -> str:
    if text not in EXPORTERS:
        raise ValueError(" or ".join(EXPORTERS))
    return text


_VALUES: Mapping[str, Callable[[str], object]] = {
    "exporter": _exporter,
    "opset": int,
    "strict": _flag,
    "attention": str,
    "use_cache": _flag,
}


def settings_of(given: Mapping[str, str], base: How | None = None) -> How:
    """The settings, with those of `base` where nothing is given. Raises OptionError."""
    found: dict[str, object] = {}
    for name, text in given.items():
        if name not in _VALUES:
            raise OptionError(unknown("setting of an export", name, _VALUES))
        try:
            found[name] = _VALUES[name](text)
        except ValueError as error:
            says = "a number" if name == "opset" else str(error)
            raise OptionError(f"The setting {name} is '{text}'; it has to be {says}.") from None
    return (base or How()).model_copy(update=found)


def changed(base: How, tries: Sequence[str]) -> dict[str, How]:
    """Other settings, by how they are written: each of `tries` changes some; `opset=17..20` is four of them."""
    texts = []
    for text in [one for it in tries for one in (ALL if it == "all" else (it,))]:
        span = re.fullmatch(r"opset=(\d{1,2})\.\.(\d{1,2})", text)
        texts += [f"opset={it}" for it in range(int(span[1]), int(span[2]) + 1)] if span else [text]
    found: dict[str, How] = {}
    for text in texts:
        pairs = [it.partition("=") for it in text.split(",")]
        how = settings_of({name: value for name, _, value in pairs}, base)
        if how != base:
            found[text] = how
    return found
