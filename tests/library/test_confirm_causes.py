"""Causes that are confirmed by asking about culprits with one thing changed: `diagnose(..., confirm_causes=…)`."""

from pathlib import Path

import jsonschema
import onnx

import onnx_bisect
from onnxbisect.causes.terms import CauseState
from onnxbisect.report.ci import junit, sarif
from onnxbisect.report.html import html
from onnxbisect.report.markdown import markdown
from onnxbisect.report.terminal import lines
from support.engine.refusals import model_of

#: Of Gather nothing passes in the model: all indices are scalars. The compiler below takes no Erf at all.
BODY = """(float[4,4,8] x) => (float[4,8] y) {
    i = Constant<value_int = 0>() j = Constant<value_int = 1>()
    a = Gather<axis = 1>(x, i) b = Gather<axis = 1>(x, j) c = Add(a, b) y = Erf(c)
}"""


class Compiler:
    """Takes no Erf, and no Gather with a scalar for an index."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, path: Path) -> bool:
        self.calls += 1
        graph = onnx.load(path).graph
        ranks = {it.output[0]: it.attribute[0].type == onnx.AttributeProto.INTS for it in graph.node if it.attribute}
        ranks |= {tensor.name: bool(tensor.dims) for tensor in graph.initializer}
        return not any(
            it.op_type == "Erf" or (it.op_type == "Gather" and not ranks.get(it.input[1])) for it in graph.node
        )


def test_what_compiles_with_one_thing_changed_is_said_in_every_form(tmp_path: Path) -> None:
    model = model_of(tmp_path, BODY).path
    plain, asked = Compiler(), Compiler()
    before = onnx_bisect.diagnose(model, backend=plain, as_is=True)
    after = onnx_bisect.diagnose(model, backend=asked, as_is=True, confirm_causes=3)

    assert {cause.state for cause in before.causes} == {CauseState.NO_CONTRAST}
    assert [(cause.text, cause.state) for cause in after.causes] == [
        ("Gather with scalar indices", CauseState.CONFIRMED),
        ("Erf", CauseState.NO_CONTRAST),
    ]
    jsonschema.validate(dict(after.report), onnx_bisect.report_schema())
    for form in (html, markdown, junit, sarif):
        assert "Gather with indices of rank 1" in form(after.report)
    assert "    compiles: Gather with indices of rank 1 (asked on its own)" in lines(after.report)

    assert asked.calls == plain.calls + 3
    assert after.stats.compiler_calls == before.stats.compiler_calls + 3
    assert (after.culprits, after.certificate) == (before.culprits, before.certificate)


def test_no_more_calls_are_made_than_the_budget_allows(tmp_path: Path) -> None:
    compiler = Compiler()
    model = model_of(tmp_path, BODY).path
    search = onnx_bisect.diagnose(model, backend=compiler, as_is=True).stats.compiler_calls
    compiler.calls = 0
    onnx_bisect.diagnose(model, backend=compiler, as_is=True, confirm_causes=9, budget_calls=search + 1)
    assert compiler.calls == search + 1
