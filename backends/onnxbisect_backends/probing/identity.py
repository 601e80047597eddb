"""What verdicts are kept under, in every verdict base: which target answered, and which search asked."""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from onnxbisect.job import Target
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.universe import Universe

#: Raised whenever the same key begins to stand for another probe file: old answers are then to other questions.
REVISION = 3


def target_identity(target: Target, probe_format: ProbeFormat, environment: str = "") -> str:
    """Names the target under which verdicts are kept: the same compiler, version, options and way of cutting, in the
    same environment (`Description.environment`), judged by the same release of this program.
    """
    dtypes = None if probe_format.input_dtypes is None else sorted(probe_format.input_dtypes)
    cutting = {**asdict(probe_format), "input_dtypes": dtypes}
    ours = {"revision": REVISION, "release": version("onnx-bisect")}
    # `dressing` is what the probe format was called when the first answers were kept
    return _digest({**ours, **asdict(target), "dressing": cutting, "environment": environment})


def search_identity(target: str, model_sha256: str, universe: Universe) -> str:
    """Names one search: where it is equal, unit numbers mean the same nodes and the journal can be read."""
    shape = [
        (op, solo, hex(after)) for op, solo, after in zip(universe.op, universe.solo, universe.successors, strict=True)
    ]
    return _digest({"target": target, "model": model_sha256, "names": universe.names, "units": shape})


def _digest(identity: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=_as_text).encode()).hexdigest()


def _as_text(value: object) -> str:
    """Option values that JSON has no form for, as backends may have them."""
    return str(value) if isinstance(value, Path) else repr(value)
