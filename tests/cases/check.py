"""A simulated compiler that says nothing but yes or no: `check.py MODEL --rule CASE.json`; README.md has the rest."""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import onnx_ml_pb2 as onnx
else:
    # The messages alone: the package around them imports numpy, which takes four times as long as all the rest here.
    sys.path += find_spec("onnx").submodule_search_locations
    import onnx_ml_pb2 as onnx


def walk(graph: onnx.GraphProto, *, inside: bool) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute if inside else ():
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from walk(attribute.g, inside=inside)


def refused(rule: dict[str, Any], graph: onnx.GraphProto) -> bool:
    if rule.get("reject_int64_io") and any(
        value.type.tensor_type.elem_type == onnx.TensorProto.INT64 for value in [*graph.input, *graph.output]
    ):
        return True
    nodes = list(walk(graph, inside=bool(rule.get("recurse"))))
    maker = {name: node for node in graph.node for name in node.output}
    makers = {id(node): [maker[name].op_type for name in node.input if name in maker] for node in graph.node}
    match rule["kind"]:
        case "bad_ops":
            return any(node.op_type in rule["ops"] for node in nodes)
        case "adjacent":
            return any([before, node.op_type] in rule["pairs"] for node in graph.node for before in makers[id(node)])
        case "both":
            ops = {node.op_type for node in nodes}
            return any(set(together) <= ops for together in rule["sets"])
        case "bad_unless_pattern":
            return any(node.op_type in rule["ops"] for node in graph.node) or any(unfused(rule["fused"], graph, makers))
        case "any":
            return any(refused(part, graph) for part in rule["rules"])
    raise SystemExit(f"unknown rule {rule['kind']}")


def unfused(fused: dict[str, dict[str, str]], graph: onnx.GraphProto, makers: dict[int, list[str]]) -> Iterable[bool]:
    takers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            takers.setdefault(name, []).append(node.op_type)
    for node in graph.node:
        if around := fused.get(node.op_type):
            after = [op for name in node.output for op in takers.get(name, ())]
            yield around["pred"] not in makers[id(node)] or around["succ"] not in after


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--rule", type=Path, required=True)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--sleep", type=float, default=0.0)
    parser.add_argument("--ignore", default="", metavar="NODE,NODE", help="nodes that are taken for supported ones")
    given = parser.parse_args()
    graph = onnx.ModelProto.FromString(given.model.read_bytes()).graph
    ignored = set(filter(None, given.ignore.split(",")))
    for node in graph.node:
        if node.name in ignored:
            node.op_type = "Ignored"  # no rule speaks of it
    time.sleep(given.sleep)
    fails = refused(json.loads(given.rule.read_text())["rule"], graph)
    if given.log:
        with given.log.open("a") as log:
            log.write(json.dumps({"nodes": [node.name for node in graph.node], "fails": fails}) + "\n")
    raise SystemExit(1 if fails else 0)


if __name__ == "__main__":
    main()
