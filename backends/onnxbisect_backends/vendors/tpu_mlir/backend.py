"""The `tpu-mlir` backend: Sophgo's TPU-MLIR, which compiles models for BM168x and CV18xx processors."""

import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import onnx
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Access, Description, Limits, Outcome
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.logs import crashed, read_log, refused, unfinished, unresolved, write_script
from onnxbisect_backends.options import LOCAL, WorthTrying, read_options
from onnxbisect_backends.samples import made_up, samples_of
from onnxbisect_backends.sandbox.process import clean_env, inherited, run, with_artifacts
from onnxbisect_backends.toolchains.toolchain import Toolchain, in_use, installed_versions
from onnxbisect_backends.vendors.tpu_mlir import log, tpu_mlir_steps

_SCRIPT = Path(__file__).with_name("tpu_mlir_steps.py")
_MIXED_SCRIPT = Path(__file__).with_name("tpu_mlir_mixed.py")
#: The processor whose arithmetic is asked where the options name none.
_USUAL = "bm1684x"

#: The exit statuses of `tpu_mlir_steps.py` if the compiler was not called: an option unknown to this version, and any
#: other error.
_NOT_ASKED = (2, 3)

#: Variables that `envsetup.sh` of the SDK sets.
_SDK_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONPATH", "TPUC_ROOT", "PROJECT_ROOT")

#: The progress bar of a comparison, which precedes messages about tensors.
_BAR = re.compile(r"[^\n\r]*\d+%\|[^\n\r]*?\[\d\d:\d\d<[^\]\n]*\]")

#: Processors with `cvimodel` output; these and cv184x have no F32.
_CVITEK = ("cv180x", "cv181x", "cv182x", "cv183x")

#: Samples beside a probe that is compared: made-up ones are repeated before other numbers are believed.
_COMPARED_ON = 2

_IN_INTEGERS = ("INT8", "INT4")
_COMPUTES_IN: Mapping[str, Literal["float16", "bfloat16"]] = {"F16": "float16", "BF16": "bfloat16"}

_PROBE_FORMAT = ProbeFormat(
    explicit_defaults=True,
    # it refuses these attributes if they are present, whatever their value
    unwritten_defaults=("ScatterND.reduction", "ScatterElements.reduction"),
    constants_as_initializers=True,
    # it removes them, and fails if an input then becomes an output
    covered=("Identity", "Dropout"),
    empty_inputs=False,
    # of nodes without attributes that compute the same it keeps one, under one name
    loses_outputs=True,
)

Processor = Literal[
    "", "bm1684", "bm1684x", "bm1684x2", "bm1688", "bm1690", "bm1690e", "cv180x", "cv181x", "cv182x", "cv183x",
    "cv184x", "cv186x", "mars3", "sg2262", "sg2380", "sgtpuv8",
]  # fmt: skip
Quantize = Literal[
    "", "F32", "F16", "BF16", "INT8", "INT4", "W8F16", "W8BF16", "W4F16", "W4BF16", "F8E4M3", "F8E5M2", "QDQ"
]


def _similarities(text: str) -> str:
    """Validate here, because the tool accepts anything and then fails in the comparison of every probe."""
    if text and not re.fullmatch(r"(0?\.\d+|[01])(,(0?\.\d+|[01])){1,2}", text):
        raise ValueError("give two numbers from 0 to 1, as in 0.99,0.9")
    return text


Tolerance = Annotated[str, AfterValidator(_similarities)]


class TpuMlirOptions(BaseModel):
    """The options of the backend."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Annotated[str, installed_versions("tpu-mlir")] = Field(
        default="",
        description="the version to use of those that 'onnx-bisect backends install tpu-mlir==VERSION' makes; without "
        "it the newest that is installed, else the model_transform.py of PATH",
    )
    home: Annotated[str, LOCAL] = Field(
        default="", description="the folder of an SDK of your own, in which envsetup.sh is"
    )
    processor: Annotated[Processor, WorthTrying(values=("bm1684x", "bm1688", "bm1690", "cv186x"), instead=True)] = (
        Field(default="", description="what to compile for; without it model_transform is all")
    )
    quantize: Annotated[Quantize, WorthTrying(values=("F32", "F16", "BF16", "INT8"))] = Field(
        default="", description="as model_deploy has it; without it F32, and BF16 for cv180x to cv184x, which lack F32"
    )
    calibration: int = Field(
        default=4, ge=1, le=1000, description="samples of input values that INT8 and INT4 are calibrated with"
    )
    verify: bool = Field(
        default=True, description="compare the numbers with those of onnxruntime: a model that computes others fails"
    )
    verify_mb: int = Field(
        default=512, ge=1, description="models whose tensors hold more are not compared: the tool keeps all of them"
    )
    tolerance: Tolerance = Field(default="0.99,0.99", description="least cosine and euclidean similarity")
    deploy_tolerance: Tolerance = Field(default="", description="that of model_deploy; without it the tool's own")


class TpuMlirBackend:
    """Sophgo's TPU-MLIR: model_transform, and model_deploy where a processor is named."""

    name = "tpu-mlir"
    isolated = True
    Options = TpuMlirOptions

    def __init__(self, options: dict[str, str]) -> None:
        self._options = read_options(TpuMlirOptions, options, self.name)
        if self._options.version and self._options.home:
            raise OptionError(f"The backend '{self.name}' takes 'version' or 'home', not both.")
        if self._options.quantize and not self._options.processor:
            raise OptionError(f"The option 'quantize' of the backend '{self.name}' needs a 'processor'.")
        self._home = Path(self._options.home).absolute() if self._options.home else None
        #: The environment that the compiler runs in; None means the user's own tool.
        self.toolchain: Toolchain | None = None
        if not self._home:
            chosen = in_use(self.name, self._options.version)
            if self._options.version or chosen.installed or not shutil.which("model_transform.py"):
                self.toolchain = chosen

    @property
    def access(self) -> Access:
        """The toolchain's Python, or the SDK of the options or the environment."""
        if self.toolchain:
            return Access(programs=(str(self.toolchain.python),))
        named = [Path(value) for value in inherited(_SDK_VARIABLES[2:]).values() if value[:1] == "/"]
        return Access(reads=(*named, *([self._home] if self._home else [])))

    @property
    def products(self) -> tuple[str, ...]:
        """The file for the processor, or without one the MLIR file."""
        return (self._result,)

    @property
    def options(self) -> dict[str, Any]:
        """The effective options, without those that change nothing."""
        idle = {name for name, value in self._options.model_dump().items() if value == ""} - {"quantize"}
        idle |= set() if self._calibration else {"calibration"}
        idle |= set() if self._options.processor else {"quantize", "deploy_tolerance"}
        idle |= set() if self._options.verify else {"verify_mb", "tolerance", "deploy_tolerance"}
        options = {**self._options.model_dump(), "quantize": self._quantize}
        return {name: value for name, value in options.items() if name not in idle}

    def check(self) -> str | None:
        """Whether the tool of the options is available."""
        if self.toolchain:
            return self.toolchain.missing
        if self._home and not (self._home / "envsetup.sh").is_file():
            return f"'{self._home}' is no SDK of TPU-MLIR: there is no envsetup.sh in it; give its folder as 'home'."
        return None

    @property
    def profile(self) -> str:
        """The op table of the converter of a pinned version."""
        return f"tpu-mlir-{self.toolchain.version}" if self.toolchain else ""

    def describe(self) -> Description:
        """The tool's own description; starts it once."""
        facts = self._facts
        options = self._options
        return Description(
            boundary_known=True,
            needs_static=True,
            tool="TPU-MLIR",
            version=facts["version"],
            environment=self.toolchain.digest if self.toolchain else "",
            ops=frozenset(facts["ops"]),
            probe_format=_PROBE_FORMAT,
            weights_matter=self._quantize not in ("", "F32", "F16", "BF16"),
            newest_ir=facts["ir"],
            newest_opset=facts["opset"],
            newer_unfolded=True,
            samples=self._calibration or (_COMPARED_ON if options.verify else 0),
            computes_in=_COMPUTES_IN.get(self._quantize, ""),
        )

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """All steps for one probe, in one process tree."""
        order = self._order(probe)
        outcome = self._run(("compile", str(probe.absolute()), json.dumps(order)), workdir, limits)
        folder = self.toolchain.folder if self.toolchain else None
        outcome = with_artifacts(outcome, probe.absolute(), workdir, folder)
        return replace(outcome, log=_BAR.sub("", outcome.log))

    def list_quantised(self, model: Path, samples: Path, workdir: Path, limits: Limits) -> Outcome:
        """Convert the model and calibrate it in int8, whatever `quantize` says."""
        return self._mixed(model, samples, {}, workdir, limits)

    def compute_mixed(
        self, model: Path, samples: Path, keep: Sequence[str], out: Path, workdir: Path, limits: Limits
    ) -> Outcome:
        """Run the model in the tool's interpreter of quantised models, the kept ops in float16."""
        return self._mixed(model, samples, {"keep": list(keep), "out": str(out.absolute())}, workdir, limits)

    def _mixed(
        self, model: Path, samples: Path, wanted: Mapping[str, object], workdir: Path, limits: Limits
    ) -> Outcome:
        order = json.dumps({"processor": self._options.processor or _USUAL, **wanted})
        words = (str(model.absolute()), str(samples.absolute()), order)
        return self._run(words, workdir, limits, script=_MIXED_SCRIPT)

    def vendor_files(self, probe: Path) -> None:
        """Write the input values and the commands of all steps beside the model."""
        order = self._order(probe)
        graph = onnx.load(probe, load_external_data=False).graph
        count = order["calibrate"] or int(order["verify"])
        samples = tpu_mlir_steps.write_samples(graph, order["samples"], count, probe.parent) if count else []
        order["verify"] = order["verify"] and bool(samples)
        steps = [tpu_mlir_steps.transform(probe.name, order, samples)]
        steps += tpu_mlir_steps.deploy(order) if order["processor"] else []
        write_script(probe.parent, [shlex.join([f"{tool}.py", *words]) for tool, *words in steps])

    def _order(self, probe: Path) -> dict[str, Any]:
        """The arguments of `tpu_mlir_steps.py` for a probe."""
        options = self._options
        return {
            "samples": [str(path.absolute()) for path in samples_of(probe)],
            "made_up": made_up(probe),
            "verify": options.verify,
            "verify_mb": options.verify_mb,
            "tolerance": options.tolerance,
            "processor": options.processor,
            "quantize": self._quantize,
            "calibrate": self._calibration,
            "deploy_tolerance": options.deploy_tolerance,
            "result": self._result,
        }

    def judge(self, outcome: Outcome) -> Verdict:
        """Decide by the exit status and the files; the log gives kind and hints."""
        if verdict := unfinished(outcome):
            return verdict
        outcome = replace(outcome, log=log.last_comparison(outcome.log))
        reading = read_log(outcome.log, log.PATTERNS)
        made = {str(path) for path in outcome.artifacts}
        if outcome.exit_code == 0 and self._result in made and not reading.refused:
            return Verdict(status=Status.PASS, seconds=outcome.seconds, tables=log.compared(outcome.log))
        no_question = any(pattern.regex.search(outcome.log) for pattern in log.NO_QUESTION)
        if no_question or outcome.exit_code in _NOT_ASKED or log.broke_comparing(outcome.log):
            return unresolved(reading.message, outcome, reading.kind or Kind.ERROR)
        tables = log.compared(outcome.log)
        if reading.kind is Kind.NUMERIC:
            # most of these tensors are wrong only because an earlier one is
            tiny = log.tiny_tensors(outcome.log)
            wrong = tuple(tensor for tensor in reading.hints.tensors if tensor not in tiny)
            hints = Hints(tensors=wrong, right=log.right_tensors(tables))
            distance = log.distances(outcome.log)
            if first := next((tensor for tensor in wrong if tensor in distance), ""):
                said = " ".join(reading.message.split())
                reading = replace(reading, message=f"{first} {distance[first]} ({said})")
        else:
            # the tool prints a set in arbitrary order
            hints = replace(reading.hints, ops=tuple(sorted(reading.hints.ops)), unfolded=log.unfolded(outcome.log))
        reading = replace(reading, hints=hints)
        if verdict := crashed(outcome, reading):
            return verdict
        silent = f"Ended with exit status {outcome.exit_code} and without '{self._result}'."
        message = reading.message.removeprefix("[onnx-bisect] ") or silent
        return refused(outcome, replace(reading, message=message), tables)

    @property
    def _quantize(self) -> str:
        if not self._options.processor:
            return ""
        lacks_f32 = self._options.processor in (*_CVITEK, "cv184x")
        return self._options.quantize or ("BF16" if lacks_f32 else "F32")

    @property
    def _calibration(self) -> int:
        return self._options.calibration if self._quantize in _IN_INTEGERS else 0

    @property
    def _result(self) -> str:
        """The file that a success creates."""
        if not self._options.processor:
            return "probe.mlir"
        return "probe.cvimodel" if self._options.processor in _CVITEK else "probe.bmodel"

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        with working_folder() as folder:
            outcome = self._run(("describe",), folder, Limits(seconds=120))
        lines = outcome.log.splitlines()
        if outcome.exit_code != 0 or not lines:
            said = outcome.broken or (lines[-1] if lines else "it said nothing")
            raise BackendUnusableError(f"TPU-MLIR could not be asked for its version: {said}")
        facts: Mapping[str, Any] = json.loads(lines[-1])
        return facts

    def _run(self, words: Sequence[str], workdir: Path, limits: Limits, script: Path = _SCRIPT) -> Outcome:
        # a fixed order for sets that the tool prints, and unbuffered output to keep its order
        extra = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
        argv = ["python3", str(script), *words]
        if self.toolchain:
            return run(argv, cwd=workdir, env=self.toolchain.environment(workdir, extra), limits=limits, network=False)
        env = clean_env(workdir, inherit=_SDK_VARIABLES, extra=extra)
        if self._home:
            env = {name: value for name, value in env.items() if name not in _SDK_VARIABLES}
            argv = ["bash", "-c", '. "$0/envsetup.sh" >/dev/null && exec "$@"', str(self._home), *argv]
        return run(argv, cwd=workdir, env=env, limits=limits, reads=self.access.reads)
