"""The identities under which verdicts are kept in every verdict base: of the target, and of the search."""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from onnxbisect.diagnosis import Target
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.universe import Universe

#: Increased when the same key gets another probe file, so that old answers are not reused.
REVISION = 4
#: Fields of the probe format that came after answers were stored: at their default they change no identity.
_LATER: dict[str, object] = {"loses_outputs": False}


def target_identity(target: Target, probe_format: ProbeFormat, environment: str = "") -> str:
    """The identity of the target: compiler, version, options and probe format.

    The environment (`Description.environment`) and the release of this program, which judges, are included.
    """
    cutting = {
        field: sorted(value) if isinstance(value, frozenset) else value
        for field, value in asdict(probe_format).items()
        if field not in _LATER or value != _LATER[field]
    }
    ours = {"revision": REVISION, "release": version("onnx-bisect")}
    # `dressing` was the probe format's name when the first answers were stored
    return _digest({**ours, **asdict(target), "dressing": cutting, "environment": environment})


def search_identity(target: str, file_key: str, universe: Universe) -> str:
    """The identity of a search: if equal, unit numbers mean the same nodes, and the journal can be reused."""
    shape = [
        (op, solo, hex(after)) for op, solo, after in zip(universe.op, universe.solo, universe.successors, strict=True)
    ]
    return _digest({"target": target, "model": file_key, "names": universe.names, "units": shape})


def _digest(identity: dict[str, object]) -> str:
    # backends may have options without a JSON form
    text = json.dumps(identity, sort_keys=True, default=lambda it: str(it) if isinstance(it, Path) else repr(it))
    return hashlib.sha256(text.encode()).hexdigest()
