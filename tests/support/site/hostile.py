"""Names that attack whoever shows them, and a model that has them all."""

import onnx
from onnx import TensorProto, helper

#: Each is a way out of some kind of text: HTML, an attribute, a script, a terminal, Markdown, a template, a URL; or
#: looks like another one, or is very long.
NAMES = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "\x1b[31mred\x07\x00",
    "txt.\u202egnp.exe\u2066",
    "zero\u200bwidth\ufeff",
    "n" * 4096,
    "{{7*7}}${7*7}<%= 7*7 %>",
    "javascript:alert(1)",
    "&lt;b&gt;&amp;",
    "a\nb|c`d`](javascript:alert(1))\u2028",
    "]]>\ufffe",
)
#: What goes where a name must be one line, such as labels.
LINE = "<img src=x onerror=alert(1)>\u202egnp"


def model() -> bytes:
    """A chain of one node for each name, every third of which is an Exp; inputs, outputs and all else hostile, too."""
    tensors = [f"{name}." for name in (NAMES[-1] * 2, *NAMES)]
    nodes = [
        helper.make_node("Exp" if index % 3 == 1 else "Relu", [tensors[index]], [tensors[index + 1]], name)
        for index, name in enumerate(NAMES)
    ]
    for key, value in (("pkg.torch.onnx.stack_trace", f'File "{NAMES[0]}", line 1, in {NAMES[1]}\n  {NAMES[5]}'),):
        nodes[1].metadata_props.add(key=key, value=value)
    nodes[0].doc_string = NAMES[0]
    ends = [helper.make_tensor_value_info(tensors[index], TensorProto.FLOAT, [1, 4]) for index in (0, -1)]
    graph = helper.make_graph(nodes, NAMES[1], ends[:1], ends[1:], doc_string=NAMES[0])
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name=NAMES[0], doc_string=NAMES[1]
    )
    onnx.helper.set_model_props(made, {NAMES[0]: NAMES[1]})
    content: bytes = made.SerializeToString()
    return content
