"""Finds out how a compiler treats refused ops: whether it folds constant ones, and how many its log names.

It compiles two models made of ops that were refused.
"""

import math
from collections.abc import Iterator, Sequence

import onnx
from onnx import TensorProto, helper

from onnxbisect.verdict import Verdict
from onnxbisect_backends.measurement.measured import MeasuredTest
from onnxbisect_backends.simulator.profiles import LogDetail


def folding_model(answers: Sequence[MeasuredTest]) -> onnx.ModelProto | None:
    """`y = x + Op(constant)` with a refused op; it compiles if constants are folded first."""
    for refused in _refused(answers):
        graph, taken = onnx.GraphProto(name="folding"), refused.model.graph
        given, made = taken.input[0], taken.output[0]
        dims = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
        node = graph.node.add()
        node.CopyFrom(taken.node[0])
        node.input[:], node.output[:] = ["constant"], ["folded"]
        graph.initializer.append(helper.make_tensor("constant", TensorProto.FLOAT, dims, [0.5] * math.prod(dims)))
        graph.input.add(name="x", type=made.type)
        graph.output.add(name="y", type=made.type)
        graph.node.append(helper.make_node("Add", ["x", "folded"], ["y"], name="after"))
        return _model(graph, refused.model)
    return None


def reporting_model(answers: Sequence[MeasuredTest]) -> onnx.ModelProto | None:
    """Two refused ops side by side in one model."""
    refused = list(_refused(answers))
    for other in refused[1:]:
        first = refused[0]
        if list(first.model.opset_import) != list(other.model.opset_import):
            continue
        graph = onnx.GraphProto(name="reporting")
        for number, one in enumerate((first, other), 1):
            taken = one.model.graph
            node = graph.node.add()
            node.CopyFrom(taken.node[0])
            node.name = f"node_{number}"
            node.input[:] = [f"x{number}"]
            node.output[:] = [f"y{number}"]
            graph.input.add(name=f"x{number}", type=taken.input[0].type)
            graph.output.add(name=f"y{number}", type=taken.output[0].type)
        return _model(graph, first.model)
    return None


def report_of(model: onnx.ModelProto, verdict: Verdict) -> LogDetail | None:
    """How many of the model's nodes the log named; None if the model did not fail."""
    if not verdict.failed:
        return None
    hints = verdict.hints
    named = [node for node in model.graph.node if node.op_type in hints.ops or node.name in hints.nodes]
    return {0: LogDetail.NONE, 1: LogDetail.FIRST}.get(len(named), LogDetail.ALL)


def _refused(answers: Sequence[MeasuredTest]) -> Iterator[MeasuredTest]:
    """Of each op that never compiled, a use with one float input and one float output of known shapes."""
    passed = {answer.op for answer in answers if answer.verdict.passed}
    seen: set[str] = set()
    for answer in sorted(answers, key=lambda it: (it.op, it.test)):
        graph = answer.model.graph
        if "::" in answer.op or answer.op in passed | seen or not answer.verdict.failed or graph.initializer:
            continue
        ends = [*graph.input, *graph.output]
        if len(ends) == 2 and len(graph.node[0].input) == len(graph.node[0].output) == 1 and all(map(_is_plain, ends)):
            seen.add(answer.op)
            yield answer


def _is_plain(value: onnx.ValueInfoProto) -> bool:
    kind = value.type.tensor_type
    return kind.elem_type == TensorProto.FLOAT and all(dim.dim_value > 0 for dim in kind.shape.dim)


def _model(graph: onnx.GraphProto, like: onnx.ModelProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=list(like.opset_import), ir_version=like.ir_version)
