"""What a file holds although no node uses it: functions, operator sets, constants, declarations, optional outputs.

Some compilers refuse a file for a function that nothing calls, for an operator set that they do not know, or for a
node that has more outputs than the one that is read.
"""

from collections.abc import Callable, MutableSequence, Set
from dataclasses import dataclass
from typing import TypeVar

import onnx

from onnxbisect.model.scopes import (
    Call,
    call_of,
    constant_names,
    domain_of,
    every_node,
    functions_of,
    is_constant,
    opset_versions,
    reads,
    schema_of,
    walk,
)

AnItem = TypeVar("AnItem")
_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


@dataclass(frozen=True, kw_only=True)
class Unused:
    """`domains` are those of imported operator sets, `constants` are stored in the main graph, `declared` in its
    value_info.
    """

    functions: Set[Call] = frozenset()
    domains: Set[str] = frozenset()
    constants: Set[str] = frozenset()
    declared: Set[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.functions or self.domains or self.constants or self.declared)


_NOTHING = Unused()


def unused(model: onnx.ModelProto) -> Unused:
    """What no node of the main graph uses. An operator set counts as used by each function of the file."""
    return Unused(
        functions=_uncalled(model),
        domains=_unneeded(model),
        constants=_unread(model.graph),
        declared=_stale(model.graph),
    )


def drop_unused(model: onnx.ModelProto, but: Unused = _NOTHING) -> Unused:
    """Remove from the model what is not in use, except `but`; returns what was removed."""
    graph = model.graph
    functions = _uncalled(model) - but.functions
    _drop(model.functions, lambda it: (domain_of(it), it.name, it.overload) in functions)
    domains = _unneeded(model) - but.domains
    _drop(model.opset_import, lambda it: domain_of(it) in domains)
    constants = _unread(graph) - but.constants
    _drop(graph.initializer, lambda it: it.name in constants)
    _drop(graph.sparse_initializer, lambda it: it.values.name in constants)
    _drop(graph.node, lambda it: is_constant(it) and it.output[0] in constants)
    declared = _stale(graph) - but.declared
    _drop(graph.value_info, lambda it: it.name in declared)
    return Unused(functions=functions, domains=domains, constants=constants, declared=declared)


#: Computes as in training where its further outputs are there, whatever reads them.
_TRAINED = "BatchNormalization"


def unread_outputs(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, list[str]]]:
    """Nodes of the main graph with the optional outputs at their end that nothing reads; the first output stays."""
    graph, version = model.graph, opset_versions(model.opset_import).get("", 0)
    read = {name for node in graph.node for name in reads(node)} | {value.name for value in graph.output}
    read |= {annotation.tensor_name for annotation in graph.quantization_annotation}
    found = []
    for node in graph.node:
        if len(node.output) < 2 or domain_of(node) or node.op_type == _TRAINED:
            continue
        schema = schema_of(node.op_type, version)
        formal = [] if schema is None else schema.outputs
        first = len(node.output)
        while 1 < first <= len(formal) and formal[first - 1].option == _OPTIONAL and node.output[first - 1] not in read:
            first -= 1
        if any(node.output[first:]):
            found.append((node, list(node.output[first:])))
    return found


def _uncalled(model: onnx.ModelProto) -> set[Call]:
    functions = functions_of(model)
    called: set[Call] = set()
    work = [call_of(node) for node in walk(model.graph)] if functions else []
    while work:
        call = work.pop()
        if call in functions and call not in called:
            called.add(call)
            work += [call_of(node) for node in walk(functions[call])]
    return functions.keys() - called


def _unneeded(model: onnx.ModelProto) -> set[str]:
    used = {domain_of(node) for node in every_node(model)} | {domain_of(function) for function in model.functions}
    return {domain_of(entry) for entry in model.opset_import} - used - {""}


def _unread(graph: onnx.GraphProto) -> set[str]:
    used = {value.name for value in (*graph.input, *graph.output)}
    used.update(name for node in graph.node for name in reads(node))
    for annotation in graph.quantization_annotation:
        used.update((annotation.tensor_name, *(it.value for it in annotation.quant_parameter_tensor_names)))
    return (constant_names(graph) | {node.output[0] for node in graph.node if is_constant(node)}) - used


def _stale(graph: onnx.GraphProto) -> set[str]:
    there = constant_names(graph) | {value.name for value in (*graph.input, *graph.output)}
    there.update(name for node in graph.node for name in node.output)
    return {value.name for value in graph.value_info} - there


def _drop(items: MutableSequence[AnItem], gone: Callable[[AnItem], bool]) -> None:
    for index in reversed(range(len(items))):
        if gone(items[index]):
            del items[index]
