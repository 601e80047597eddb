"""Split a model into files: pieces for the NPU and the host, a manifest, and a script that runs them."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.cut.cutter import Cutter
from onnxbisect.cut.frame import Wishes
from onnxbisect.cut.required_producers import producers_required_by_type, runtime_dtype
from onnxbisect.cut.wiring import read_wiring
from onnxbisect.cut.write import Piece, write
from onnxbisect.diagnosis import TargetEntry
from onnxbisect.errors import OptionError
from onnxbisect.language import english
from onnxbisect.model.external import constant_tensor
from onnxbisect.model.facts import fixed_dims
from onnxbisect.model.model import Model
from onnxbisect.model.opaque import opaque_nodes
from onnxbisect.model.runnable import Sample
from onnxbisect.model.scopes import captures, domain_of, is_constant
from onnxbisect.model.versions import loadable
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.split.choose import SHARE, choose, flow, needed, total, work_of
from onnxbisect.split.manifest import (
    MANIFEST,
    Custom,
    DataFile,
    Made,
    Manifest,
    Source,
    SplitProof,
    Taken,
    Value,
    WrittenPiece,
)
from onnxbisect.split.prove import prove
from onnxbisect.split.schedule import Crossing, PieceKind, PieceUnits, crossings, with_custom_apart
from onnxbisect.unitset import UnitSet, members, of, sort_key, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict

_PLAIN = ProbeFormat()


@dataclass(frozen=True, kw_only=True)
class CutPart:
    """A part as a stand-alone model. `seen`: exactly these units compiled. `share`: its part of the model's work."""

    kind: PieceKind
    piece: Piece
    seen: bool
    share: float


def cut_parts(
    model: Model, passed: Sequence[UnitSet], share: float, probe_format: ProbeFormat, static: bool
) -> tuple[tuple[CutPart, ...], Mapping[str, Crossing]]:
    """The parts chosen by `choose`, in an order in which they can run, and the tensors that cross between them.

    Pieces for the NPU follow `probe_format`, except for what changes outputs. As inputs from other pieces they have
    tensors of dtypes that `probe_format` allows, and of other dtypes only where the piece compiled with them.
    """
    wiring = read_wiring(model)
    required = producers_required_by_type(model, probe_format, static=static)
    universe = replace(flow(model, wiring), required_producers=required)
    wanted = needed(model, wiring, universe)
    work = work_of(model)
    opaque = opaque_nodes(model.proto)
    custom = of(number for number, unit in enumerate(model.units) if unit.node in opaque)
    chosen = with_custom_apart(universe, choose(universe, wanted, passed, work, share), custom)
    parts = tuple(_as_seen(universe, wanted, passed, tuple(chosen)))
    crossing = crossings(model, wiring, parts)
    cutter = Cutter(model)
    on_npu = replace(
        probe_format,
        covered=(),
        accompanied=(),
        folds=True,
        loses_outputs=False,
        max_inputs=None,
        max_outputs=None,
    )

    def cut(part: PieceUnits) -> CutPart:
        seen = part.kind is PieceKind.NPU and part.units in passed
        made = (name for unit in members(part.units) for name in wiring.made[model.units[unit].node])
        # A piece that compiled keeps its outputs; others drop outputs without a reader, to save the transfer.
        wishes = None if seen else Wishes(inputs=(), outputs=tuple(name for name in made if name in crossing))
        piece = cutter.cut(part.units, on_npu if part.kind is PieceKind.NPU else _PLAIN, wishes)
        return CutPart(kind=part.kind, piece=piece, seen=seen, share=total(work, part.units) / float(work.sum()))

    return tuple(map(cut, parts)), crossing


def _as_seen(
    universe: Universe, needed: UnitSet, passed: Sequence[UnitSet], parts: Sequence[PieceUnits]
) -> Iterator[PieceUnits]:
    """Extend NPU parts by the producers of known values that were in the probe that compiled.

    No unit needs these producers, but with them the piece is exactly the one that compiled. A part stays as it is where
    no such probe passed, or where the producers read tensors that are not computed yet.
    """
    there = 0
    for part in parts:
        units = part.units
        if part.kind is PieceKind.NPU:
            fitting = (
                seen
                for seen in passed
                if seen & needed == units
                and not seen & there
                and not union(universe.predecessors[unit] for unit in members(seen)) & ~(seen | there)
            )
            units = min(fitting, key=sort_key, default=units)
        there |= units
        yield replace(part, units=units)


RUNNER = "run.py"

#: Compiles the file of an NPU piece; the mapping gives the model's names of names that only the file uses.
Compile = Callable[[Path, Mapping[str, str]], Verdict]


def split(
    model: Model,
    passed: Sequence[UnitSet],
    folder: Path,
    *,
    share: float = SHARE,
    probe_format: ProbeFormat | None = None,
    static: bool = False,
    target: TargetEntry | None = None,
    compile_piece: Compile | None = None,
    samples: Sequence[Sample] = (),
) -> Manifest:
    """Write the model to `folder` as pieces, a manifest and a script that runs them; test that they equal the model.

    `passed` are the sets of units that compiled. `share` is the part of the NPU's work that may move to the host to
    reduce the number of pieces. `probe_format` is the target's, except for what changes numbers; with `static` the
    target takes no input of unknown size. `target` goes into the manifest.
    `compile_piece` is called for every NPU piece. `samples` are inputs for the proof beside made-up
    ones, with recorded tensors of nodes that onnxruntime does not know.
    `folder` appears complete or not at all. Raises OptionError where it exists and is not empty, and CutError where
    nothing compiled.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OptionError(f"{folder} is there already. Remove it, or name another folder.")
    parts, crossing = cut_parts(model, passed, share, probe_format or ProbeFormat(), static)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    unfinished.mkdir(parents=True)
    try:
        manifest = _write(model, parts, crossing, unfinished)
        manifest = replace(manifest, target=target, proof=prove(model, unfinished, samples))
        if compile_piece is not None:
            asked = tuple(_asked(entry, unfinished, compile_piece) for entry in manifest.pieces)
            manifest = replace(manifest, pieces=asked)
        _put(manifest, unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return manifest


def _write(model: Model, parts: Sequence[CutPart], crossing: Mapping[str, Crossing], folder: Path) -> Manifest:
    files = [f"{number:02d}_{part.kind}.onnx" for number, part in enumerate(parts)]
    nodes = model.proto.graph.node
    entries = []
    for file, part in zip(files, parts, strict=True):
        piece, graph, path = part.piece, part.piece.proto.graph, folder / file
        # run.py runs every piece in onnxruntime, which loads nothing newer
        write(replace(piece, proto=loadable(piece.proto)), model, path)
        data = path.with_suffix(".data")
        note = ""
        if part.kind is PieceKind.NPU and part.seen:
            note = english("Exactly these nodes were seen to compile, in the file of a probe and not in this one.")
        elif part.kind is PieceKind.NPU:
            note = english("These nodes were seen to compile as part of a larger piece, not by themselves.")
        entries.append(
            WrittenPiece(
                file=file,
                kind=part.kind,
                sha256=_sha256(path),
                data=DataFile(file=data.name, sha256=_sha256(data)) if data.exists() else None,
                compiled=False if part.kind is PieceKind.NPU else None,
                refused=False,
                note=note,
                share=round(part.share, 6),
                nodes=tuple(nodes[model.units[unit].node].name for unit in members(piece.units)),
                inputs=tuple(_taken(value, piece.original(value.name), files, crossing) for value in graph.input),
                outputs=tuple(_made(value, piece.original(value.name), files, crossing) for value in graph.output),
                custom=_custom(piece.proto, path, model) if part.kind is PieceKind.CUSTOM else None,
            )
        )
    manifest = Manifest(
        model=Source(name=model.path.name, sha256=model.sha256),
        target=None,
        pieces=tuple(entries),
        inputs=tuple(map(_value, model.proto.graph.input)),
        outputs=tuple(map(_value, model.proto.graph.output)),
        proof=SplitProof(proven=False, samples=0, runtime="", reason="the pieces were not run yet"),
    )
    (folder / RUNNER).write_bytes(resources.files("onnxbisect.split").joinpath("runner.py").read_bytes())
    _put(manifest, folder)
    return manifest


def _put(manifest: Manifest, folder: Path) -> None:
    (folder / MANIFEST).write_text(manifest.to_json(), "utf-8")


def _custom(proto: onnx.ModelProto, path: Path, model: Model) -> Custom:
    """The node for `run.py`, which does not read ONNX files, and its constants in a file of numpy."""
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    for constant in filter(is_constant, proto.graph.node):
        if isinstance(tensor := constant_tensor(constant), TensorProto):
            stored[constant.output[0]] = tensor
    (node,) = [it for it in proto.graph.node if not is_constant(it)]
    arguments = [*node.input, *captures(node)]
    held: dict[str, Any] = {
        str(number): numpy_helper.to_array(stored[name], str(model.path.parent))
        for number, name in enumerate(arguments)
        if name in stored
    }
    constants = path.with_suffix(".npz")
    if held:
        np.savez(constants, **held)
    return Custom(
        op=f"{domain_of(node) or 'ai.onnx'}:{node.op_type}",
        attributes={it.name: plain(it) for it in node.attribute},
        arguments=tuple(None if name in stored else name or None for name in arguments),
        outputs=tuple(name or None for name in node.output),
        constants=constants.name if held else "",
    )


def plain(attribute: onnx.AttributeProto) -> object:
    """An attribute as JSON; a tensor as lists, anything else that JSON does not have as text."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value).tolist()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, int | float):
        return value
    if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return list(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [it.decode(errors="replace") for it in value]
    return str(value)


def _asked(entry: WrittenPiece, folder: Path, compile_piece: Compile) -> WrittenPiece:
    if entry.kind is not PieceKind.NPU:
        return entry
    names = [*((it.name, it.tensor) for it in entry.inputs), *((it.name, it.tensor) for it in entry.outputs)]
    renamed = {name: tensor for name, tensor in names if name != tensor}
    verdict = compile_piece(folder / entry.file, renamed)
    if verdict.passed:
        return replace(entry, compiled=True, note="This file was compiled.")
    if verdict.failed:
        return replace(
            entry, compiled=False, refused=True, note=english("This file was refused: {said}", said=verdict.message)
        )
    said = english(
        "{sentence} Asked about this file, the compiler gave no answer: {said}",
        sentence=entry.note,
        said=verdict.message,
    )
    return replace(entry, note=said)


def _taken(value: onnx.ValueInfoProto, tensor: str, files: Sequence[str], crossing: Mapping[str, Crossing]) -> Taken:
    # A piece that is the whole model also has the inputs that nothing reads.
    maker = crossing[tensor].maker if tensor in crossing else None
    source = None if maker is None else files[maker]
    return Taken(name=value.name, tensor=tensor, dtype=_dtype(value.type), shape=fixed_dims(value.type), source=source)


def _made(value: onnx.ValueInfoProto, tensor: str, files: Sequence[str], crossing: Mapping[str, Crossing]) -> Made:
    to = crossing.get(tensor, Crossing(maker=None, takers=(), output=False))
    return Made(
        name=value.name,
        tensor=tensor,
        dtype=_dtype(value.type),
        shape=fixed_dims(value.type),
        readers=tuple(files[taker] for taker in to.takers),
        output=to.output,
    )


def _value(value: onnx.ValueInfoProto) -> Value:
    return Value(name=value.name, dtype=_dtype(value.type), shape=fixed_dims(value.type))


def _dtype(kind: onnx.TypeProto) -> str:
    """numpy's name of a tensor's element type, or a description of another type."""
    dtype = kind.tensor_type.elem_type
    if not kind.HasField("tensor_type") or not dtype:
        return runtime_dtype(kind)
    return "string" if dtype == TensorProto.STRING else str(helper.tensor_dtype_to_np_dtype(dtype))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
