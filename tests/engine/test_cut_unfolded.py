"""Probes for targets that do not compute constants before they look at the ops, and for those that lose outputs."""

from dataclasses import replace
from pathlib import Path

import onnx

from onnxbisect.cut import Cutter, producers_of_constants, split_variants_by_producers
from onnxbisect.model import Model
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import full, members
from support.engine.cut_models import input_names, output_names, read

UNFOLDED = ProbeFormat(folds=False)
LOSING = ProbeFormat(loses_outputs=True)

#: As exporters write shapes: `h` and `w` are the same question, `one` and `two` come from different ops.
SHAPES = """<ir_version: 10, opset_import: ["": 17]>
g (float[2,6] x) => (float[12] y, int64[1] other)
<int64 first = {0}, int64 last = {1}, int64[1] zero = {0}>
{
  s = Shape(x)
  h = Gather(s, first)      w = Gather(s, last)
  n = Mul(h, w)
  one = Unsqueeze(h, zero)  two = Unsqueeze(n, zero)
  y = Reshape(x, two)       other = Neg(one)
}"""


def unit(model: Model, name: str) -> int:
    return model.unit_of_node[f"make_{name}"]


def cut(model: Model, *names: str, probe_format: ProbeFormat = UNFOLDED) -> onnx.ModelProto:
    piece = Cutter(model).cut(sum(1 << unit(model, name) for name in names), probe_format).proto
    onnx.checker.check_model(piece, full_check=True)
    return piece


def ends(piece: onnx.ModelProto) -> dict[str, str]:
    makers = {name: node.op_type for node in piece.graph.node for name in node.output}
    return {name: makers[name] for name in output_names(piece)}


def test_what_computes_a_constant_comes_along_as_far_as_it_is_not_to_blame(tmp_path: Path) -> None:
    model = read(tmp_path, SHAPES)
    universe = replace(model.universe, required_producers=producers_of_constants(model))

    def along(name: str, without: str = "") -> set[str]:
        masked = 1 << unit(model, without) if without else 0
        grown = universe.with_required_producers(1 << unit(model, name), masked)
        return {universe.names[one][0].removeprefix("make_") for one in members(grown)} - {name}

    assert along("y") == {"s", "h", "w", "n", "two"}
    assert along("one") == {"s", "h"}
    assert along("y", without="n") == {"two"}
    assert along("s") == set()


def test_units_are_told_apart_by_the_ops_that_make_what_they_take(tmp_path: Path) -> None:
    model = read(tmp_path, SHAPES)
    apart = split_variants_by_producers(replace(model.universe, required_producers=producers_of_constants(model)))
    one, two, h, w = (unit(model, name) for name in ("one", "two", "h", "w"))

    assert model.universe.variant[one] == model.universe.variant[two]
    assert apart.variant[one] != apart.variant[two]
    assert (model.universe.variant[h] == model.universe.variant[w]) == (apart.variant[h] == apart.variant[w])
    assert sorted(set(apart.variant)) == list(range(len(apart.variant_members)))
    assert all(apart.variant_members)


def test_an_output_that_only_constants_make_is_joined_with_an_input(tmp_path: Path) -> None:
    """Other constants are what they were; so are outputs of the model, and the model as a whole."""
    model = read(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y, int64[2] own) <float half = {0.5}, int64[2] whole = {1, 2}> {
          i = Cast<to = 7>(half)  b = Cast<to = 9>(half)  a = Add(x, half)
          f = Cast<to = 1>(i)     c = Where(b, f, half)   y = Mul(a, c)
          own = Cast<to = 7>(whole)
        }""",
    )

    alone = cut(model, "i", "b")
    assert ends(alone) == {"i_covered": "Add", "b_covered": "And"}
    assert sorted(input_names(alone)) == ["b_beside", "i_beside"]
    assert ends(cut(model, "a")) == {"a": "Add"}
    assert ends(cut(model, "own")) == {"own": "Cast"}
    whole = Cutter(model).cut(full(len(model.units)), UNFOLDED)
    assert input_names(whole.proto) == ["x"]
    assert whole.renamed == {}
    assert ends(Cutter(model).cut(1 << unit(model, "i")).proto) == {"i": "Cast"}


def test_an_output_that_another_node_makes_as_well_is_joined_with_an_input(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) {
          a = Sqrt(x)  b = Sqrt(x)  c = Elu<alpha = 2.0>(x)  d = Elu<alpha = 1.0>(x)
          e = Add(a, b)  f = Add(c, d)  y = Mul(e, f)
        }""",
    )

    assert ends(cut(model, "a", "b", "c", "d")) == {"a": "Sqrt", "b_covered": "Add", "c": "Elu", "d": "Elu"}


def test_an_output_that_repeats_another_by_the_value_of_constants_is_joined_with_an_input(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y)
        <float[1] two = {2.0}, float[1] three = {3.0}, float[1] also = {2.0}, int64[1] whole = {2}>
        {
          a = Add(x, two)  b = Add(x, three)  c = Add(x, also)  f = Cast<to = 1>(whole)  h = Cast<to = 1>(whole)
          d = Exp(a)       e = Exp(c)
          p = Add(d, b)    q = Add(e, p)      r = Add(q, f)     s = Add(r, h)
          m = Add(s, a)    y = Mul(m, c)
        }""",
    )

    assert ends(cut(model, "a", "b", "c", probe_format=LOSING)) == {"a": "Add", "b": "Add", "c_covered": "Add"}
    assert ends(cut(model, "a", "c", "d", "e", probe_format=LOSING))["e_covered"] == "Add"
    assert ends(cut(model, "f", "h", probe_format=LOSING)) == {"f": "Cast", "h": "Cast"}, "constants stay"
    assert ends(cut(model, "a", "c", probe_format=ProbeFormat())) == {"a": "Add", "c": "Add"}


def test_an_output_that_the_sizes_behind_an_open_one_decide_is_joined_with_an_input(tmp_path: Path) -> None:
    """The second size of NonZero depends on values and the first does not."""
    model = read(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 17]>
        g (float[2,3] x) => (int64[k] y) <int64 first = {0}, int64[1] zero = {0}> {
          a = NonZero(x)
          s = Shape(a)  i = Gather(s, first)  u = Unsqueeze(i, zero)
          t = Shape(x)  j = Gather(t, first)  v = Unsqueeze(j, zero)
          w = Add(u, v)
          y = ReduceSum<keepdims = 0>(a, w)
        }""",
    )

    piece = cut(model, "a", "s", "i", "u", "t", "j", "v", probe_format=LOSING)
    assert ends(piece) == {"a": "NonZero", "u_covered": "Add", "v": "Unsqueeze"}


def test_an_output_that_is_an_input_after_casts_is_joined_with_another_input(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) {
          a = Cast<to = 7>(x)  b = Cast<to = 1>(a)  c = Exp(b)  d = Cast<to = 7>(c)  e = Cast<to = 1>(d)
          f = Add(e, b)        g = Cast<to = 9>(a)  y = Where(g, f, c)
        }""",
    )

    assert ends(cut(model, "a", probe_format=LOSING)) == {"a_covered": "Add"}
    assert ends(cut(model, "a", "b", probe_format=LOSING)) == {"a_covered": "Add", "b_covered": "Add"}
    assert ends(cut(model, "b", "c", "d", probe_format=LOSING)) == {"b_covered": "Add", "c": "Exp", "d": "Cast"}
    assert ends(cut(model, "g", probe_format=LOSING)) == {"g": "Cast"}, "And would be asked about numbers"


def test_a_boolean_input_after_casts_is_joined_too(tmp_path: Path) -> None:
    """PyTorch's older exporter casts what it takes `|` of to bool, which it is."""
    model = read(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 17]>
        g (bool[2] z) => (bool[2] y) {
          a = Not(z)  b = Cast<to = 9>(a)  c = Cast<to = 1>(a)  d = Cast<to = 9>(c)
          y = Or(b, d)
        }""",
    )

    assert ends(cut(model, "b", "c", "d", probe_format=LOSING)) == {"b_covered": "And", "d_covered": "And"}
