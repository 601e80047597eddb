"""Origins, from the traces that torch's exporters really leave."""

import pytest
from onnx import helper

from onnxbisect.model.modules import Origin, origin

DYNAMO = (
    'File "/home/me/segment/modeling/transformer.py", line 92, in forward\n    queries, keys = layer(\n'
    '  File "/home/me/segment/modeling/transformer.py", line 232, in forward\n    attn = attn / math.sqrt(c)'
)
TORCH = (
    '\n  File "/venv/lib/python3.11/site-packages/torch/nn/modules/activation.py", line 816, in forward\n'
    "    return F.gelu(input)"
)


def traced(**metadata):
    node = helper.make_node("Div", ["a", "b"], ["c"], name="node_div_5")
    for key, value in metadata.items():
        node.metadata_props.add(key=key if key == "namespace" else f"pkg.torch.onnx.{key}", value=value)
    return node


def test_the_innermost_frame_of_the_dynamo_exporter_with_its_module():
    node = traced(
        stack_trace=DYNAMO,
        name_scopes="['', 'x', 'transformer.layers.1', 'transformer.layers.1.cross_attn', 'div_5']",
        class_hierarchy="['__main__.Dec', '__main__.Xf', 'segment.Block', 'segment.Attention', 'aten.div.Tensor']",
    )
    assert origin(node) == Origin(
        file="/home/me/segment/modeling/transformer.py",
        line=232,
        function="forward",
        code="attn = attn / math.sqrt(c)",
        scope="transformer.layers.1.cross_attn",
        module="segment.Attention",
    )


def test_frames_of_torch_itself_are_not_the_users_source():
    found = origin(traced(stack_trace=DYNAMO + TORCH))
    assert (found.file, found.line) == ("/home/me/segment/modeling/transformer.py", 232)


def test_torch_is_not_blamed_where_there_is_no_other_frame():
    found = origin(traced(stack_trace=TORCH.strip(), name_scopes="['', 'head.up.0', 'convolution']"))
    assert (found.file, found.line, found.scope) == (None, None, "head.up.0")


def test_code_with_carets_of_newer_pythons():
    trace = 'File "net.py", line 3, in forward\n    y = f(x)\n        ^^^^\n'
    found = origin(traced(stack_trace=trace))
    assert (found.file, found.line, found.code) == ("net.py", 3, "y = f(x)")


def test_namespace_serves_where_name_scopes_are_missing():
    assert origin(traced(namespace=": __main__.Dec/p: __main__.Prompt/add: aten.add.Tensor")).scope == "p"


def test_the_innermost_frame_of_the_torchscript_exporter():
    node = helper.make_node("Reshape", ["a"], ["b"], name="Reshape_7")
    node.doc_string = (
        "/opt/torch/nn/functional.py(9): pad\n/home/me/utils.py(28): window_partition\n/home/me/vit.py(88): forward\n"
    )
    found = origin(node)
    assert (found.file, found.line, found.function) == ("/home/me/utils.py", 28, "window_partition")


def test_the_scope_in_a_node_name():
    node = helper.make_node("Add", ["a", "b"], ["c"], name="/mask_decoder/transformer/layers.0/Add_3")
    assert origin(node).scope == "mask_decoder/transformer/layers.0"


@pytest.mark.parametrize("name", ["", "Add_3", "/Add"])
def test_nothing_is_made_up(name):
    assert not origin(helper.make_node("Add", ["a", "b"], ["c"], name=name))


def test_hostile_metadata_is_read_without_evaluating_it():
    node = traced(
        stack_trace='File "' * 5000, name_scopes="[" * 5000 + "__import__('os').system('x')", class_hierarchy="['" * 999
    )
    assert origin(node).file is None
