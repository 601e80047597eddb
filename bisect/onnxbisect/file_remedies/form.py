"""The form of a file: what a tool may need although the model computes the same without it."""

import onnx

from onnxbisect.cut.apply_format import apply_format
from onnxbisect.cut.write import store_inside
from onnxbisect.errors import CutError
from onnxbisect.file_remedies.editing import copied
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.external import external_tensors
from onnxbisect.model.scopes import constant_names
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count, some
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.rewrites import NotApplicable


@file_remedy("declare-shapes", answers="")
def declare_shapes(file: File, reader: Reader) -> Change:
    """The type and shape of each tensor of the main graph, as far as they are known, written into the file."""
    result = copied(file.proto)
    graph = result.graph
    boundary = {value.name for value in (*graph.input, *graph.output)} | constant_names(graph)
    declared = {value.name: value for value in graph.value_info}
    written = 0
    for value in graph.output:
        known = file.types.get(value.name)
        if known is not None and is_unbound(value.type) and not is_unbound(known):
            value.type.CopyFrom(known)
            written += 1
    for node in graph.node:
        for name in node.output:
            known = file.types.get(name)
            if known is None or name in boundary or (name in declared and not is_unbound(declared[name].type)):
                continue
            if name in declared:
                if declared[name].type == known:
                    continue
                declared[name].type.CopyFrom(known)
            else:
                graph.value_info.append(onnx.helper.make_value_info(name, known))
            written += 1
    if not written:
        raise NotApplicable("every shape that is known is declared")
    return Change(proto=result, sentence=f"shapes declared of {count(written, 'tensor')}")


@file_remedy("safe-names", answers="")
def safe_names(file: File, reader: Reader) -> Change:
    """Names of inputs and outputs that consist of letters, digits and underscores."""
    result = copied(file.proto)
    renamed = apply_format(result, ProbeFormat(safe_names=True))
    if not renamed:
        raise NotApplicable("the names of all inputs and outputs are plain")
    names = some(tuple(f"{old} → {new}" for new, old in renamed.items()))
    what = "inputs and outputs" if len(renamed) > 1 else "input or output"
    return Change(proto=result, sentence=f"{len(renamed)} {what} renamed: {names}")


@file_remedy("weights-inside", answers="")
def weights_inside(file: File, reader: Reader) -> Change:
    """Weights that lie in other files, stored in the model file."""
    external = external_tensors(file.proto)
    if not external:
        raise NotApplicable("no weights lie in other files")
    result = copied(file.proto)
    try:
        store_inside(result, file.folder)
    except CutError as error:
        raise NotApplicable(str(error)) from error
    return Change(proto=result, sentence=f"{count(len(external), 'weight')} stored in the file")
