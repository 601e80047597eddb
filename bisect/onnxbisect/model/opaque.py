"""Find nodes that can be neither run nor inferred because they use an op without a public schema."""

from collections.abc import Iterable, Mapping
from functools import cache

import onnx

from onnxbisect.model.scopes import domain_of, walk

_Call = tuple[str, str, str]
#: What onnxruntime's optimiser writes into ONNX's domain, where ONNX has no such operator.
_IN_ONNX_DOMAIN = frozenset({"SimplifiedLayerNormalization"})


def opaque_nodes(proto: onnx.ModelProto) -> dict[int, None]:
    """Indices, in order, of nodes that are, contain or call an op unknown to onnx, onnxruntime and the model itself."""
    functions = {(domain_of(f), f.name, f.overload): f for f in proto.functions}
    verdicts: dict[_Call, bool] = {}
    versions = _versions(proto.opset_import)
    return dict.fromkeys(
        index
        for index, node in enumerate(proto.graph.node)
        if any(_is_opaque(inner, versions, functions, verdicts) for inner in walk([node]))
    )


def _is_opaque(
    node: onnx.NodeProto,
    versions: Mapping[str, int],
    functions: Mapping[_Call, onnx.FunctionProto],
    verdicts: dict[_Call, bool],
) -> bool:
    domain = domain_of(node)
    call = (domain, node.op_type, node.overload)
    if call in functions:
        if call not in verdicts:
            verdicts[call] = True  # a function that calls itself means nothing
            function = functions[call]
            inside = _versions(function.opset_import)
            verdicts[call] = any(_is_opaque(inner, inside, functions, verdicts) for inner in walk(function))
        return verdicts[call]
    if is_of_onnxruntime(node):
        return False
    version = versions.get(domain)
    return version is None or not onnx.defs.has(node.op_type, version, domain)


def is_of_onnxruntime(node: onnx.NodeProto) -> bool:
    """Whether onnxruntime defines the op and ONNX does not, so that only a run tells its shapes."""
    return (domain_of(node), node.op_type) in _ort_operators()


@cache
def _ort_operators() -> frozenset[tuple[str, str]]:
    """Operators of onnxruntime that are not in the ONNX standard; a few of them are in its domain."""
    # Imported here to keep onnxruntime out of the memory of processes that run no model, such as the API.
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    return frozenset(
        (op.domain, op.name)
        for op in get_all_operator_schema()
        if op.domain.startswith("com.microsoft") or (not op.domain and op.name in _IN_ONNX_DOMAIN)
    )


def _versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}
