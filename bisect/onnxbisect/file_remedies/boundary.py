"""What a tool does not take at a model's boundary, although it takes it between two nodes.

The files have other inputs and outputs than the model, which the sentence of each change says.
"""

import onnx

from onnxbisect.cut.apply_format import apply_format
from onnxbisect.cut.rename import rename_tensors
from onnxbisect.file_remedies.editing import copied
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.wording import quoted
from onnxbisect.preflight import Reader, type_text
from onnxbisect.preflight.subject import some
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.rewrites import NotApplicable


@file_remedy("neutral-boundary", answers="boundary-rank boundary-dtype")
def neutral_boundary(file: File, reader: Reader) -> Change:
    """Inputs and outputs of a rank and dtype that the tool takes, under their names, with what restores them inside."""
    wanted = reader.probe_format
    limits = ProbeFormat(
        input_dtypes=wanted.input_dtypes,
        output_dtypes=wanted.output_dtypes,
        min_input_rank=wanted.min_input_rank,
        min_output_rank=wanted.min_output_rank,
        max_input_rank=wanted.max_input_rank,
        max_output_rank=wanted.max_output_rank,
    )
    result = copied(file.proto)
    graph = result.graph
    before = _boundary(graph)
    renamed = apply_format(result, limits)
    after = {renamed[name]: kind for name, kind in _boundary(graph).items() if name in renamed}
    if not after:
        raise NotApplicable(f"{reader.tool} is known to take all inputs and outputs as they are")
    inner = {old: new for new, old in renamed.items() if new in _boundary(graph)}
    rename_tensors(graph, {**inner, **{new: old for old, new in inner.items()}})
    types = {inner[name]: before[name] for name in after}
    inputs = {value.name for value in graph.input}
    said = [
        f"{'input' if name in inputs else 'output'} {quoted(name)} made {type_text(kind)} instead of "
        f"{type_text(before[name])}"
        for name, kind in after.items()
    ]
    return Change(proto=result, sentence=some(tuple(said)), types={**types, **after})


@file_remedy("shorten-names", answers="boundary-name-too-long")
def shorten_names(file: File, reader: Reader) -> Change:
    """Names of inputs and outputs that are no longer than what the tool reads of them."""
    longest = reader.probe_format.longest_name
    result = copied(file.proto)
    renamed = apply_format(result, ProbeFormat(longest_name=longest))
    if not renamed:
        raise NotApplicable("no name of an input or output is too long")
    inputs = {value.name for value in result.graph.input}
    kinds = [word for word, there in (("input", inputs & renamed.keys()), ("output", renamed.keys() - inputs)) if there]
    names = some(tuple(map(quoted, renamed)))
    types = {new: file.types[old] for new, old in renamed.items() if old in file.types}
    return Change(
        proto=result, sentence=f"{' and '.join(kinds)} names shortened to {longest} bytes: {names}", types=types
    )


def _boundary(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    found = {}
    for value in (*graph.input, *graph.output):
        found[value.name] = onnx.TypeProto()
        found[value.name].CopyFrom(value.type)
    return found
