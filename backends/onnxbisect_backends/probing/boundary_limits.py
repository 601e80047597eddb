"""What a compiler takes at a model's boundary, where its backend does not declare that: measured once, then known.

A probe that fails for a graph input of rank 0, or for a name that is too long, says nothing about its nodes. So before
a model is cut for a compiler of which nobody has said what it takes, small models with what its cuts may lay bare are
compiled: one where the compiler takes all of it.
"""

import hashlib
import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakKeyDictionary

import onnx

from onnxbisect.diagnosis import Target
from onnxbisect.model.model import Model
from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Backend, Description, Limits
from onnxbisect_backends.folders import cache_folder
from onnxbisect_backends.probing.boundary_traits import as_measured, measure, newest_versions, traits_of
from onnxbisect_backends.probing.identity import target_identity
from onnxbisect_backends.probing.traits import HIGHEST_PLAIN_RANK, Trait, TraitKind

#: The fields of a probe format that are limits of the boundary.
_LIMITS = (
    *("input_dtypes", "output_dtypes", "empty_inputs", "longest_name", "safe_names", "self_contained"),
    *("min_input_rank", "min_output_rank", "max_input_rank", "max_output_rank", "max_inputs", "max_outputs"),
)


@dataclass(kw_only=True)
class _Known:
    """What this process knows of one backend: answers about traits, or the description of a search begun elsewhere."""

    taken: dict[Trait, bool] = field(default_factory=dict)
    adopted: Description | None = None


_KNOWN: "WeakKeyDictionary[Backend, _Known]" = WeakKeyDictionary()


def with_known_limits(backend: Backend, description: Description) -> Description:
    """The description with what was measured of this backend (`learn_limits`), or adopted."""
    known = _known(backend)
    if known is None:
        return description
    limits = as_measured(description.probe_format, known.taken)
    ir, opset = newest_versions(description.newest_ir, description.newest_opset, known.taken)
    if (adopted := known.adopted) is not None:
        limits = replace(limits, **{name: getattr(adopted.probe_format, name) for name in _LIMITS})
        ir, opset = adopted.newest_ir, adopted.newest_opset
    environment = description.environment
    if (ir, opset) != (description.newest_ir, description.newest_opset):  # parts of one model are other files then
        environment = f"{environment} reads IR version {ir}, operator set {opset}"
    return replace(description, probe_format=limits, newest_ir=ir, newest_opset=opset, environment=environment)


def adopt_limits(backend: Backend, described: Description) -> None:
    """Take over the limits of a search that began with this backend in another process."""
    known = _known(backend)
    if known is not None:
        known.adopted = described


def may_learn(backend: Backend, model: Model) -> bool:
    """Whether it must be measured what this backend takes at the boundaries of the model's parts, or was measured
    although it declares that.
    """
    if _known(backend) is None:
        return False
    if backend.describe().boundary_known and ((record := _record(backend)) is None or not record.exists()):
        return False
    return bool(traits_of(model))


def learn_limits(
    backend: Backend, traits: Collection[Trait], folder: Path, limits: Limits, *, kept: bool, anew: bool = False
) -> int:
    """Measure which of these traits the backend takes; returns the number of compiles.

    With `kept`, answers of earlier runs are used unless all is measured `anew`, and those of this one are kept in the
    cache folder. Of a backend that declares its limits nothing is measured, unless `anew`; what was, counts.
    """
    entry = _known(backend)
    if entry is None or not traits:
        return 0
    known = entry.taken
    file = _record(backend) if kept else None
    if file is not None and not anew:
        with suppress(OSError, ValueError, TypeError, KeyError):  # none yet, or not written by this program
            known |= {
                Trait(what=TraitKind(it["what"]), output=bool(it["output"]), value=str(it["value"])): bool(it["takes"])
                for it in json.loads(file.read_text("utf-8"))
            }
    if backend.describe().boundary_known and not anew:
        return 0
    missing = set(traits) if anew else {trait for trait in traits if not _is_known(trait, known)}
    calls = 0

    def ask(small: onnx.ModelProto) -> bool | None:
        nonlocal calls
        calls += 1
        with TemporaryDirectory(prefix="boundary-", dir=folder) as place:
            probe, workdir = Path(place, "probe", "model.onnx"), Path(place, "work")
            probe.parent.mkdir()
            workdir.mkdir()
            onnx.save(small, probe)
            own = limits
            if limits.confinement is not None:
                own = replace(limits, confinement=replace(limits.confinement, probe=probe, workdir=workdir))
            verdict = backend.judge(backend.compile(probe, workdir, own))
        return {Status.PASS: True, Status.FAIL: False}.get(verdict.status)

    known.update(measure(ask, missing))
    if file is not None and missing:
        with suppress(OSError):  # a read-only cache costs the next run the same calls
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = [{**asdict(trait), "takes": takes} for trait, takes in sorted(known.items())]
            file.write_text(json.dumps(lines, ensure_ascii=False), "utf-8")
    return calls


def _record(backend: Backend) -> Path | None:
    """The file of the cache folder that keeps what was measured of this version and these options, if there is one."""
    description = backend.describe()
    if not description.version:
        return None
    target = Target(
        backend=backend.name,
        tool=description.tool,
        version=description.version,
        options=backend.options,
        calibration="",
    )
    identity = target_identity(target, description.probe_format, description.environment)
    return cache_folder() / "boundaries" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def refused_traits(backend: Backend) -> tuple[Trait, ...]:
    """What was measured that this backend does not take; of versions the oldest."""
    known = _known(backend)
    refused = () if known is None else sorted(trait for trait, takes in known.taken.items() if not takes)
    return tuple(it for it in refused if not any(_is_older(other, it) for other in refused))


def _known(backend: Backend) -> _Known | None:
    """The entry of this backend; None for an object that cannot be remembered."""
    try:
        return _KNOWN.setdefault(backend, _Known())
    except TypeError:
        return None


def _is_older(version: Trait, other: Trait) -> bool:
    return version.is_version and version.what is other.what and int(version.value) < int(other.value)


def _is_known(trait: Trait, known: dict[Trait, bool]) -> bool:
    """Whether an answer on record settles this trait: a name as long that passed, or a shorter one that did not."""
    if trait.is_version:
        return trait in known or any(
            _is_older(trait, it) if takes else _is_older(it, trait) for it, takes in known.items()
        )
    if trait.what is TraitKind.NAME:
        return any(
            it.what is TraitKind.NAME and it.output is trait.output and (not takes or int(it.value) >= int(trait.value))
            for it, takes in known.items()
        )
    if trait.what is TraitKind.CHARACTERS:
        return any(
            it.what is TraitKind.CHARACTERS
            and it.output is trait.output
            and (not takes or set(trait.value) <= set(it.value))
            for it, takes in known.items()
        )
    if trait.what is TraitKind.RANK and int(trait.value) > HIGHEST_PLAIN_RANK:
        return any(
            it.what is TraitKind.RANK
            and it.output is trait.output
            and (int(it.value) >= int(trait.value) if takes else HIGHEST_PLAIN_RANK < int(it.value) <= int(trait.value))
            for it, takes in known.items()
        )
    return trait in known
