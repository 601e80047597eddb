"""The `rknn` backend: Rockchip's RKNN-Toolkit2, which converts models for the NPUs of RK35xx, RV11xx and RK2118."""

import json
import re
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from onnxbisect.errors import OptionError
from onnxbisect.fingerprint import headline
from onnxbisect.language import did_you_mean
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Access, Description, Limits, Outcome
from onnxbisect_backends.logs import Reading, crashed, read_log, refused, unfinished, unresolved, write_script
from onnxbisect_backends.options import Names, VerifyOptions, WorthTrying, read_options
from onnxbisect_backends.samples import samples_of
from onnxbisect_backends.sandbox.process import run, with_artifacts
from onnxbisect_backends.toolchains.toolchain import VERSION_HELP, in_use, installed_versions
from onnxbisect_backends.vendors.rknn import log

_SCRIPT = Path(__file__).with_name("rknn_convert.py")
_HYBRID_SCRIPT = Path(__file__).with_name("rknn_hybrid.py")

#: The exit status of `rknn_convert.py` if the toolkit was not called.
_NO_QUESTION = 2

#: The form of rule names.
_RULE = re.compile(rb"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")

#: Chips with integer arithmetic only.
_INTEGER_ONLY = frozenset({"rv1103", "rv1103b", "rv1106", "rv1106b"})

#: One chip of each kind with float arithmetic.
_IN_FLOAT = ("rk3588", "rk3576", "rk3568", "rk3562", "rv1126b", "rk2118")

#: Allowed input dtypes; the toolkit crashes on some others (int8) and refuses the rest.
_INPUT_DTYPES = frozenset({"float", "float16", "double", "int32", "int64", "bool"})

#: Attributes with which it refuses a file, whatever the value: "Unrecognized attribute: layout for operator LSTM".
_UNWRITTEN = ("LSTM.layout", "GRU.layout", "RNN.layout")

#: Bytes to which the toolkit cuts the name of a graph input, which it then does not find.
_LONGEST_NAME = 127

#: The newest opset that a version takes.
_NEWEST_OPSET = {"2.3.2": 19}

#: Default limits of a compile in seconds, and per megabyte of the model, because the toolkit hangs on some nodes.
_SECONDS, _SECONDS_PER_MB = 240.0, 8.0

#: Bytes of kept log, which has a table row for each node.
_LOG_BYTES = 32 << 20

_Target = Literal[
    "rk3588", "rk3576", "rk3568", "rk3566", "rk3562", "rv1103", "rv1103b", "rv1106", "rv1106b", "rv1126b", "rk2118"
]


class RknnOptions(VerifyOptions):
    """The options of the backend. Those with the toolkit's own names become arguments of `RKNN.config`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: Annotated[_Target, WorthTrying(values=_IN_FLOAT)] = Field(default="rk3588", description="the chip")
    fallback: Literal["allow", "forbid"] = Field(
        default="allow", description="whether a node may run on the CPU; with forbid, one that does is a failure"
    )
    overflow: Literal["allow", "forbid"] = Field(
        default="allow",
        description="whether a value may exceed its register of the NPU; with forbid, one that does is a failure",
    )
    quantize: bool = Field(default=False, description="convert to integers, calibrated on samples of the inputs")
    calibration_size: int = Field(
        default=4, ge=1, le=1000, description="samples of input values that go with each probe, with quantize"
    )
    quantized_dtype: Literal["w8a8", "w8a16", "w16a16i", "w16a16i_dfp", "w4a16"] = Field(
        default="w8a8", description="types of weights and activations, with quantize"
    )
    quantized_algorithm: Literal["normal", "mmse", "kl_divergence", "gdq"] = Field(
        default="normal", description="how ranges are found, with quantize"
    )
    quantized_method: str = Field(
        default="channel",
        pattern=r"^(layer|channel|group\d+)$",
        description="what shares a scale, with quantize: layer, channel, group32 to group256",
    )
    optimization_level: Annotated[int, WorthTrying(values=("0", "1", "2", "3"))] = Field(
        default=3, ge=0, le=3, description="0 to 3"
    )
    enable_flash_attention: bool = Field(default=False, description="fuse attention")
    single_core_mode: bool = Field(default=False, description="for one core of the rk3588")
    remove_reshape: bool = Field(default=False, description="drop Reshape at the ends of the model")
    compress_weight: bool = Field(default=False, description="smaller files")
    sparse_infer: bool = Field(default=False, description="use the sparsity of weights")
    disable_rules: Annotated[Names, WorthTrying(pattern=r"--option disable_rules=(\w+)")] = Field(
        default=(), description="rules of fusion to go without, A,B,…; where one fails, the log names it"
    )
    version: Annotated[str, installed_versions("rknn")] = Field(default="", description=VERSION_HELP)


#: Options that are not the toolkit's configuration under the same name.
_OURS = frozenset({"target", "fallback", "overflow", "quantize", "calibration_size", "version", "verify", "tolerance"})

#: Options that reports always show.
_ALWAYS = ("target", "fallback", "quantize")


class RknnBackend:
    """RKNN-Toolkit2 for Rockchip's NPUs, in an environment of its own."""

    name = "rknn"
    isolated = True
    products = ("out.rknn",)
    Options = RknnOptions

    def __init__(self, options: dict[str, str]) -> None:
        self._options = read_options(RknnOptions, options, self.name)
        if self._options.target in _INTEGER_ONLY and not self._options.quantize:
            raise OptionError(f"{self._options.target} computes in integers only; add --option quantize=true.")
        #: The environment that the compiler runs in.
        self.toolchain = in_use("rknn", self._options.version)

    @property
    def access(self) -> Access:
        """The toolchain's Python."""
        return Access(programs=(str(self.toolchain.python),))

    @property
    def options(self) -> dict[str, Any]:
        """The main options, and those set differently from the toolkit's defaults."""
        chosen = {name: getattr(self._options, name) for name in _ALWAYS}
        return {**chosen, **self._options.model_dump(exclude_defaults=True, exclude=self._options.idle, mode="json")}

    @property
    def verifies_within(self) -> float | None:
        """`contract.verification`."""
        return self._options.within

    @property
    def profile(self) -> str:
        """The measured profile of this version; empty with `quantize`, because float models were measured."""
        return "" if self._options.quantize else f"rknn-{self.toolchain.version}-measured"

    def describe(self) -> Description:
        """The toolchain's version; nothing is started."""
        return Description(
            boundary_known=True,
            needs_static=True,
            tool="RKNN-Toolkit2",
            version=self.toolchain.version,
            environment=self.toolchain.digest,
            probe_format=ProbeFormat(
                input_dtypes=_INPUT_DTYPES,
                min_input_rank=1,
                longest_name=_LONGEST_NAME,
                self_contained=True,
                unwritten_defaults=_UNWRITTEN,
            ),
            weights_matter=self._options.quantize,
            newest_opset=_NEWEST_OPSET.get(self.toolchain.version),
            samples=self._options.calibration_size if self._options.quantize else 0,
            computes_in="" if self._options.quantize else "float16",
        )

    def check(self) -> str | None:
        """Whether its environment is installed and has the rules to disable."""
        if self.toolchain.missing or not self._options.disable_rules:
            return self.toolchain.missing
        # every word in the toolkit's rule modules, which include all rule names: it has no list, and accepts any
        modules = self.toolchain.site_packages.glob("rknn/api/rules/*.so")
        rules = {word.decode() for module in modules for word in _RULE.findall(module.read_bytes())}
        unheard = next((rule for rule in self._options.disable_rules if rule not in rules), None)
        if unheard is None:
            return None
        hint = did_you_mean(unheard, rules, "; the log of a compile that fails in one names it.")
        return f"RKNN-Toolkit2 {self.toolchain.version} has no rule '{unheard}' to disable{hint}"

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Convert a copy of the probe; the toolkit writes beside it."""
        workdir = workdir.absolute()
        model = Path(shutil.copyfile(probe, workdir / "model.onnx"))
        samples = [str(path.absolute()) for path in samples_of(probe)] if self._options.quantize else []
        order = json.dumps({"config": self._config(), "quantize": self._options.quantize, "samples": samples})
        argv = [str(_SCRIPT), model.name, "out.rknn", order]
        outcome = self._run(argv, workdir, _bounded(limits, model.stat().st_size))
        if _depend_on_values(log.constant_outputs(outcome.log)[1], model):
            outcome = replace(outcome, log=f"{outcome.log.rstrip()}\n{log.FOLDED_TOO_MUCH}\n")
        return with_artifacts(outcome, model, workdir, self.toolchain.folder)

    def compute(self, model: Path, samples: Path, out: Path, workdir: Path, limits: Limits) -> Outcome:
        """Convert the model again, and run it on the simulator that comes with the toolkit."""
        files = sorted(samples.glob("*.npz"), key=lambda path: int(path.stem))
        return self._converted(model, files, "run", out, workdir, limits)

    def compare_layers(
        self, model: Path, sample: Path, workdir: Path, limits: Limits
    ) -> tuple[Outcome, Mapping[str, float]]:
        """Convert the model again, for the toolkit's `accuracy_analysis`."""
        folder = workdir / "analysis"
        outcome = self._converted(model, [sample], "analyse", folder, workdir, limits)
        table = folder / "error_analysis.txt"
        found = log.layer_errors(table.read_text(errors="replace")) if table.is_file() else ()
        rows = [(tensor, it.entire) for it in found for tensor in it.tensors]
        return outcome, {**{log.unsuffixed(tensor): cosine for tensor, cosine in rows}, **dict(rows)}

    def list_quantised(self, model: Path, samples: Path, workdir: Path, limits: Limits) -> Outcome:
        """Quantise the model, whatever `quantize` says; its nodes are fused before."""
        outcome = self._hybrid(model, samples, {}, workdir, limits)
        if (table := workdir / "analysis" / "error_analysis.txt").is_file():
            worst = sorted(log.layer_errors(table.read_text(errors="replace")), key=lambda it: it.single)
            (workdir / "errors.json").write_text(json.dumps([it.tensors for it in worst]))
        return outcome

    def compute_mixed(
        self, model: Path, samples: Path, keep: Sequence[str], out: Path, workdir: Path, limits: Limits
    ) -> Outcome:
        """Run the model on the simulator that comes with the toolkit, the kept tensors in float16."""
        return self._hybrid(model, samples, {"keep": list(keep), "out": str(out.absolute())}, workdir, limits)

    def vendor_files(self, probe: Path) -> None:
        """Write the script that calls the toolkit, its samples, and the command that runs it, beside the model."""
        folder = probe.parent
        script = Path(shutil.copyfile(_SCRIPT, folder / _SCRIPT.name))
        samples = []
        if self._options.quantize:
            (folder / "dataset").mkdir()
            samples = [f"dataset/{path.name}" for path in samples_of(probe)]
            for path in samples_of(probe):
                shutil.copyfile(path, folder / "dataset" / path.name)
        order = json.dumps({"config": self._config(), "quantize": self._options.quantize, "samples": samples})
        versions = f"# pip install rknn-toolkit2=={self.toolchain.version}"
        write_script(folder, [versions, shlex.join(["python", script.name, probe.name, "out.rknn", order])])

    def judge(self, outcome: Outcome) -> Verdict:
        """Decide by the exit status and the log: the toolkit also exits with 0 if it left nodes out."""
        if verdict := unfinished(outcome):
            return verdict
        said = log.without_noise(outcome.log)
        reading = read_log(said, log.PATTERNS)
        if log.FOLDED_TOO_MUCH in said:
            message, names = log.constant_outputs(said)
            folded = Reading(kind=Kind.ERROR, message=headline(message), hints=Hints(tensors=names))
            return refused(outcome, replace(folded, fingerprint="outputs folded that depend on inputs"))
        if log.FOLDED.search(said) and outcome.exit_code == 1:
            # a cut of shape computations; in the model they become constants, too, and need no NPU
            return Verdict(status=Status.PASS, message=reading.message, seconds=outcome.seconds)
        if outcome.exit_code == _NO_QUESTION or reading.kind is Kind.INVALID:
            return replace(unresolved(reading.message, outcome, reading.kind or Kind.ERROR), hints=reading.hints)
        if verdict := crashed(outcome, reading):
            return verdict
        if outcome.exit_code == 0 and not reading.refused:
            return self._placed(outcome)
        message = reading.message or f"Ended with exit status {outcome.exit_code}, without a word."
        rule, fused = log.fusion(said)
        if rule:
            message = f"{message} (fusing by the rule {rule}; --option disable_rules={rule} goes without it)"
        mark = f"{rule}: {reading.fingerprint}" if rule else reading.fingerprint
        hints = replace(
            reading.hints,
            nodes=(*reading.hints.nodes, *fused.nodes),
            tensors=(*reading.hints.tensors, *fused.tensors),
        )
        return refused(outcome, replace(reading, fingerprint=mark, message=message, hints=hints))

    def _hybrid(
        self, model: Path, samples: Path, wanted: Mapping[str, object], workdir: Path, limits: Limits
    ) -> Outcome:
        paths = [str(it.absolute()) for it in (_HYBRID_SCRIPT, model, samples)]
        return self._run([*paths, json.dumps({"config": self._config(), **wanted})], workdir, limits)

    def _converted(
        self, model: Path, samples: Sequence[Path], then: str, out: Path, workdir: Path, limits: Limits
    ) -> Outcome:
        given = {"quantize": self._options.quantize, "samples": [str(path.absolute()) for path in samples]}
        order = json.dumps({"config": self._config(), **given, "then": then})
        copy = Path(shutil.copyfile(model, workdir.absolute() / "model.onnx"))
        argv = [str(_SCRIPT), copy.name, str(out.absolute()), order]
        return self._run(argv, workdir, _bounded(limits, copy.stat().st_size))

    def _run(self, argv: Sequence[str], workdir: Path, limits: Limits) -> Outcome:
        # -P: the toolkit's package has the name of this module, which stands beside the script
        python = [str(self.toolchain.python), "-P", "-u", "-W", "ignore"]
        env = self.toolchain.environment(workdir)
        return run([*python, *argv], cwd=workdir, env=env, limits=limits, network=False)

    def _config(self) -> dict[str, Any]:
        """The arguments of `RKNN.config`; our defaults are the toolkit's."""
        chosen = self._options.model_dump(exclude=set(_OURS), exclude_defaults=True, mode="json")
        return {"target_platform": self._options.target, **chosen}

    def _placed(self, outcome: Outcome) -> Verdict:
        """The verdict on a converted model: with `fallback=forbid`, a failure if a layer does not run on the NPU."""
        if outcome.log_truncated:
            return unresolved("The log is cut, and with it what it may say of nodes left out", outcome)
        found = log.layers(outcome.log)
        if self._options.fallback == "forbid" and not found:
            return unresolved("The log does not tell where the nodes run", outcome)
        strayed = [layer for layer in found if layer.computes and layer.target != "NPU"]
        overflow = log.overflows(outcome.log)
        tables = ((log.placement(found),) if found else ()) + ((overflow,) if overflow else ())
        if self._options.overflow == "forbid" and overflow:
            register, _, most, largest, _ = overflow.rows[0]
            overflowed = Reading(
                kind=Kind.UNSUPPORTED,
                fingerprint="a value exceeds its register of the NPU",
                message=f"A value of {largest} exceeds register {register} of the NPU, which takes {most} at most.",
            )
            return refused(outcome, overflowed, tables)
        if self._options.fallback == "allow" or not strayed:
            return Verdict(status=Status.PASS, seconds=outcome.seconds, tables=tables)
        more = f" and {len(strayed) - 1} more" if len(strayed) > 1 else ""
        fell_back = Reading(
            kind=Kind.FALLBACK,
            fingerprint=f"runs on the {strayed[0].target}",
            message=headline(f"{strayed[0].called} runs on the {strayed[0].target}{more}."),
            hints=log.pointing_at(strayed),
        )
        return refused(outcome, fell_back, tables)


def _bounded(limits: Limits, size: int) -> Limits:
    """The caller's limits, or the toolkit's own where the caller left the default."""
    default = Limits()
    if limits.seconds == default.seconds:
        limits = replace(limits, seconds=min(default.seconds, _SECONDS + _SECONDS_PER_MB * size / 1e6))
    if limits.log_bytes == default.log_bytes:
        limits = replace(limits, log_bytes=_LOG_BYTES)
    return limits


def _depend_on_values(names: Collection[str], model: Path) -> bool:
    """Whether one of these tensors of the model depends on more of its inputs than their shapes."""
    if not names:
        return False
    import onnx

    from onnxbisect.model.shapeops import constness

    return not constness(onnx.load(model, load_external_data=False)).values.issuperset(names)
