"""The `whitelist` backend: a compiler simulated from an op-support profile.

It needs no vendor tool, answers in milliseconds, and fails in the way that the profiled compiler does: naming every
op type at once, the first offending node, or nothing. It serves to judge a model by a vendor's document, and to test
everything above the Backend contract.
"""

import json
import time
from pathlib import Path
from signal import SIGSEGV
from typing import Annotated, Any

import onnx
from google.protobuf.message import DecodeError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from onnxbisect.dressing import Dressing
from onnxbisect.errors import OptionError
from onnxbisect.fingerprint import fingerprint
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Description, Limits, Outcome
from onnxbisect_backends.judging import signal_name, unfinished
from onnxbisect_backends.options import read_options
from onnxbisect_backends.patterns import parse_chain
from onnxbisect_backends.profiles import OpSupport, Profile, Report, load
from onnxbisect_backends.simulate import Refusal, Rules, refusals

#: Starts the line of the log that `judge` reads; everything before it is for people.
_MARK = "[whitelist] "


def _split(mark: str) -> BeforeValidator:
    return BeforeValidator(
        lambda text: [p.strip() for p in text.split(mark) if p.strip()] if isinstance(text, str) else text
    )


class Options(BaseModel):
    """What `--option key=value` takes; docs/profiles.md explains each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: str | None = None
    ops: Annotated[tuple[str, ...], _split(",")] = ()
    deny: Annotated[tuple[str, ...], _split(",")] = ()
    report: Report | None = None
    folds: bool | None = None
    fail_patterns: Annotated[tuple[str, ...], _split(";")] = ()
    needs_context: Annotated[tuple[str, ...], _split(";")] = ()
    input_dtypes: Annotated[tuple[str, ...], _split(",")] = ()
    max_nodes: int | None = Field(default=None, ge=1)
    advertise: bool | None = None
    delay: float = Field(default=0.0, ge=0.0)


class WhitelistBackend:
    """One simulated compiler. Implements `contract.Backend`."""

    name = "whitelist"

    def __init__(self, options: dict[str, str]) -> None:
        """Raises OptionError for unknown options, values and profiles, and when nothing says what is supported."""
        self._options = read_options(Options, options, self.name)
        profile, digest = _profile(self._options)
        self._version = f"{profile.version} [{digest}]" if digest else profile.version
        self._profile = profile.model_copy(
            update={
                "report": self._options.report or profile.report,
                "folds": profile.folds if self._options.folds is None else self._options.folds,
            }
        )
        self._rules = _rules(self._options, self._profile)

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given and the report mode in force; verdicts do not depend on `delay`."""
        given = self._options.model_dump(mode="json", exclude_defaults=True, exclude={"delay"})
        return {**given, "report": self._profile.report.value}

    def describe(self) -> Description:
        """The profile's tool and its list as advertised ops, unless `advertise=false`."""
        advertise = not self._rules.everything_else if self._options.advertise is None else self._options.advertise
        dtypes = self._rules.input_dtypes
        return Description(
            tool=f"{self._profile.tool} (simulated)",
            version=self._version,
            ops=frozenset(self._profile.ops) - self._rules.denied if advertise else None,
            dressing=Dressing(input_dtypes=dtypes),
        )

    def check(self) -> str | None:
        """Always usable: there is no tool to miss."""
        return None

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Judge one ONNX file in this process: no tool is started, so there is nothing to contain or to kill.

        Weights outside of the file are not read. Writes nothing to `workdir`.
        """
        started = time.monotonic()
        if self._options.delay > limits.seconds:
            time.sleep(limits.seconds)
            return Outcome(timed_out=True, seconds=time.monotonic() - started)
        time.sleep(self._options.delay)
        try:
            model = onnx.load(probe, load_external_data=False)
        except (OSError, DecodeError) as error:
            return Outcome(broken=f"the probe cannot be read: {error}", seconds=time.monotonic() - started)
        found = refusals(model, self._rules)
        log = [f"{self._profile.tool} {self._version}, simulated by onnx-bisect"]
        exit_code: int | None = 1 if found else 0
        signal = None
        if found and found[0].kind is Kind.INVALID:
            log += [found[0].reason, *_record(found[:1], found[0].reason)]
        elif found and self._profile.report is Report.NONE:
            exit_code, signal = None, int(SIGSEGV)
        elif found:
            log += self._words(found)
        text = "\n".join(log) + "\n"
        return Outcome(
            exit_code=exit_code,
            signal=signal,
            seconds=time.monotonic() - started,
            log=text[-limits.log_bytes :],
            log_truncated=len(text) > limits.log_bytes,
        )

    def judge(self, outcome: Outcome) -> Verdict:
        """Read the outcome; hints are what the report mode lets the log admit."""
        seconds = outcome.seconds
        if (verdict := unfinished(outcome)) is not None:
            return verdict
        if outcome.signal is not None:
            name = signal_name(outcome.signal)
            message = f"Killed by {name}, without a word."
            return Verdict(status=Status.FAIL, kind=Kind.CRASH, message=message, fingerprint=name, seconds=seconds)
        if outcome.exit_code == 0:
            return Verdict(status=Status.PASS, seconds=seconds)
        record = next((line for line in reversed(outcome.log.splitlines()) if line.startswith(_MARK)), None)
        if record is None:
            return Verdict(status=Status.FAIL, kind=Kind.ERROR, message="failed without a word", seconds=seconds)
        said = json.loads(record.removeprefix(_MARK))
        kind = Kind(said["kind"])
        return Verdict(
            status=Status.UNRESOLVED if kind is Kind.INVALID else Status.FAIL,
            kind=kind,
            message=said["message"],
            fingerprint=fingerprint(said["message"]),
            hints=Hints(ops=tuple(said["ops"]), nodes=tuple(said["nodes"]), tensors=tuple(said["tensors"])),
            seconds=seconds,
        )

    def _words(self, found: tuple[Refusal, ...]) -> list[str]:
        """The end of the log, in the tool's words: first all ops off the list, and only then what else is wrong."""
        if self._profile.report is Report.FIRST:
            first = found[0]
            place = [f"    op: {_shown(node)}" for node in first.nodes]
            message = self._refusal(first.ops, first.nodes) if not first.reason else _sentence(first)
            return [message, *place, *_record((first,), message)]
        off_list = tuple(refusal for refusal in found if _is_off_list(refusal))
        if not off_list:
            message = _sentence(found[0])
            return [message, *_record(found[:1], message)]
        ops = tuple(sorted({op for refusal in off_list for op in refusal.ops}))
        template = self._profile.refusal
        if "{node}" in template:
            lines = [self._refusal(refusal.ops, refusal.nodes) for refusal in off_list]
        elif "{op}" in template:
            lines = [self._refusal((op,), ()) for op in ops]
        else:
            lines = [self._refusal(ops, ())]
        return [*lines, *_record(off_list, lines[0], nodes="{node}" in template)]

    def _refusal(self, ops: tuple[str, ...], nodes: tuple[str, ...]) -> str:
        words = {
            "{op}": ops[0],
            "{ops}": ",".join(ops),
            "{quoted_ops}": ", ".join(f"'{op}'" for op in ops),
            "{node}": nodes[0] if nodes else "",
        }
        text = self._profile.refusal
        for word, value in words.items():
            text = text.replace(word, _shown(value))
        return text


def _is_off_list(refusal: Refusal) -> bool:
    return refusal.kind is Kind.UNSUPPORTED and not refusal.reason


def _sentence(refusal: Refusal) -> str:
    where = f"{' > '.join(refusal.ops)} " if refusal.ops and refusal.kind is Kind.UNSUPPORTED else ""
    return _shown(f"{where}not supported: {refusal.reason}" if where else refusal.reason)


def _record(found: tuple[Refusal, ...], message: str, *, nodes: bool = True) -> list[str]:
    """What judge reads. JSON keeps hostile names on one line and apart from each other."""
    said = {
        "kind": found[0].kind.value,
        "message": message,
        "ops": list(dict.fromkeys(op for refusal in found for op in refusal.ops)),
        "nodes": list(dict.fromkeys(node for refusal in found for node in refusal.nodes)) if nodes else [],
        "tensors": [tensor for refusal in found for tensor in refusal.tensors],
    }
    return [_MARK + json.dumps(said)]


def _shown(text: str) -> str:
    """Text from a model, fit for one line of a log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _profile(options: Options) -> tuple[Profile, str]:
    if options.profile is not None and options.ops:
        raise OptionError(
            "the whitelist backend takes either profile or ops, not both; deny removes ops from a profile"
        )
    if options.profile is not None:
        return load(options.profile)
    if not (options.ops or options.deny or options.fail_patterns or options.needs_context or options.max_nodes):
        raise OptionError(
            "the whitelist backend needs to know what is supported: give profile=NAME, ops=A,B,… or deny=A,B,…"
        )
    # what the user did not list, a Constant node is: it is a weight written as a node
    ops = {op: OpSupport() for op in (*options.ops, "Constant")} if options.ops else {}
    return Profile(profile="options", tool="whitelist", version="1", source="the options", ops=ops), ""


def _rules(options: Options, profile: Profile) -> Rules:
    try:
        contexts: dict[str, tuple[tuple[str, ...], ...]] = {}
        for entry in options.needs_context:
            op, _, chain = entry.rpartition(":")
            op = op.strip()
            links = parse_chain(chain)
            if op not in links:
                raise ValueError(f"needs_context entry {entry!r} must read Op:A>Op>B, with Op in the chain")
            contexts[op] = (*contexts.get(op, ()), links)
        chains = tuple(parse_chain(entry) for entry in options.fail_patterns if "&" not in entry)
        together = tuple(parse_chain(entry, "&") for entry in options.fail_patterns if "&" in entry)
    except ValueError as error:
        raise OptionError(f"the whitelist backend cannot read a pattern: {error}") from error
    return Rules(
        profile=profile,
        everything_else=options.profile is None and not options.ops,
        denied=frozenset(options.deny),
        chains=chains,
        together=together,
        contexts=contexts,
        max_nodes=options.max_nodes,
        input_dtypes=frozenset(options.input_dtypes) or None,
    )
