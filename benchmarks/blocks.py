"""Repeated blocks: what 24 identical transformer layers cost more than one."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

import models
import tables
from cases import Case, InProcess, Nodes
from simulated import Tally, search

_LAYERS = 24
#: Calls that the layers may cost more than one layer.
_MORE = 3

#: What a compiler refuses, in the words of tests/cases.
_RULES: dict[str, dict[str, Any]] = {
    "Erf": {"kind": "bad_ops", "ops": ["Erf"]},
    "Erf, Softmax": {"kind": "bad_ops", "ops": ["Erf", "Softmax"]},
    "Erf, Softmax, Transpose": {"kind": "bad_ops", "ops": ["Erf", "Softmax", "Transpose"]},
    "Mul feeding Softmax": {"kind": "adjacent", "pairs": [["Mul", "Softmax"]]},
    "Div feeding Erf, and Transpose": {
        "kind": "any",
        "rules": [{"kind": "adjacent", "pairs": [["Div", "Erf"]]}, {"kind": "bad_ops", "ops": ["Transpose"]}],
    },
}


def run() -> dict[str, str]:
    """The table, by the name of its block in the document."""
    head = ["refused", "1 layer: calls", f"{_LAYERS} layers: calls", "more", "limit", "holds", "occurrences found"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-bench-") as name:
        folder = Path(name)
        paths = {layers: folder / f"layers{layers}.onnx" for layers in (1, _LAYERS)}
        for layers, path in paths.items():
            models.transformer(path, layers)
        for what, rule in _RULES.items():
            print(f"blocks: {what}", file=sys.stderr)
            (one, _), (many, found) = (_search(path, rule) for path in paths.values())
            more = many.calls - one.calls
            rows.append([what, one.calls, many.calls, more, _MORE, tables.holds(more, _MORE), found])
    return {"blocks": tables.table(head, rows)}


def _search(path: Path, rule: dict[str, Any]) -> tuple[Tally, str]:
    truth = _truth(onnx.load(path).graph, rule)
    described = path.with_suffix(".json")
    described.write_text(json.dumps({"rule": rule, "truth": sorted(truth)}))
    case = InProcess(Case(name=path.stem, model=path, rule=described))
    tally = search(case.model.universe, case.compile, key=case.key)
    found = case.nodes(tally.found)
    if found != truth or not tally.proven:
        return tally, f"**{len(found & truth)}/{len(truth)}, {len(found - truth)} false**"
    return tally, f"{len(found)}/{len(truth)}"


def _truth(graph: onnx.GraphProto, rule: dict[str, Any]) -> frozenset[Nodes]:
    match rule["kind"]:
        case "any":
            return frozenset().union(*(_truth(graph, part) for part in rule["rules"]))
        case "bad_ops":
            return frozenset((node.name,) for node in graph.node if node.op_type in rule["ops"])
    maker = {name: node for node in graph.node for name in node.output}
    return frozenset(
        (maker[name].name, node.name)
        for node in graph.node
        for name in node.input
        if name in maker and [maker[name].op_type, node.op_type] in rule["pairs"]
    )
