"""Files for Google's Model Explorer: the model as a graph with collapsible layers, and the verdict on each node.

`model-explorer graph.json --node_data_paths=verdicts.json` shows both. The verdicts also apply to the ONNX file itself
if its nodes have names, because both refer to nodes by name. The formats are those of `graph_builder.py` and
`node_data_builder.py` of ai-edge-model-explorer 0.1.34.
"""

from collections.abc import Iterator
from typing import Any

from onnxbisect.drawing.network import Network, dumped
from onnxbisect.language import in_english
from onnxbisect.report import words
from onnxbisect.report.contents import Report
from onnxbisect.report.text import clip
from onnxbisect.unitset import indices_of

#: Their names in a report's folder.
FILES = ("model-explorer/graph.json", "model-explorer/verdicts.json")

_MESSAGE = 160
#: Background and text.
_COLOURS = {
    "culprit": ("#c5221f", "#ffffff"),
    "suspected": ("#e8710a", "#000000"),
    "needs_context": ("#f9d65c", "#000000"),
    "pass": ("#a8dab5", "#000000"),
    "unknown": ("#dadce0", "#000000"),
}
_WORDS = {"needs_context": "compiles in its context only"}


@in_english
def files(network: Network, document: Report) -> dict[str, bytes]:
    """Both files, by their names in a report's folder."""
    return dict(zip(FILES, (dumped(graph(network)), dumped(verdicts(network, document))), strict=True))


def graph(network: Network) -> list[dict[str, Any]]:
    """The contents of `graph.json`: one graph with the units as nodes. Layers are the path components of node names."""
    names = node_ids(network)
    sources = {(target, tensor): source for source, target, tensor in network.links}
    slots = [{tensor: slot for slot, tensor in enumerate(made)} for made in network.made]
    inputs = {tensor: slot for slot, (tensor, _) in enumerate(network.inputs)}
    first, last = _ends(names)
    nodes = [_end(first, "GraphInputs", "outputsMetadata", [_output(network, slot, it) for it, slot in inputs.items()])]
    for unit, name in enumerate(names):
        edges = []
        for slot, tensor in enumerate(network.read[unit]):
            if (unit, tensor) in sources:
                source = sources[unit, tensor]
                edges.append(_edge(names[source], slots[source][tensor], slot))
            elif tensor in inputs:
                edges.append(_edge(first, inputs[tensor], slot))
        nodes.append(
            {
                "id": name,
                "label": network.ops[unit],
                "namespace": "/".join(filter(None, network.names[unit].split("/")[:-1])),
                "attrs": [
                    {"key": "unit", "value": str(unit)},
                    *({"key": label, "value": value} for label, value in network.facts[network.facts_of[unit]]),
                ],
                "incomingEdges": edges,
                "outputsMetadata": [_output(network, slot, tensor) for slot, tensor in enumerate(network.made[unit])],
            }
        )
    made = [
        _edge(names[maker], slots[maker][tensor], slot)
        for slot, (tensor, makers) in enumerate(network.outputs)
        for maker in makers
    ]
    nodes.append(_end(last, "GraphOutputs", "incomingEdges", made))
    return [{"id": graph_id(network), "nodes": nodes}]


@in_english
def verdicts(network: Network, document: Report) -> dict[str, Any]:
    """The contents of `verdicts.json` for a report on this model: a word for each node, and the culprits' messages."""
    names = node_ids(network)
    results = {}
    for state, units in document["units"]["states"].items():
        background, text = _COLOURS[state]
        for unit in indices_of(units):
            results[names[unit]] = {"value": _WORDS.get(state, state), "bgColor": background, "textColor": text}
    for number, culprit in reversed(list(enumerate(document["culprits"], 1))):
        for units in (culprit["units"], *culprit["occurrence_units"]):
            for unit in indices_of(units):
                said = f"culprit {number}: {clip(culprit['message'], _MESSAGE)}"
                results[names[unit]] = results[names[unit]] | {"value": said}
    named = {
        "name": f"onnx-bisect: {clip(words.target(document['target']), _MESSAGE)}",
        "results": results,
        "hideInAggregatedStatsTable": True,  # the table shows only sums of numbers
        "showExpandedSummaryOnGroupNode": True,
    }
    return {graph_id(network): named}


def graph_id(network: Network) -> str:
    """The ONNX graph's name, which Model Explorer also uses when it reads the ONNX file."""
    return network.name or "graph"


def node_ids(network: Network) -> list[str]:
    """The name of each unit's node; with its number if shortened names are equal."""
    taken: set[str] = set()
    ids = []
    for unit, name in enumerate(network.names):
        chosen = name or f"#{unit}"
        while chosen in taken:
            chosen += f" #{unit}"
        taken.add(chosen)
        ids.append(chosen)
    return ids


def _ends(names: list[str]) -> Iterator[str]:
    """Ids that no node has; `cut.rename.unused_name` would load onnx into the API."""
    for end in ("GraphInputs", "GraphOutputs"):
        while end in names:
            end += "_"
        yield end


def _end(name: str, label: str, what: str, listed: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": name, "label": label, "namespace": "", what: listed}


def _edge(source: str, output: int, slot: int) -> dict[str, str]:
    return {"sourceNodeId": source, "sourceNodeOutputId": str(output), "targetNodeInputId": str(slot)}


def _output(network: Network, slot: int, tensor: int) -> dict[str, Any]:
    name, kind = network.tensors[tensor]
    attributes = [{"key": "tensor_name", "value": name}, {"key": "tensor_shape", "value": kind}]
    return {"id": str(slot), "attrs": attributes}
