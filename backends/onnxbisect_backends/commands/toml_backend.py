"""A compiler described by a TOML file: a command, its conditions of success, and patterns for its log."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import shorten
from typing import Any

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.fingerprint import fingerprint, plain
from onnxbisect.language import english
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Status, Verdict
from onnxbisect_backends.commands.definition import (
    UNKNOWN,
    Definition,
    Success,
    VersionCommand,
    fill,
    load_definition,
    placeholders,
)
from onnxbisect_backends.commands.named_files import files_named, short_hash
from onnxbisect_backends.contract import Access, Description, Limits, Outcome
from onnxbisect_backends.logs import (
    Pattern,
    Reading,
    compile_pattern,
    crashed,
    read_log,
    refused,
    unfinished,
    unresolved,
)
from onnxbisect_backends.options import VerifyOptions, read_options, unknown
from onnxbisect_backends.sandbox.confined_view import listed
from onnxbisect_backends.sandbox.process import clean_env, find_executable, inherited, not_found, run, with_artifacts
from onnxbisect_backends.toolchains.toolchain import VERSION, Toolchain, in_use, toolchain_named


def judged(definition: Definition, patterns: Sequence[Pattern], outcome: Outcome) -> Verdict:
    """The verdict; `patterns` are those of the definition that apply."""
    if verdict := unfinished(outcome):
        return verdict
    rules = definition.success
    reading = read_log(outcome.log, patterns)
    log, no_answer = plain(outcome.log), definition.unresolved
    why = f"The compiler could not answer (exit status {outcome.exit_code})"
    if outcome.exit_code not in no_answer.exit_codes:
        silent = any(compile_pattern(regex).search(log) for regex in no_answer.log_matches)
        why = "The compiler could not answer" if silent else ""
    if why:
        return unresolved(f"{why}: {reading.message}" if reading.message else f"{why}.", outcome)
    good_exit = outcome.exit_code in rules.exit_codes
    if not good_exit and (verdict := crashed(outcome, reading)):
        return verdict
    why = _missed(rules, outcome, reading)
    missing = next((regex for regex in rules.log_must_match if not compile_pattern(regex).search(log)), None)
    unsaid = missing and f"Ended with exit status {outcome.exit_code}, but the log has nothing like '{missing}'."
    fatal = rules.log_must_not_match or any(pattern.fails for pattern in patterns)
    if not why and outcome.log_truncated and (unsaid or fatal):
        return unresolved("What decides may stand in the part of the log that was cut; raise limits.log_kb.", outcome)
    why = why or unsaid or ""
    if not why:
        return Verdict(status=Status.PASS, hints=reading.hints, seconds=outcome.seconds)
    # the last line of a successful compile is no complaint, unless a pattern matched
    if not reading.message or (good_exit and not reading.kind):
        reading = replace(reading, fingerprint=fingerprint(why), message=why)
    return refused(outcome, reading)


def _missed(rules: Success, outcome: Outcome, reading: Reading) -> str:
    """Why this is no success, as a sentence; else empty."""
    if outcome.exit_code not in rules.exit_codes:
        return f"Ended with exit status {outcome.exit_code}."
    if reading.refused:
        return "The log says that the compile failed."
    log = plain(outcome.log)
    for regex in rules.log_must_not_match:
        if match := compile_pattern(regex).search(log):
            return f"The log says: {read_log(match[0]).message}"
    for glob in rules.files:
        if not any(fnmatchcase(str(path), glob) for path in outcome.artifacts):
            return f"Ended with exit status {outcome.exit_code}, but wrote no file '{glob}'."
    return ""


#: Seconds that a version command may take.
_VERSION_SECONDS = 60.0

#: Most characters of a command that is shown in full.
_LONG_COMMAND = 80


class TomlBackend:
    """The backend of one TOML file. Picklable; the file is read once.

    Raises OptionError if the file or an option is wrong. Compiles run in the empty work directory with a clean
    environment. If the file requests self-contained probes, the compiler gets a copy of the probe in the work
    directory, so that it may modify it or write beside it.
    """

    def __init__(self, path: Path, options: dict[str, str]) -> None:
        #: The TOML file.
        self.file = path.absolute()
        self._started_in = Path.cwd()
        self._definition = load_definition(self.file)
        version = options.get(VERSION, "") if self._definition.takes_version else ""
        others = {key: it for key, it in options.items() if key != VERSION or not self._definition.takes_version}
        comparing = {
            key: others.pop(key) for key in VerifyOptions.model_fields if self._definition.compute and key in others
        }
        self._verifying = read_options(VerifyOptions, comparing, self._definition.name)
        for key, value in others.items():
            if key not in self._definition.options:
                valid = [it.name for it in self._definition.explained()]
                raise OptionError(unknown(f"option of the backend '{self._definition.name}'", key, valid))
            choices = self._definition.options[key].choices
            if choices and value not in choices:
                raise OptionError(
                    unknown(f"value of the option '{key}' of the backend '{self._definition.name}'", value, choices)
                )
        self._values = {key: others.get(key, option.default) for key, option in self._definition.options.items()}
        self._version = {VERSION: version} if version else {}
        wanted = self._definition.toolchain
        #: The environment that the compiler runs in, if the file names one.
        self.toolchain: Toolchain | None = None
        if wanted:
            self.toolchain = in_use(wanted, version) if self._definition.takes_version else toolchain_named(wanted)
        words = [word for command in self._definition.commands for word in command]
        words += self._definition.compute or ()
        own = [word for word in words if "here" in placeholders(word)]
        own += [self._program(command[0]) for command in self._definition.commands if _is_relative(command[0])]
        named = files_named(self._filled(own), self.file.parent)
        files = sorted((Path(name).name, digest) for name, digest in named.items())
        self._digest = short_hash(self.file.read_text(encoding="utf-8") + json.dumps(files))

    @property
    def name(self) -> str:
        """The name in the file."""
        return self._definition.name

    @property
    def options(self) -> dict[str, Any]:
        """The options' values, and a hash of the TOML file and of files in its commands.

        These are the words with `{here}`, and programs that are named by a relative path.
        """
        comparing = self._verifying.model_dump(exclude=self._verifying.idle)
        return {**self._values, **comparing, **self._version, "definition": self._digest}

    @property
    def verifies_within(self) -> float | None:
        """`contract.verification`."""
        return self._verifying.within

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The compiled patterns that apply with these options."""
        return tuple(
            Pattern(regex=compile_pattern(it.regex), kind=it.kind, fails=it.fails)
            for it in self._definition.patterns
            if it.when.items() <= self._values.items()
        )

    @property
    def access(self) -> Access:
        """The programs of its commands, the file's folder, and the paths in its variables and options."""
        definition, env = self._definition, self._env(self.file.parent, {})
        asked = [definition.version.command] if isinstance(definition.version, VersionCommand) else []
        first = self._filled([self._program(words[0]) for words in (*definition.commands, *asked)])
        found = [find_executable(word, cwd=self.file.parent, path=env.get("PATH")) for word in first]
        named = [Path(value) for value in inherited(definition.inherit_env).values() if value[:1] == "/"]
        return Access(
            programs=tuple(filter(None, found)),
            # the file by itself, too: its folder is not shown where it holds the data of a service
            reads=(self.file.parent, self.file, *named, *listed(env)),
            network=definition.network,
        )

    @property
    def products(self) -> tuple[str, ...]:
        """The files that a pass must create, and whatever the command wrote to `{out}`."""
        return (*self._definition.success.files, "out*")

    @property
    def profile(self) -> str:
        """The profile that the file names."""
        return self._definition.profile

    def describe(self) -> Description:
        """Run the version command, if the file has one; raises BackendUnusableError if it fails."""
        definition = self._definition
        version = definition.version
        if isinstance(version, VersionCommand):
            version = self._ask_version(version)
        if self.toolchain and version == UNKNOWN:
            version = self.toolchain.version
        return Description(
            tool=definition.tool or Path(definition.command[0]).name,
            version=version,
            environment=self.toolchain.digest if self.toolchain else "",
            ops=definition.ops,
            probe_format=ProbeFormat(**definition.probe_format.model_dump()),
            weights_matter=definition.weights_matter,
            dynamic_shapes=definition.dynamic_shapes,
            newest_ir=definition.newest_ir,
            newer_unfolded=definition.newer_unfolded,
            newest_opset=definition.newest_opset,
            oldest_opset=definition.oldest_opset,
            boundary_known=definition.boundary_known,
        )

    def check(self) -> str | None:
        """Whether its toolchain is installed and the first words of its commands can be executed."""
        if self.toolchain and self.toolchain.missing:
            return self.toolchain.missing
        with tempfile.TemporaryDirectory() as work:
            path = self._env(Path(work), {}).get("PATH")
        first = [words[0] for words in self._definition.commands]
        for word, command in zip(first, self._filled([self._program(word) for word in first]), strict=True):
            if find_executable(command, cwd=self.file.parent, path=path):
                continue
            if _is_relative(word) and not Path(command).exists():
                return (
                    f"The command '{word}' of {self.file} was found neither beside that file nor in the working "
                    f"directory {self._started_in}; {{here}} stands for the file's folder."
                )
            return not_found(command, self._definition.install)
        return None

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Run the commands on one probe."""
        workdir, probe = workdir.absolute(), probe.absolute()
        if self._definition.probe_format.self_contained:
            probe = Path(shutil.copyfile(probe, workdir / "model.onnx"))
        # the commands are one compile: the first failure ends it, and the limits apply to all together
        limits, commands = self._bounded(limits), self._definition.commands
        each = replace(limits, log_bytes=limits.log_bytes // len(commands))
        outcome = Outcome(exit_code=0)
        for words in commands:
            if outcome.exit_code not in (0, *self._definition.success.exit_codes):
                break
            left = replace(each, seconds_left=limits.wall_seconds - outcome.seconds)
            ended = self._run(words, workdir, left, probe)
            outcome = replace(
                ended,
                seconds=outcome.seconds + ended.seconds,
                peak_memory=max(outcome.peak_memory, ended.peak_memory),
                log=outcome.log + ended.log,
                log_truncated=outcome.log_truncated or ended.log_truncated,
            )
        return with_artifacts(outcome, probe, workdir, self.toolchain.folder if self.toolchain else None)

    @property
    def compute(self) -> Callable[[Path, Path, Path, Path, Limits], Outcome]:
        """`contract.compute`, of a file that says how."""
        if self._definition.compute is None:
            raise AttributeError("compute")
        return self._compute

    def _compute(self, model: Path, samples: Path, out: Path, workdir: Path, limits: Limits) -> Outcome:
        """Compile the model if that is not done yet, and run what was made of it."""
        import onnx  # the API imports this module, and must not load ONNX

        from onnxbisect.model.scopes import fed_inputs

        workdir, model = workdir.absolute(), model.absolute()
        limits = self._bounded(limits)
        if not any(path for glob in self.products for path in workdir.glob(glob)):
            compiled = self.compile(model, workdir, limits)
            if not self.judge(compiled).passed:
                return replace(compiled, exit_code=compiled.exit_code or 1)
        graph = onnx.load(model, load_external_data=False).graph
        places = {
            "samples": str(samples.absolute()),
            "numbers": str(out.absolute()),
            "inputs": json.dumps([it.name for it in fed_inputs(graph)]),
            "outputs": json.dumps([it.name for it in graph.output]),
        }
        return self._run(self._definition.compute or (), workdir, limits, model, places)

    def judge(self, outcome: Outcome) -> Verdict:
        """Decide by the file's conditions of success; its patterns give kind, message and hints."""
        return judged(self._definition, self.patterns, outcome)

    def _program(self, word: str) -> str:
        """The path of a command: a relative one is searched beside the file, then where onnx-bisect was started."""
        if not _is_relative(word):
            return word
        places = [folder / word for folder in (self.file.parent, self._started_in)]
        return str(next((place for place in places if place.exists()), word))

    def _filled(self, words: Sequence[str], places: Mapping[str, str] | None = None) -> list[str]:
        values = {"here": str(self.file.parent), "python": sys.executable, **self._values, **(places or {})}
        if self.toolchain:
            values["toolchain"] = str(self.toolchain.folder)
        return [fill(word, lambda name: values.get(name, f"{{{name}}}")) for word in words]

    def _env(self, workdir: Path, places: Mapping[str, str]) -> dict[str, str]:
        definition = self._definition
        extra = dict(zip(definition.env, self._filled(list(definition.env.values()), places), strict=True))
        if self.toolchain is None:
            return clean_env(workdir, inherit=definition.inherit_env, extra=extra)
        return self.toolchain.environment(workdir, {**inherited(definition.inherit_env), **extra})

    def _run(
        self, words: Sequence[str], workdir: Path, limits: Limits, probe: Path, more: Mapping[str, str] | None = None
    ) -> Outcome:
        places = {"model": str(probe), "workdir": str(workdir), "out": str(workdir / "out"), **(more or {})}
        cwd = workdir if self._definition.cwd == "work" else self.file.parent
        definition, env = self._definition, self._env(workdir, places)
        # the user's own compiler may need a licence server; an installed toolchain needs no network
        network = True if definition.network else None if self.toolchain is None else False
        argv, reads = self._filled([self._program(words[0]), *words[1:]], places), self.access.reads
        return run(argv, cwd=cwd, env=env, limits=limits, network=network, reads=reads, isolated=definition.isolated)

    def _ask_version(self, how: VersionCommand) -> str:
        with tempfile.TemporaryDirectory() as work:
            outcome = self._run(how.command, Path(work), Limits(seconds=_VERSION_SECONDS), Path(work, "none.onnx"))
        if verdict := unfinished(outcome):
            raise BackendUnusableError(f"The backend '{self.name}' does not tell its version: {verdict.message}")
        match = compile_pattern(how.regex).search(plain(outcome.log))
        if match is None:
            command = shorten(" ".join(how.command), _LONG_COMMAND, placeholder=" …")
            said = read_log(outcome.log).message or "nothing"
            if install := self._definition.install:
                raise BackendUnusableError(
                    english(
                        "{name} does not tell its version, but {said}; install {what}.",
                        name=self.name,
                        said=repr(said),
                        what=install,
                    )
                )
            raise BackendUnusableError(
                f"The backend '{self.name}' does not tell its version: '{command}' printed {said!r}, "
                f"in which nothing matches '{how.regex}'."
            )
        return (match[1] if match.re.groups else match[0]).strip()

    def _bounded(self, limits: Limits) -> Limits:
        """The caller's limits, or the file's where the caller left the default."""
        table, default = self._definition.limits, Limits()
        if table.seconds and limits.seconds == default.seconds:
            limits = replace(limits, seconds=table.seconds)
        if table.memory_mb and limits.memory_bytes == default.memory_bytes:
            limits = replace(limits, memory_bytes=table.memory_mb << 20)
        if table.file_mb and limits.file_bytes == default.file_bytes:
            limits = replace(limits, file_bytes=table.file_mb << 20)
        if table.log_kb and limits.log_bytes == default.log_bytes:
            limits = replace(limits, log_bytes=table.log_kb << 10)
        return limits


def _is_relative(word: str) -> bool:
    """Whether a command is a relative path; a bare name is searched on PATH."""
    return "/" in word and not word.startswith(("/", "{"))
