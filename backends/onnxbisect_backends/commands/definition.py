"""The schema of a compiler's TOML file, and its reading. docs/backends.md explains it with an example."""

import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from onnxbisect.errors import OptionError
from onnxbisect.verdict import Kind
from onnxbisect_backends.logs import compile_pattern
from onnxbisect_backends.options import OptionHelp, VerifyOptions, WorthTrying, complaint, explained, reason, unknown
from onnxbisect_backends.toolchains.toolchain import VERSION, VERSION_HELP, installed_versions, toolchain_named

#: `{word}` is a placeholder, `{{word}}` a literal `{word}`; other braces are text.
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")

#: Placeholders that need no declaration; `{toolchain}` needs the key `toolchain`.
BUILT_IN = ("model", "workdir", "out", "here", "python", "toolchain")

#: Placeholders of the command that runs what was compiled.
COMPUTING = ("samples", "numbers", "inputs", "outputs")

#: The version of a tool whose file does not say how to learn it.
UNKNOWN = "unknown"


def _toolchain(text: str) -> str:
    try:
        toolchain_named(text)
    except OptionError as error:
        raise ValueError(str(error)) from None
    return text


Regex = Annotated[str, AfterValidator(lambda text: compile_pattern(text).pattern)]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) in (int, float) else value)]
Command = Annotated[tuple[str, ...], Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Success(_Table):
    """The conditions of a pass; all must hold."""

    #: Exit statuses of a good compile.
    exit_codes: tuple[int, ...] = (0,)
    #: Globs below the work directory; each must match a file that is not empty.
    files: tuple[str, ...] = ()
    log_must_match: tuple[Regex, ...] = ()
    log_must_not_match: tuple[Regex, ...] = ()


class Unresolved(_Table):
    """The conditions under which a compile says nothing about the model; one suffices.

    For example, a licence server did not answer.
    """

    exit_codes: tuple[int, ...] = ()
    log_matches: tuple[Regex, ...] = ()


class LogPattern(_Table):
    """A pattern for the compiler's log, with groups `op`, `node`, `tensor`."""

    regex: Regex
    kind: Kind = Kind.UNSUPPORTED
    #: A match is a failure whatever the exit status.
    fails: bool = False
    #: The pattern applies only with these option values, such as `{ fallback = "forbid" }`.
    when: dict[str, Text] = {}
    #: Where the text comes from; for the reader of the file.
    source: str = ""


class LimitsTable(_Table):
    """Default limits for this compiler."""

    seconds: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, gt=0)
    file_mb: int | None = Field(default=None, gt=0)
    log_kb: int | None = Field(default=None, gt=0)


class ProbeFormatTable(_Table):
    """How probes are prepared; the fields of `onnxbisect.probe_format.ProbeFormat`."""

    input_dtypes: frozenset[str] | None = None
    output_dtypes: frozenset[str] | None = None
    min_input_rank: int = Field(default=0, ge=0)
    min_output_rank: int = Field(default=0, ge=0)
    max_input_rank: int | None = Field(default=None, ge=1)
    max_output_rank: int | None = Field(default=None, ge=1)
    empty_inputs: bool = True
    max_inputs: int | None = Field(default=None, ge=1)
    max_outputs: int | None = Field(default=None, ge=1)
    longest_name: int | None = Field(default=None, ge=16)
    self_contained: bool = False
    safe_names: bool = False
    explicit_defaults: bool = False
    unwritten_defaults: tuple[str, ...] = ()
    constants_as_initializers: bool = False
    covered: tuple[str, ...] = ()
    accompanied: tuple[str, ...] = ()
    folds: bool = True
    loses_outputs: bool = False


class VersionCommand(_Table):
    """The command that prints the version: the first group of `regex`, or else its whole match."""

    command: Command
    regex: Regex = r"\d+(?:\.\d+)+\S*"


class Option(_Table):
    """A `--option` of this backend; its value fills the placeholder of the same name."""

    default: Text
    choices: tuple[Text, ...] = ()
    help: str = ""
    #: It names something on the compiler's machine; clients of the service cannot set it freely.
    local: bool = False
    #: Values with which the compiler may accept what it refuses with others.
    worth_trying: tuple[Text, ...] = ()


class Definition(_Table):
    """A compiler, as a TOML file describes it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    tool: str = ""
    #: One line about this compiler, for lists of backends.
    summary: str = ""
    #: What to install if the command is not found: the end of a sentence that begins with "install".
    install: str = ""
    #: `NAME` or `NAME==VERSION` of an environment that `onnx-bisect backends install` makes: the compiler runs in it.
    toolchain: Annotated[str, AfterValidator(_toolchain)] = ""
    #: Commands that run before `command`; the first that ends in a status neither 0 nor of success ends the compile.
    prepare: tuple[Command, ...] = ()
    command: Command
    #: Runs what was compiled on `{samples}`, and writes `{numbers}` (`contract.compute`); the work directory is that of
    #: the compile. `{inputs}` and `{outputs}` are their names as JSON. It brings the options `verify` and `tolerance`.
    compute: Command | None = None
    env: dict[str, Text] = {}
    #: Variables of the user's environment that the compiler gets too.
    inherit_env: tuple[str, ...] = ()
    cwd: Literal["work", "here"] = "work"
    #: The compiler needs the network, such as for a licence server. Without it an isolated compile has none.
    network: bool = False
    #: Whether its commands work under isolation; the client of a daemon does not.
    isolated: bool = True
    version: str | VersionCommand = UNKNOWN
    #: Op types that the compiler's documents list as supported; `domain::Op` outside the default domain.
    ops: frozenset[str] | None = None
    weights_matter: bool = False
    #: The compiler accepts models whose inputs have unbound dimensions.
    dynamic_shapes: bool = False
    #: `probe_format` has all that it does not take of graph inputs and outputs, so that nothing needs to be measured.
    boundary_known: bool = False
    #: The newest versions of the format that it reads.
    newest_ir: int | None = None
    newer_unfolded: bool = False
    newest_opset: int | None = None
    #: The oldest operator set that it reads in full; of older ones it lacks the forms of some ops.
    oldest_opset: int | None = None
    #: The shipped profile that records what the compiler accepts of each op.
    profile: str = ""
    #: Where the texts and lists of this file come from; for its reader.
    source: str = ""
    success: Success = Success()
    unresolved: Unresolved = Unresolved()
    patterns: tuple[LogPattern, ...] = ()
    limits: LimitsTable = LimitsTable()
    probe_format: ProbeFormatTable = ProbeFormatTable()
    options: dict[str, Option] = {}

    @model_validator(mode="after")
    def _placeholders(self) -> "Definition":
        words = [word for command in self.commands for word in command]
        if not any("model" in placeholders(word) for word in words):
            raise ValueError("command does not say where the model goes; write {model} in its place")
        if taken := sorted(set(self.options) & {*BUILT_IN, *COMPUTING}):
            raise ValueError(f"options.{taken[0]} has the name of a built-in placeholder")
        if self.compute and (taken := sorted(set(self.options) & set(VerifyOptions.model_fields))):
            raise ValueError(f"options.{taken[0]}: the file has this option already, since it says how to compute")
        valid = {*BUILT_IN, *self.options} - (set() if self.toolchain else {"toolchain"})
        asking = self.version.command if isinstance(self.version, VersionCommand) else ()
        computing = [(word, valid | set(COMPUTING)) for word in self.compute or ()]
        for element, here in [*((word, valid) for word in (*words, *asking, *self.env.values())), *computing]:
            for name in placeholders(element):
                if name not in here:
                    known = ", ".join(f"{{{word}}}" for word in sorted(here))
                    raise ValueError(
                        f"'{element}' has the placeholder {{{name}}}, which is neither built in nor an option; "
                        f"there are {known}"
                    )
        for name, option in self.options.items():
            if option.choices and option.default not in option.choices:
                raise ValueError(f"options.{name}: the default '{option.default}' is none of its choices")
            for value in option.worth_trying:
                if option.choices and value not in option.choices:
                    raise ValueError(f"options.{name}: '{value}', which is worth trying, is none of its choices")
        return self

    @model_validator(mode="after")
    def _conditions(self) -> "Definition":
        for number, pattern in enumerate(self.patterns):
            for name, value in pattern.when.items():
                where = f"patterns.{number}.when"
                if name not in self.options:
                    raise ValueError(f"{where}: {unknown('option', name, self.options).rstrip('.')}")
                choices = self.options[name].choices
                if choices and value not in choices:
                    raise ValueError(f"{where}: {unknown(f'choice of options.{name}', value, choices).rstrip('.')}")
        return self

    @property
    def takes_version(self) -> bool:
        """Whether the option `version` selects among installed versions of its toolchain."""
        return bool(self.toolchain) and "==" not in self.toolchain and VERSION not in self.options

    def explained(self) -> tuple[OptionHelp, ...]:
        """The descriptions of its options."""
        own = [
            OptionHelp(
                name=name,
                default=option.default,
                choices=option.choices,
                help=option.help,
                local=option.local,
                worth_trying=WorthTrying(values=option.worth_trying) if option.worth_trying else None,
            )
            for name, option in self.options.items()
        ]
        if self.compute:
            own += explained(VerifyOptions)
        if self.takes_version:
            own.append(OptionHelp(name=VERSION, help=VERSION_HELP, worth_trying=installed_versions(self.toolchain)))
        return tuple(own)

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """All commands of one compile, in order."""
        return (*self.prepare, self.command)


def placeholders(text: str) -> Iterable[str]:
    """The names in braces."""
    return [match[2] for match in PLACEHOLDER.finditer(text) if match[2]]


def fill(text: str, values: Callable[[str], str]) -> str:
    """The text with its placeholders replaced."""
    return PLACEHOLDER.sub(lambda match: f"{{{match[1]}}}" if match[1] else values(match[2]), text)


def load_definition(path: Path) -> Definition:
    """Read a TOML file; raises OptionError with the file, the key and the nearest valid one."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"The backend file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise OptionError(f"The backend file {path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"The backend file {path} is not valid TOML: {reason(str(error))}.") from None
    try:
        return Definition.model_validate(data)
    except ValidationError as error:
        raise OptionError(f"The backend file {path} is wrong: {complaint(error, Definition, 'key')}") from None
