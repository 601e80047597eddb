"""Files for Google's Model Explorer, against the classes of ai-edge-model-explorer 0.1.34, which has 481 MB of
dependencies: `Graph`, `GraphNode`, `IncomingEdge`, `MetadataItem`, `KeyValue` of its graph_builder.py, and
`GraphNodeData`, `NodeDataResult` of its node_data_builder.py. Its page takes a list of graphs as a .json file.
"""

import json
from typing import Any

from jsonschema import Draft202012Validator
from onnx import TensorProto, helper

from onnxbisect.drawing import model_explorer
from onnxbisect.drawing.graph import network_of
from onnxbisect.report.document import document
from support.engine.report_factory import HOSTILE, chain, job_of, model_of, single


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    fields = required | optional
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT = {"type": "string"}
_EDGE = _object({"sourceNodeId": _TEXT}, sourceNodeOutputId=_TEXT, targetNodeInputId=_TEXT)
_ATTRS = _list(_object({"key": _TEXT, "value": _TEXT}))
_NODE = _object(
    {"id": {"type": "string", "minLength": 1}, "label": _TEXT},
    namespace=_TEXT,
    attrs=_ATTRS,
    incomingEdges=_list(_EDGE),
    outputsMetadata=_list(_object({"id": _TEXT}, attrs=_ATTRS)),
)
GRAPHS = _list(_object({"id": _TEXT, "nodes": _list(_NODE)})) | {"minItems": 1}
_COLOUR = {"type": "string", "pattern": "^#[0-9a-f]{6}$"}
_RESULT = _object({"value": _TEXT}, bgColor=_COLOUR, textColor=_COLOUR)
_RESULTS = {"type": "object", "additionalProperties": _RESULT}
_FLAG = {"type": "boolean"}
_OF_GRAPH = _object(
    {"results": _RESULTS}, name=_TEXT, hideInAggregatedStatsTable=_FLAG, showExpandedSummaryOnGroupNode=_FLAG
)
NODE_DATA = {"type": "object", "additionalProperties": _OF_GRAPH}


def valid(schema: dict[str, Any], content: Any) -> None:
    Draft202012Validator(schema).validate(json.loads(json.dumps(content)))


def test_the_graph_has_every_unit_in_its_layer() -> None:
    network = network_of(chain(["Relu", "Exp", "Tanh"]))
    graphs = model_explorer.graph(network)
    valid(GRAPHS, graphs)
    nodes = {node["id"]: node for node in graphs[0]["nodes"]}
    assert list(nodes) == ["GraphInputs", "/net/block.0/Relu", "/net/block.1/Exp", "/net/block.2/Tanh", "GraphOutputs"]
    exp = nodes["/net/block.1/Exp"]
    assert (exp["label"], exp["namespace"]) == ("Exp", "net/block.1")
    assert exp["attrs"] == [{"key": "unit", "value": "1"}, {"key": "input 0", "value": "float[1,4]"}]
    assert exp["incomingEdges"] == [
        {"sourceNodeId": "/net/block.0/Relu", "sourceNodeOutputId": "0", "targetNodeInputId": "0"}
    ]
    assert {"key": "tensor_shape", "value": "float[1,4]"} in exp["outputsMetadata"][0]["attrs"]
    assert nodes["/net/block.0/Relu"]["incomingEdges"][0]["sourceNodeId"] == "GraphInputs"
    assert nodes["GraphOutputs"]["incomingEdges"][0]["sourceNodeId"] == "/net/block.2/Tanh"


def test_an_edge_says_which_output_leads_to_which_input() -> None:
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xyz")
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], name="split"),
        helper.make_node("Sub", ["y", "b"], ["z"], name="sub"),
    ]
    model = model_of(helper.make_model(helper.make_graph(nodes, "g", [x, y], [z])))
    [graph] = model_explorer.graph(network_of(model))
    assert graph["nodes"][2]["incomingEdges"] == [
        {"sourceNodeId": "GraphInputs", "sourceNodeOutputId": "1", "targetNodeInputId": "0"},
        {"sourceNodeId": "split", "sourceNodeOutputId": "1", "targetNodeInputId": "1"},
    ]


def test_every_node_has_its_verdict_and_culprits_what_was_said() -> None:
    model = chain(["Relu", "Exp", "Tanh"])
    report = document(job_of(model, [single(model, [1], "no lowering of Exp")]))
    network = network_of(model)
    overlay = model_explorer.verdicts(network, report)
    valid(NODE_DATA, overlay)
    [graph] = model_explorer.graph(network)
    assert list(overlay) == [graph["id"]] == [model.proto.graph.name]
    results = overlay[graph["id"]]["results"]
    assert results.keys() == {node["id"] for node in graph["nodes"]} - {"GraphInputs", "GraphOutputs"}
    assert results["/net/block.1/Exp"]["value"] == "culprit 1: no lowering of Exp"
    assert results["/net/block.1/Exp"]["bgColor"] != results["/net/block.0/Relu"]["bgColor"]
    states = report["units"]["states"]
    assert results["/net/block.0/Relu"]["value"] == next(state for state, units in states.items() if "0" in units)


def test_names_that_are_alike_hostile_or_missing_name_one_node_each() -> None:
    names = {0: "", 1: HOSTILE, 2: "x" * 5000 + "end", 3: "y" + "x" * 5000 + "end", 4: "GraphInputs", 5: "a//b"}
    model = chain(["Relu"] * 6, names)
    network = network_of(model)
    graphs = model_explorer.graph(network)
    valid(GRAPHS, graphs)
    ids = [node["id"] for node in graphs[0]["nodes"]]
    assert len(set(ids)) == len(ids) == 8
    assert graphs[0]["nodes"][6]["namespace"] == "a"
    report = document(job_of(model, [single(model, [3], HOSTILE)]))
    overlay = model_explorer.verdicts(network, report)
    valid(NODE_DATA, overlay)
    assert set(overlay[graphs[0]["id"]]["results"]) < set(ids)
    assert not {"\x1b", "\u202e", "\x00"} & set(json.dumps([graphs, overlay], ensure_ascii=False))
