"""Replaces calls of the model's own functions by the functions' nodes.

onnx.inliner does the same, but leaves nodes without names and names tensors by numbers.
"""

from collections.abc import Mapping, Sequence

import onnx

from onnxbisect.cut.rename import rename_tensors, tensor_names
from onnxbisect.file_remedies import remedy
from onnxbisect.language import count, english
from onnxbisect.model.gate import demand_inlinable, written_out
from onnxbisect.model.scopes import bodies, call_of, domain_of, functions_of, opset_versions, walk
from onnxbisect.preflight import ToolLimits
from onnxbisect.rewrites import NotApplicable
from onnxbisect.rewrites.apply import trace


@remedy.file_remedy("inline-functions", answers="local-functions")
def inline_functions(file: remedy.File, limits: ToolLimits) -> remedy.RemediedFile:
    """Calls of local functions replaced by their nodes, whose names begin with that of the call."""
    proto = file.proto
    if not proto.functions:
        raise NotApplicable("the model has no functions")
    demand_inlinable(written_out(proto))
    result = remedy.copied(proto)
    inliner = _Inliner(proto)
    inliner.inline(result.graph)
    del result.functions[:]
    used = {domain_of(node) for node in walk(result.graph)} | {""}
    for index in reversed(range(len(result.opset_import))):
        domain = result.opset_import[index].domain
        if domain in inliner.domains and domain not in used:
            del result.opset_import[index]
    there = {domain_of(entry) for entry in result.opset_import}
    for domain, version in inliner.opsets.items():
        if domain in used and domain not in there:
            result.opset_import.append(onnx.helper.make_opsetid(domain, version))
    functions = count(len(proto.functions), "local function")
    sentence = (
        english("{calls} of {functions} inlined", calls=count(inliner.calls, "call"), functions=functions)
        if inliner.calls
        else english("{counts} left out that no node uses", counts=functions)
    )
    return remedy.RemediedFile(proto=result, sentence=sentence, structure=True)


class _Inliner:
    """Inlines the functions of one model, which are in `domains` and import `opsets`; `calls` counts."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._functions = functions_of(proto)
        self.domains = {function.domain for function in proto.functions}
        self.opsets = opset_versions(proto.opset_import)
        self.calls = 0
        self._taken = remedy.beginnings(remedy.every_name(proto.graph))
        for function in proto.functions:
            if len({*function.input, *function.output}) < len(function.input) + len(function.output):
                raise NotApplicable(f"function {function.name} gives one tensor out twice, or an input")
            for entry in function.opset_import:
                version = self.opsets.setdefault(domain_of(entry), entry.version)
                if version != entry.version and any(domain_of(node) == domain_of(entry) for node in walk(function)):
                    raise NotApplicable(
                        f"function {function.name} is written for operator set {entry.version}, the model for {version}"
                    )

    def inline(self, graph: onnx.GraphProto) -> None:
        """Replace the calls in a graph and in its subgraphs."""
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            nodes += self._inlined(node)
        remedy.set_nodes(graph, nodes)

    def _inlined(self, node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
        function = self._functions.get(call_of(node))
        if function is not None:
            self.calls += 1
            return [inner for own in self._body(node, function) for inner in self._inlined(own)]
        for body in bodies(node):
            self.inline(body)
        return [node]

    def _body(self, call: onnx.NodeProto, function: onnx.FunctionProto) -> list[onnx.NodeProto]:
        scope = remedy.unused_prefix(call.name or f"{call.op_type}_{next(filter(None, call.output))}", self._taken)
        given = dict.fromkeys(function.input, "") | dict(zip(function.input, call.input, strict=False))
        names = {name: f"{scope}{name}" for node in function.node for name in (*node.input, *node.output) if name}
        outputs = {formal: actual for formal, actual in zip(function.output, call.output, strict=False) if actual}
        names = names | outputs | given
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes |= {attribute.name: attribute for attribute in call.attribute}
        made = []
        for number, inner in enumerate(function.node):
            node = remedy.node_copy(inner)
            node.name = f"{scope}{inner.name or f'{inner.op_type}_{number}'}"
            _fill_in(node, attributes)
            node.input[:] = [names.get(name, "") for name in node.input]
            node.output[:] = [names.get(name, "") for name in node.output]
            for body in bodies(node):
                own = {name: f"{scope}{name}" for name in tensor_names(body) if name}
                rename_tensors(body, own | {name: new for name, new in names.items() if name})
                for each in walk(body):
                    each.name = f"{scope}{each.name}" if each.name else ""
            trace(call, node)
            made.append(node)
        return made


def _fill_in(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to attributes of the function by the values of the call, or by the function's defaults."""
    kept = []
    for attribute in node.attribute:
        filled = onnx.AttributeProto()
        filled.CopyFrom(attribute)
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in attributes:
                continue
            filled.CopyFrom(attributes[attribute.ref_attr_name])
            filled.name = attribute.name
        kept.append(filled)
    del node.attribute[:]
    node.attribute.extend(kept)
    for body in bodies(node):
        for inner in body.node:
            _fill_in(inner, attributes)
