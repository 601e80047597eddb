"""Findings about a model's own inputs and outputs that one tool does not take at a boundary."""

from collections.abc import Iterator

import onnx

from onnxbisect.cut.neutral_boundary import neutral_type
from onnxbisect.cut.required_producers import runtime_dtype
from onnxbisect.finding import Finding, Severity
from onnxbisect.language import english, shortened
from onnxbisect.model.wording import quoted
from onnxbisect.preflight.subject import InspectedModel
from onnxbisect.probe_format import ProbeFormat

#: Ids of findings about inputs and outputs that a tool does not take.
REFUSED_AT_BOUNDARY = ("boundary-rank", "boundary-dtype", "boundary-name-too-long")

_WHY = english(
    "It refuses a file for its inputs and outputs before it looks at the ops. Probes are written in a form it takes."
)


def refused_boundary(tool: str, probe_format: ProbeFormat, subject: InspectedModel) -> Iterator[Finding]:
    """What the tool's limits of inputs and outputs say of the file: ranks, dtypes, and lengths of names."""
    ranks = ProbeFormat(min_input_rank=probe_format.min_input_rank, min_output_rank=probe_format.min_output_rank)
    most = ProbeFormat(max_input_rank=probe_format.max_input_rank, max_output_rank=probe_format.max_output_rank)
    dtypes = ProbeFormat(input_dtypes=probe_format.input_dtypes, output_dtypes=probe_format.output_dtypes)
    graph = subject.original.graph
    weights = subject.constants
    inputs = [("input", value) for value in graph.input if value.name not in weights]
    boundary = [*inputs, *(("output", value) for value in graph.output)]
    low, high, other, long = [], [], [], []
    for word, value in boundary:
        what = f"{word} {quoted(value.name)}"
        if neutral_type(value, ranks, output=word == "output") is not None:
            low.append((value, f"{what} has rank {len(value.type.tensor_type.shape.dim)}"))
        if neutral_type(value, most, output=word == "output") is not None:
            high.append((value, f"{what} has rank {len(value.type.tensor_type.shape.dim)}"))
        if neutral_type(value, dtypes, output=word == "output") is not None:
            other.append((value, f"{what} is {runtime_dtype(value.type)}"))
        size = len(value.name.encode("utf-8", "replace"))
        if probe_format.longest_name is not None and size > probe_format.longest_name:
            long.append((value, english("the name of the {what} has {size} bytes", what=what, size=size)))
    if low:
        lowest = ", ".join(
            f"{word}s of rank {rank} and more"
            for word, rank in (("input", ranks.min_input_rank), ("output", ranks.min_output_rank))
            if rank
        )
        fix = english("Give it leading dimensions of 1, such as [1] for a scalar, and a Squeeze or Unsqueeze inside.")
        yield _finding("boundary-rank", low, f"{tool} takes {lowest}", fix, "neutral-boundary")
    if high:
        highest = ", ".join(
            f"{word}s of rank {rank} and less"
            for word, rank in (("input", most.max_input_rank), ("output", most.max_output_rank))
            if rank is not None
        )
        fix = english("Give it fewer dimensions, and a Reshape inside.")
        yield _finding("boundary-rank", high, f"{tool} takes {highest}", fix, "neutral-boundary")
    if other:
        fix = english("Give it a dtype that the tool takes, and a Cast inside.")
        yield _finding(
            "boundary-dtype",
            other,
            english("{tool} takes none of this dtype there", tool=tool),
            fix,
            "neutral-boundary",
        )
    if long:
        takes = english("{tool} reads {longest_name} at most", tool=tool, longest_name=probe_format.longest_name)
        yield _finding("boundary-name-too-long", long, takes, english("Shorten it."), "shorten-names")


def _finding(id_: str, found: list[tuple[onnx.ValueInfoProto, str]], takes: str, fix: str, remedy: str) -> Finding:
    return Finding(
        id=id_,
        severity=Severity.ERROR,
        nodes=(),
        tensors=tuple(value.name for value, _ in found),
        detail=f"{shortened(tuple(text for _, text in found))}; {takes}",
        why=_WHY,
        fix=fix,
        remedy=remedy,
    )
