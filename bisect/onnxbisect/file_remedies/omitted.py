"""Outputs at the end of a node that are omitted by an empty name."""

from onnxbisect.file_remedies.editing import copied
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import Change, file_remedy
from onnxbisect.model.scopes import walk
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count
from onnxbisect.rewrites import NotApplicable


@file_remedy("drop-empty-outputs", answers="empty-output-name")
def drop_empty_outputs(file: File, reader: Reader) -> Change:
    """Empty names at the end of a node's outputs removed: an output that is left out there need not be written."""
    result = copied(file.proto)
    done = 0
    for node in walk(result.graph):
        kept = list(node.output)
        while len(kept) > 1 and not kept[-1]:
            kept.pop()
        if len(kept) < len(node.output):
            del node.output[len(kept) :]
            done += 1
    if not done:
        raise NotApplicable("no node ends in an output without a name")
    return Change(proto=result, sentence=f"empty outputs left out of {count(done, 'node')}")
