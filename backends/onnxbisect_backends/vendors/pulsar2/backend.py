"""The `pulsar2` backend: `pulsar2 build` of Axera, on PATH (inside the vendor's image) or in a container."""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from onnxbisect.errors import BackendUnusableError
from onnxbisect.model.runnable import Sample
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict
from onnxbisect_backends.contract import Description, Limits, Outcome
from onnxbisect_backends.folders import working_folder
from onnxbisect_backends.logs import Reading, crashed, refused, unfinished, unresolved, write_script
from onnxbisect_backends.options import OptionHelp, explained
from onnxbisect_backends.samples import samples_of
from onnxbisect_backends.sandbox.process import clean_env, find_executable, run, with_artifacts
from onnxbisect_backends.simulator import profiles
from onnxbisect_backends.vendors.pulsar2 import container, texts
from onnxbisect_backends.vendors.pulsar2.container import Container
from onnxbisect_backends.vendors.pulsar2.probe_configuration import Ends, ProbeConfiguration, demand_named, named_parts
from onnxbisect_backends.vendors.pulsar2.schema import BuildOptions, Hardware
from onnxbisect_backends.vendors.pulsar2.settings import Pulsar2Options, read_settings, scalars
from onnxbisect_backends.vendors.pulsar2.user_dataset import FOLDER, read_user_dataset, write_datasets

_MODEL, _CONFIG = "model.onnx", "config.json"
#: The last file that a build writes.
_RESULT = Path("output/compiled.axmodel")
#: Wide, because tables are cut to the terminal's width; and without onnxruntime's telemetry.
_ENVIRONMENT = {"COLUMNS": "500", "ORT_DISABLE_TELEMETRY": "1"}
_VERSION_LIMITS = Limits(seconds=120)
_VERSION = re.compile(r"^version:\s*(?P<version>\S+)(?:\s+commit:\s*(?P<commit>\w+))?", re.MULTILINE)

#: Allowed dtypes of graph inputs: the documents do not mention bool, double and 4-bit inputs.
_INPUT_DTYPES = frozenset({"float", "float16", "int64", "int32", "int16", "int8", "uint32", "uint16", "uint8"})
_PROBE_FORMAT = ProbeFormat(
    input_dtypes=_INPUT_DTYPES,
    self_contained=True,
    safe_names=True,
    explicit_defaults=True,
    covered=("Reshape", "Squeeze"),  # at a graph output, they make its scheduler divide by zero
)


class Pulsar2Backend:
    """Axera's pulsar2 for AX650, AX620E, AX615, AX637, M76H and M57: quantises and compiles."""

    name = "pulsar2"
    products = (str(_RESULT),)

    @staticmethod
    def known_options() -> tuple[OptionHelp, ...]:
        """Our own options, and scalar fields of pulsar2's configuration."""
        settable = scalars(BuildOptions)
        return (*explained(Pulsar2Options), *(it for it in explained(BuildOptions) if it.name in settable))

    def __init__(self, options: dict[str, str]) -> None:
        """Raises OptionError for options, and configuration files, that pulsar2 would refuse."""
        self._settings = read_settings(options)
        self._ends: Ends | None = None
        self._named: frozenset[str] = frozenset()

    @property
    def input_shapes(self) -> Mapping[str, Sequence[int]]:
        """The input shapes of the configuration."""
        return self._settings.build.shapes

    def for_model(self, graph: onnx.GraphProto) -> "Pulsar2Backend":
        """The backend for pieces of one model; OptionError if the configuration names what the model lacks.

        A bound backend stays bound: a repaired model may lack what was named.
        """
        if self._ends is not None:
            return self
        build = self._settings.build
        demand_named(build, graph, _advertised(build.target_hardware))
        found = copy(self)
        found._ends, found._named = Ends.of(graph), named_parts(build, graph)
        return found

    @property
    def options(self) -> dict[str, Any]:
        """The options as given, with digests of the files that they name."""
        settings = self._settings
        build = settings.build.model_dump(mode="json", exclude_unset=True)
        return {
            **settings.given,
            "calibration_size": settings.own.calibration_size,
            "build": build,
            "files": {**settings.constants},
        }

    def samples(self, inputs: Sequence[onnx.ValueInfoProto], most: int) -> Sequence[Sample] | None:
        """The user's `calibration_dataset`; None for a model with other inputs than the bound one."""
        if self._ends is not None and {value.name for value in inputs} != set(self._ends.inputs):
            return None
        return read_user_dataset(self._settings.build, inputs, most)

    @property
    def profile(self) -> str:
        """The vendor's list for the chip."""
        return _profile(self._settings.build.target_hardware)

    def describe(self) -> Description:
        """Runs `pulsar2 version`; the advertised ops are those of the vendor's list for the chip."""
        with working_folder() as folder:
            outcome = self._run(["pulsar2", "version"], folder, _VERSION_LIMITS)
        match = _VERSION.search(outcome.log)
        if match is None:
            said = outcome.broken or outcome.log.strip()[-200:]
            raise BackendUnusableError(f"`pulsar2 version` does not tell its version; it said: {said!r}.")
        return Description(
            boundary_known=True,
            tool="pulsar2",
            version=f"{match['version']} ({match['commit']})" if match["commit"] else match["version"],
            ops=_advertised(self._settings.build.target_hardware),
            probe_format=_PROBE_FORMAT,
            weights_matter=True,
            samples=self._settings.own.calibration_size,
            named=self._named,
        )

    def check(self) -> str | None:
        """Whether pulsar2 is on PATH, or docker has the image."""
        if self._settings.own.image is not None:
            return container.complaint(self._settings.own.image)
        if find_executable("pulsar2", cwd=Path.cwd(), path=os.environ.get("PATH")):
            return None
        return (
            "pulsar2 is not on PATH; run onnx-bisect inside Axera's Docker image, or name the image: "
            "--option image=pulsar2:VERSION, after docker load -i ax_pulsar2_VERSION.tar.gz."
        )

    def compile(self, probe: Path, workdir: Path, limits: Limits) -> Outcome:
        """Write configuration and calibration data, then build; raises BackendUnusableError if they contradict."""
        workdir, probe = workdir.absolute(), probe.absolute()
        try:
            self._prepare(probe, workdir)
        except (ValueError, OSError, DecodeError) as error:
            return Outcome(broken=f"pulsar2 was not asked: {error}.")
        outcome = self._run(self._command(), workdir, limits)
        if complaint := texts.complaint_about_configuration(outcome.log):
            raise BackendUnusableError(f"pulsar2 does not take the configuration, whatever the model: {complaint}")
        return with_artifacts(outcome, workdir / _MODEL, workdir)

    def vendor_files(self, probe: Path) -> None:
        """Write the configuration, the calibration data and the command of the compile beside the model."""
        with suppress(ValueError, DecodeError):  # such a probe was not compiled
            self._prepare(probe, probe.parent)
            write_script(probe.parent, container.by_hand(self._settings.own.image, self._command(), gpus=self._gpus))

    def judge(self, outcome: Outcome) -> Verdict:
        """A pass is exit status 0 and a compiled model; what the log says gives kind and hints."""
        if verdict := unfinished(outcome):
            return verdict
        tables = texts.precision_tables(outcome.log)
        if low := self._imprecise(tables, outcome):
            return low
        if outcome.exit_code == 0 and _RESULT in outcome.artifacts:
            return Verdict(status=Status.PASS, seconds=outcome.seconds, tables=tables)
        reading = texts.read(outcome.log)
        if texts.blames_configuration(outcome.log):
            return unresolved(f"pulsar2 does not take what onnx-bisect gave it: {reading.message}", outcome)
        if verdict := crashed(outcome, reading):
            return verdict
        ended = f"Ended with exit status {outcome.exit_code} and without {_RESULT.name}"
        if not reading.message or not (reading.kind or outcome.exit_code):
            reading = replace(reading, fingerprint="no compiled model", message=f"{ended}, without a word.")
        return refused(outcome, reading, tables)

    def _imprecise(self, tables: Sequence[Table], outcome: Outcome) -> Verdict | None:
        """A failure if a layer's cosine is lower than the user's limit, though the model was compiled."""
        least = self._settings.own.least_cosine
        if least is None or outcome.exit_code != 0 or _RESULT not in outcome.artifacts:
            return None
        low = [layer for table in tables for layer in texts.layers(table) if layer.cosine < least]
        if not low:
            return None
        more = f" (and {len(low) - 1} more layers)" if len(low) > 1 else ""
        found = Reading(
            kind=Kind.NUMERIC,
            fingerprint="cosine below least_cosine",
            message=f"{low[0].type} '{low[0].node}' has a cosine of {low[0].cosine:g}, less than {least:g}{more}",
            hints=Hints(nodes=tuple(layer.node for layer in low)),
        )
        return refused(outcome, found, tables)

    @property
    def _gpus(self) -> bool:
        return self._settings.build.quant.device != "cpu"

    def _command(self) -> list[str]:
        """The pulsar2 command, in a folder that `_prepare` has filled."""
        build = self._settings.build
        words = ["pulsar2", "build", "--target_hardware", build.target_hardware, "--config", _CONFIG]
        words += ["--input", _MODEL, "--output_dir", _RESULT.parts[0]]
        return words + [f"--debug.{name}" for name, wanted in build.debug.model_dump().items() if wanted]

    def _prepare(self, probe: Path, workdir: Path) -> None:
        """Put model, calibration data and configuration into the work directory."""
        most = self._settings.own.calibration_size
        samples = len(samples_of(probe)[:most]) or most
        model = onnx.load(probe, load_external_data=False)
        question = ProbeConfiguration(model=model, build=self._settings.build, ends=self._ends or Ends.of(model.graph))
        config = question.config(write_datasets(question.inputs, probe, workdir, samples), samples)
        for number, entry in enumerate(config.get("const_processors", [])):
            if path := entry.get("data_path"):
                entry["data_path"] = f"{FOLDER}/constant_{number}{Path(path).suffix}"
                shutil.copyfile(path, workdir / entry["data_path"])
        (workdir / _CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
        if probe != workdir / _MODEL:
            shutil.copyfile(probe, workdir / _MODEL)

    def _run(self, words: Sequence[str], workdir: Path, limits: Limits) -> Outcome:
        image = self._settings.own.image
        if image is None:
            # The vendor's image sets variables that pulsar2 needs, and the licence is in the home directory.
            env = {**os.environ, **_ENVIRONMENT, "TMPDIR": str(workdir)}
            return run(words, cwd=workdir, env=env, limits=limits, isolated=False)
        box = Container(image, workdir, gpus=self._gpus)
        env = clean_env(workdir, extra=container.client_environment())
        try:
            outcome = run(box.argv(words, limits, _ENVIRONMENT), cwd=workdir, env=env, limits=limits, isolated=False)
        except BaseException:
            box.end()
            raise
        if outcome.exit_code is None:
            box.end()
        box.hand_over()
        # docker's own exit statuses become `broken`, and that of a killed container a signal
        if outcome.exit_code in container.NOT_RUN:
            said = outcome.log.strip().splitlines() or ["nothing"]
            return replace(outcome, exit_code=None, broken=f"docker did not run pulsar2; it said: {said[-1]}")
        if outcome.exit_code == container.KILLED:
            peak = limits.memory_bytes or outcome.peak_memory
            return replace(
                outcome, exit_code=None, signal=9, over_memory=limits.memory_bytes is not None, peak_memory=peak
            )
        return outcome


def _profile(hardware: Hardware) -> str:
    """The vendor's list for the chip; M76H shares that of AX650."""
    chip = "AX650" if hardware == "M76H" else hardware
    return f"pulsar2-{chip.lower()}"


def _advertised(hardware: Hardware) -> frozenset[str]:
    return frozenset(profiles.load(_profile(hardware))[0].ops)
