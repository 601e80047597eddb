"""The result of reading a model for a target: a stored file, for coordinators and later model processes."""

import json
from base64 import b64decode, b64encode
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from importlib.metadata import version

import cattrs

from onnxbisect import universe_json
from onnxbisect.errors import BackendUnusableError
from onnxbisect.job import Target
from onnxbisect.universe import Universe
from onnxbisect_backends.contract import Description
from onnxbisect_backends.probing.identity import REVISION

_converter = cattrs.Converter(detailed_validation=False, unstruct_collection_overrides={AbstractSet: sorted})
_converter.register_unstructure_hook(Universe, universe_json.to_json)
_converter.register_structure_hook(Universe, lambda fields, _: universe_json.from_json(fields))


class OtherVersionError(BackendUnusableError):
    """The search began with another compiler, or another version of this program, than this worker has.

    Answers of both are no evidence together, so it begins again.
    """


def this_version() -> str:
    """The version of this program, for `Prepared.made_by`."""
    return f"{version('onnx-bisect')}, probe files {REVISION}"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The target as its compiler describes itself, the model's units for this target, and the identity of its verdicts.

    It is the same for every job with the same model and target. `changeable`: changed copies of the file are worth
    trying. `forms_differ` is that of `SearchContext`.

    `made_by` is the version of this program; another one may number units otherwise and write other files for them.

    `established` has the facts found when the model was loaded (`Established.to_bytes`), so that model processes need
    not find them again; empty if they are large, and in files of earlier versions.
    """

    target: Target
    description: Description
    universe: Universe
    identity: str
    changeable: bool = False
    forms_differ: bool = False
    made_by: str = field(default_factory=lambda: this_version())
    established: bytes = b""

    def to_bytes(self) -> bytes:
        """The file; equal contents give equal bytes."""
        fields = _converter.unstructure(self)
        established = fields.pop("established")
        line = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return b"\n".join([line.encode(), b64encode(established)])

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Prepared":
        """The contents that `to_bytes` wrote. OtherVersionError if an earlier or later version wrote them."""
        line, _, established = raw.partition(b"\n")
        fields = json.loads(line)
        made_by = fields.get("made_by") if isinstance(fields, dict) else None
        if made_by != this_version():
            raise OtherVersionError(
                f"The search was begun by another version of onnx-bisect ({made_by}) than this worker has "
                f"({this_version()}): start the job again when all workers have the same."
            )
        return _converter.structure({**fields, "established": b64decode(established)}, cls)
