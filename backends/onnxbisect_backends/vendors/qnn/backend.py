"""The `qnn` backend: Qualcomm's compiler for the Hexagon NPU (HTP), called through onnxruntime's QNN provider.

It prepares a model offline for a chip; with onnxruntime's CPU fallback disabled, it accepts the whole model or refuses
it.
"""

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from onnx import TensorProto
from pydantic import ConfigDict, Field, field_validator

from onnxbisect.fingerprint import fingerprint, headline
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from onnxbisect_backends.contract import Access, Description, Limits, Outcome
from onnxbisect_backends.logs import Reading, crashed, read_log, refused, unfinished, unresolved, write_script
from onnxbisect_backends.options import VerifyOptions, WorthTrying, read_options, unknown
from onnxbisect_backends.sandbox.process import run, with_artifacts
from onnxbisect_backends.toolchains.toolchain import VERSION_HELP, in_use, installed_versions
from onnxbisect_backends.vendors.qnn.log import (
    INVALID,
    NO_ANSWER,
    PATTERNS,
    PREAMBLE,
    Support,
    read_support,
    support_line,
)

_SCRIPT = Path(__file__).with_name("qnn_session.py")
_RUN_SCRIPT = Path(__file__).with_name("qnn_run.py")

#: Options of preparation that the emulator does without.
_NOT_EMULATED = frozenset({"backend_type", "enable_framework_op_trace"})

#: The exit status of `qnn_session.py` for a refusal.
_REFUSED = 3

#: The newest IR version and opset that onnxruntime loads, by the version of onnxruntime-qnn that it comes with.
_NEWEST = {"2.7.0": (13, 26)}

#: "Unsupported FP64 data type in graph IO"; between two nodes onnxruntime makes double another type.
_BOUNDARY_DTYPES = frozenset(name.lower() for name, _ in TensorProto.DataType.items()) - {"undefined", "double"}

#: Tensors of rank 6 are taken only within patterns that become one node of QNN, such as Reshape, Transpose, Reshape.
_HIGHEST_RANK = 5

#: Ops that onnxruntime inlines as the functions that they are, but not once QNN has compiled another node of the file.
_INLINED_ALONE = ("Mish", "NegativeLogLikelihoodLoss")

#: The chips of onnxruntime-qnn 2.7.0; for another name it only warns, and prepares for none.
_CHIPS = (
    *("SC8380XP", "SC8480XP", "SM7675", "SM8325", "SM8350", "SM8450", "SM8475"),
    *("SM8550", "SM8635", "SM8650", "SM8750", "SM8850", "SM8975"),
)

#: One chip of each generation of the HTP, the oldest first.
_GENERATIONS = ("SM8350", "SM8450", "SM8550", "SM8650", "SM8750", "SM8850")


_COMPUTES_IN: Mapping[str, Literal["float16", "bfloat16"]] = {"fp16": "float16", "bf16": "bfloat16"}


class QnnOptions(VerifyOptions):
    """The options of the backend."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    soc_model: Annotated[str, WorthTrying(values=_GENERATIONS)] = Field(
        default="SM8550", description=f"the chip: {', '.join(_CHIPS)}, or QNN's number for another"
    )
    htp_arch: Literal["68", "69", "73", "75", "79", "81"] | None = Field(
        default=None, description="the architecture of its HTP; by default what the chip has"
    )
    precision: Annotated[Literal["fp16", "fp32", "bf16"], WorthTrying()] = Field(
        default="fp16", description="what the HTP computes float32 tensors in; bf16 from SoC number 88 on"
    )
    optimization: Annotated[int, WorthTrying(values=("1", "2", "3"))] = Field(
        default=0, ge=0, le=3, description="how long the HTP graph is optimised: 1 shortest, 3 longest, 0 QNN's default"
    )
    vtcm_mb: int | None = Field(default=None, ge=1, description="megabytes of on-chip memory; by default all")
    version: Annotated[str, installed_versions("qnn")] = Field(default="", description=VERSION_HELP)

    @field_validator("soc_model")
    @classmethod
    def _is_known(cls, chip: str) -> str:
        name = chip.upper()
        if name not in _CHIPS and not re.fullmatch("[1-9][0-9]*", chip):
            raise ValueError(f"{unknown('chip that QNN knows by name', chip, _CHIPS)} Others go by QNN's number.")
        return name


class QnnBackend:
    """Qualcomm Hexagon NPUs (HTP), prepared offline by onnxruntime's QNN provider."""

    name = "qnn"
    isolated = True
    products = ("context*",)
    Options = QnnOptions

    def __init__(self, options: dict[str, str]) -> None:
        self._options = read_options(QnnOptions, options, self.name)
        #: The environment that the compiler runs in.
        self.toolchain = in_use(self.name, self._options.version)

    @property
    def access(self) -> Access:
        """The toolchain's Python."""
        return Access(programs=(str(self.toolchain.python),))

    @property
    def options(self) -> dict[str, Any]:
        """The effective options."""
        return self._options.model_dump(exclude=self._options.idle | (set() if self._options.version else {"version"}))

    @property
    def verifies_within(self) -> float | None:
        """`contract.verification`."""
        return self._options.within

    @property
    def profile(self) -> str:
        """The measured profile of the pinned version in fp16."""
        measured = self._options.precision == "fp16"
        return f"qnn-{self.toolchain.version}-measured" if measured else ""

    def describe(self) -> Description:
        """The pinned version; nothing is started."""
        newest_ir, newest_opset = _NEWEST.get(self.toolchain.version, (None, None))
        return Description(
            boundary_known=True,
            needs_static=True,
            tool="Qualcomm QNN (onnxruntime-qnn)",
            version=self.toolchain.version,
            environment=self.toolchain.digest,
            probe_format=ProbeFormat(
                input_dtypes=_BOUNDARY_DTYPES,
                output_dtypes=_BOUNDARY_DTYPES,
                max_input_rank=_HIGHEST_RANK,
                max_output_rank=_HIGHEST_RANK,
                accompanied=_INLINED_ALONE,
            ),
            newest_ir=newest_ir,
            newest_opset=newest_opset,
            computes_in=_COMPUTES_IN.get(self._options.precision, ""),
        )

    def check(self) -> str | None:
        """Whether the toolchain is installed."""
        return self.toolchain.missing

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Prepare one probe; the log ends with the trace's entries for the probe's nodes.

        A context file is written even after a refusal, so it proves nothing.
        """
        workdir = workdir.absolute()
        python, words = str(self.toolchain.python), json.dumps(self._provider_options())
        # -P: this package's own modules must not shadow others
        argv = [python, "-P", str(_SCRIPT), str(probe.absolute()), str(workdir / "context.onnx"), words]
        outcome = run(argv, cwd=workdir, env=self.toolchain.environment(workdir), limits=limits, network=False)
        if outcome.exit_code == _REFUSED:
            outcome = replace(outcome, log=f"{outcome.log}\n{support_line(workdir, probe)}\n")
        return with_artifacts(outcome, probe.absolute(), workdir, self.toolchain.folder)

    def compute(self, model: Path, samples: Path, out: Path, workdir: Path, limits: Limits) -> Outcome:
        """Run a model on the emulator of the HTP that comes with the toolchain: quantised nodes in integers, others in
        the float type of `precision`.
        """
        words = json.dumps({name: it for name, it in self._provider_options().items() if name not in _NOT_EMULATED})
        paths = [str(it.absolute()) for it in (model, samples, out)]
        argv = [str(self.toolchain.python), "-P", str(_RUN_SCRIPT), *paths, words]
        return run(argv, cwd=workdir, env=self.toolchain.environment(workdir), limits=limits, network=False)

    def vendor_files(self, probe: Path) -> None:
        """Write the script that creates the session, and the command that runs it, beside the model."""
        script = Path(shutil.copyfile(_SCRIPT, probe.parent / _SCRIPT.name))
        words = ["python", script.name, probe.name, "context.onnx", json.dumps(self._provider_options())]
        versions = f"# pip install onnxruntime-qnn=={self.toolchain.version}"
        write_script(probe.parent, [versions, shlex.join(words)])

    def judge(self, outcome: Outcome) -> Verdict:
        """Decide by the exit status; hints and reasons come from the trace, or else from the log."""
        if verdict := unfinished(outcome):
            return verdict
        if outcome.exit_code == 0:
            return Verdict(status=Status.PASS, seconds=outcome.seconds)
        reading = read_log(outcome.log, PATTERNS)
        if verdict := crashed(outcome, reading):
            return verdict
        support = read_support(outcome.log)
        if support.refused:
            return _unsupported(support, outcome)
        trouble = read_log(outcome.log, NO_ANSWER)
        if outcome.exit_code != _REFUSED or trouble.kind is not None:
            return unresolved(PREAMBLE.sub("", trouble.message), outcome)
        # before a failure to finalise, the list is from before functions are inlined
        hints = reading.hints if reading.kind is Kind.UNSUPPORTED else read_log(outcome.log, INVALID).hints
        message = PREAMBLE.sub("", reading.message) or "Refused, without a word."
        return refused(outcome, replace(reading, message=message, hints=hints))

    def _provider_options(self) -> dict[str, str]:
        options = self._options
        given = {
            "backend_type": "htp",
            "soc_model": options.soc_model,
            "enable_htp_fp16_precision": str(int(options.precision == "fp16")),
            "htp_bf16_enable": str(int(options.precision == "bf16")),
            "htp_graph_finalization_optimization_mode": str(options.optimization),
            "enable_framework_op_trace": "1",
        }
        if options.htp_arch is not None:
            given["htp_arch"] = options.htp_arch
        if options.vtcm_mb is not None:
            given["vtcm_mb"] = str(options.vtcm_mb)
        return given


def _unsupported(support: Support, outcome: Outcome) -> Verdict:
    causes = tuple(one for one in support.refused if not one.is_consequence)
    if support.unbound and not causes:
        return unresolved(
            f"QNN needs static shapes, and that of the input '{support.unbound[0]}' is not known.", outcome
        )
    causes = causes or support.refused
    causes = tuple(one for one in causes if one.node) or causes
    # "Operators of type …" only says that the node is unsupported
    reasons = ["" if one.reason.startswith("Operators of type ") else one.reason.rstrip(".!") for one in causes]
    said = tuple(dict.fromkeys(zip((one.op for one in causes), reasons, strict=True)))
    words = ", ".join(f"{op} ({why})" if why else op for op, why in said)
    found = Reading(
        kind=Kind.UNSUPPORTED,
        fingerprint=fingerprint(f"unsupported nodes: {'; '.join(sorted({why for _, why in said}))}"),
        message=headline(f"Unsupported nodes in QNN EP: {' '.join(words.split())}"),
        hints=Hints(
            ops=tuple(dict.fromkeys(one.op for one in causes if one.node)),
            nodes=tuple(one.node for one in causes if one.node),
        ),
    )
    return refused(outcome, found)
