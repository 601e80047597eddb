"""The `whitelist` backend: a compiler simulated from an op-support profile.

It needs no vendor tool, answers in milliseconds, and fails as the profiled compiler does: naming every op type at once,
the first offending node, or nothing. It checks a model against a vendor's document, and tests everything above the
Backend contract.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from signal import SIGSEGV
from typing import Annotated, Any

import onnx
from google.protobuf.message import DecodeError
from pydantic import BaseModel, ConfigDict, Field

from onnxbisect.errors import OptionError
from onnxbisect.fingerprint import fingerprint
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Description, Limits, Outcome
from onnxbisect_backends.logs import Reading, refused, signal_name, unfinished
from onnxbisect_backends.options import LOCAL, Names, WorthTrying, read_options
from onnxbisect_backends.simulator.profiles import LogDetail, OpSupport, Profile, load, shipped
from onnxbisect_backends.simulator.refusals import Rules, SimulatedRefusal, parse_chain, refusals

#: Starts the line that `read_back` looks for; everything before it is for people.
_MARK = "[whitelist] "
#: Most characters of model text in one line of the log.
_MOST = 300


@dataclass(frozen=True, kw_only=True)
class LogContents:
    """The contents of a log. `blanked` is the message without node names, for fingerprints."""

    kind: Kind
    message: str
    blanked: str
    hints: Hints


def words(profile: Profile, found: tuple[SimulatedRefusal, ...]) -> list[str]:
    """The last lines of the log, in the profile's report mode; none for a silent crash.

    `first` names the first offender with its node. `all` lists every unlisted op at once, or, without any, the first
    other refusal, like a converter that meets it after its check of op types.
    """
    if found[0].kind is Kind.INVALID:
        return [_shown(found[0].reason), _record(found[:1], found[0].reason)]
    if profile.report is LogDetail.NONE:
        return []
    if profile.report is LogDetail.FIRST:
        first = found[0]
        place = [f"    op: {_shown(node)}" for node in first.nodes]
        message = first.reason and _sentence(first)
        blanked = message or _refusal(profile, first.ops, "<node>")
        message = message or _refusal(profile, first.ops, first.nodes[0])
        return [message, *place, _record((first,), message, blanked)]
    off_list = tuple(refusal for refusal in found if refusal.kind is Kind.UNSUPPORTED and not refusal.reason)
    if not off_list:
        message = _sentence(found[0])
        return [message, _record(found[:1], message)]
    ops = tuple(sorted({op for refusal in off_list for op in refusal.ops}))
    if "{node}" in profile.refusal:
        lines = [_refusal(profile, refusal.ops, refusal.nodes[0]) for refusal in off_list]
        return [*lines, _record(off_list, lines[0], _refusal(profile, off_list[0].ops, "<node>"))]
    lines = [_refusal(profile, (op,)) for op in ops] if "{op}" in profile.refusal else [_refusal(profile, ops)]
    return [*lines, _record(off_list, lines[0], nodes=False)]


def unknown_words(found: tuple[SimulatedRefusal, ...]) -> list[str]:
    """The last lines of the log if the profile refuses nothing and does not know all ops."""
    unlisted = dict.fromkeys(op for refusal in found if not refusal.reason for op in refusal.ops)
    beyond = dict.fromkeys(f"{refusal.ops[0]} ({refusal.reason})" for refusal in found if refusal.reason)
    message = _shown(f"not known to this profile: {', '.join([*sorted(unlisted), *beyond])}")
    return [message, _record(found, message)]


def read_back(log: str) -> LogContents | None:
    """The contents that `words` wrote; None if missing, as in a truncated log."""
    line = next((line for line in reversed(log.splitlines()) if line.startswith(_MARK)), None)
    if line is None:
        return None
    said = json.loads(line.removeprefix(_MARK))
    return LogContents(
        kind=Kind(said["kind"]),
        message=said["message"],
        blanked=said["blanked"],
        hints=Hints(ops=tuple(said["ops"]), nodes=tuple(said["nodes"]), tensors=tuple(said["tensors"])),
    )


def _record(found: tuple[SimulatedRefusal, ...], message: str, blanked: str = "", *, nodes: bool = True) -> str:
    said = {
        "kind": found[0].kind.value,
        "message": message,
        "blanked": blanked or message,
        "ops": list(dict.fromkeys(op for refusal in found for op in refusal.ops)),
        "nodes": list(dict.fromkeys(node for refusal in found for node in refusal.nodes)) if nodes else [],
        "tensors": [tensor for refusal in found for tensor in refusal.tensors],
    }
    return _MARK + json.dumps(said)  # JSON escapes line ends, so that a hostile name stays one name


def _refusal(profile: Profile, ops: tuple[str, ...], node: str = "") -> str:
    named = {
        "{op}": ops[0],
        "{ops}": ",".join(ops),
        "{quoted_ops}": ", ".join(f"'{op}'" for op in ops),
        "{node}": node,
    }
    text = profile.refusal
    for word, value in named.items():
        text = text.replace(word, _shown(value))
    return text


def _sentence(refusal: SimulatedRefusal) -> str:
    unsupported = refusal.ops and refusal.kind is Kind.UNSUPPORTED
    return _shown(f"{refusal.ops[0]} not supported: {refusal.reason}" if unsupported else refusal.reason)


def _shown(text: str) -> str:
    """Text from a model, made safe for one line of the log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_MOST])


class SimulatorOptions(BaseModel):
    """The options; docs/profiles.md explains each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Annotated[str | None, LOCAL, WorthTrying(instead=True)] = Field(
        default=None, examples=[*shipped()], description="a shipped profile, or a TOML file of your own"
    )
    ops: Names = Field(default=(), description="instead of a profile: exactly these are supported, A,B,…")
    deny: Names = Field(
        default=(), description="these are refused, whatever the list says; alone: all others are taken"
    )
    report: LogDetail | None = Field(default=None, description="what the log names: all offenders, the first, or none")
    folds: bool | None = Field(default=None, description="whether constants fold away before the check")
    fail_patterns: Names = Field(
        default=(), description="A>B: fails where A feeds B; A&B: where both occur; several with ';'"
    )
    needs_context: Names = Field(default=(), description="Erf:Div>Erf>Add: Erf passes only within this chain")
    input_dtypes: Names = Field(default=(), description="other graph inputs are refused, float,int32,…")
    max_nodes: int | None = Field(default=None, ge=1, description="larger models fail as too large")
    advertise: bool | None = Field(default=None, description="whether the search may know the list")
    delay: float = Field(default=0.0, ge=0.0, description="seconds that each compile takes")


class WhitelistBackend:
    """A compiler simulated by rules: the ops, attributes and patterns of a profile or of options."""

    name = "whitelist"
    isolated = True
    Options = SimulatorOptions

    def __init__(self, options: dict[str, str]) -> None:
        """Raises OptionError for unknown options, values and profiles, and if no supported ops are given."""
        self._options = read_options(SimulatorOptions, options, self.name)
        profile, digest = _profile(self._options)
        self._version = f"{profile.version} [{digest}]" if digest else profile.version
        self._profile = profile.model_copy(
            update={
                "report": self._options.report or profile.report,
                "folds": profile.folds if self._options.folds is None else self._options.folds,
            }
        )
        #: The rules of the simulated compiler.
        self.rules = _rules(self._options, self._profile)

    @property
    def options(self) -> dict[str, Any]:
        """The given options and the report mode; verdicts do not depend on `delay`."""
        given = self._options.model_dump(mode="json", exclude_defaults=True, exclude={"delay"})
        return {**given, "report": self._profile.report.value}

    def describe(self) -> Description:
        """The profile's tool, and its ops as advertised ones unless `advertise=false`."""
        advertise = not self.rules.everything_else if self._options.advertise is None else self._options.advertise
        dtypes = self.rules.input_dtypes
        return Description(
            boundary_known=True,
            tool=f"a simulation of {self._profile.tool}",
            version=self._version,
            ops=frozenset(self._profile.ops) - self.rules.denied if advertise else None,
            probe_format=ProbeFormat(input_dtypes=dtypes),
            disputed=self._profile.disputed,
        )

    def check(self) -> str | None:
        """None: it is always usable."""
        return None

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Judge one ONNX file in this process; no tool is started, so nothing must be isolated or killed.

        External weights are not read. Writes nothing to `workdir`.
        """
        started = time.monotonic()
        if self._options.delay > limits.wall_seconds:
            time.sleep(limits.wall_seconds)
            return Outcome(timed_out=True, seconds=time.monotonic() - started)
        time.sleep(self._options.delay)
        try:
            model = onnx.load(probe, load_external_data=False)
        except (OSError, DecodeError) as error:
            return Outcome(broken=f"the probe cannot be read: {error}", seconds=time.monotonic() - started)
        found = refusals(model, self.rules)
        refused = tuple(refusal for refusal in found if refusal.kind is not Kind.UNKNOWN)
        log = [f"{self._profile.tool} {self._version}, simulated by onnx-bisect"]
        if found:
            log += words(self._profile, refused) if refused else unknown_words(found)
        crashed = bool(refused) and refused[0].kind is not Kind.INVALID and self._profile.report is LogDetail.NONE
        text = "\n".join(log) + "\n"
        return Outcome(
            exit_code=None if crashed else int(bool(found)),
            signal=int(SIGSEGV) if crashed else None,
            seconds=time.monotonic() - started,
            log=text[-limits.log_bytes :],
            log_truncated=len(text) > limits.log_bytes,
        )

    def judge(self, outcome: Outcome) -> Verdict:
        """The verdict; hints are limited to what the report mode reveals."""
        if (verdict := unfinished(outcome)) is not None:
            return verdict
        if outcome.signal is not None:
            name = signal_name(outcome.signal)
            crash = Reading(kind=Kind.CRASH, message=f"Killed by {name}, without a word.", fingerprint=name)
            return refused(outcome, crash)
        if outcome.exit_code == 0:
            return Verdict(status=Status.PASS, seconds=outcome.seconds)
        said = read_back(outcome.log)
        if said is None:
            return refused(outcome, Reading(message="failed without a word"))
        return Verdict(
            status=Status.UNRESOLVED if said.kind in (Kind.INVALID, Kind.UNKNOWN) else Status.FAIL,
            kind=said.kind,
            message=said.message,
            fingerprint=fingerprint(said.blanked),
            hints=said.hints,
            seconds=outcome.seconds,
        )


def _profile(options: SimulatorOptions) -> tuple[Profile, str]:
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
    # Constant is always supported, because it is a weight written as a node
    ops = {op: OpSupport() for op in (*options.ops, "Constant")} if options.ops else {}
    return Profile(profile="options", tool="whitelist", version="1", source="the options", ops=ops), ""


def _rules(options: SimulatorOptions, profile: Profile) -> Rules:
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
        for pattern in (*chains, *together):
            if len(pattern) == 1:
                raise ValueError(
                    f"fail_patterns entry {pattern[0]!r} must join two ops, as A>B or A&B; deny refuses one"
                )
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
