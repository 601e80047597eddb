"""Sizes that depend on values of inputs have no number in any piece: what one run gave holds for its inputs only."""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from onnx import parser

from onnxbisect.cut import Cutter
from onnxbisect.diagnosis import CertificateStatus
from onnxbisect.model import Model, load
from onnxbisect.model.facts import fixed_dims
from onnxbisect.unitset import UnitSet, members, of, union
from onnxbisect.verdict import Kind, Status, Verdict
from support.engine.worlds import World, all_found, universe


def loaded(folder: Path, text: str) -> Model:
    path = folder / "model.onnx"
    head = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3, "com.microsoft" : 1]>'
    path.write_bytes(parser.parse_model(f"{head} g {text}").SerializeToString())
    return load(path)


#: inputs, constants, what makes `v` of the tensor `a`, and the dimensions of `v`
OPEN: dict[str, tuple[str, str, str, list[int | None]]] = {
    "NonMaxSuppression": (
        "float[1,8,4] x, float[1,2,8] s",
        "int64 k = {3}, float t = {0.5}",
        "a = NonMaxSuppression (x, s, k, t, t)  v = Cast <to = 1> (a)",
        [None, 3],
    ),
    "NonZero": ("float[2,3] x", "", "a = NonZero (x)  v = Cast <to = 1> (a)", [2, None]),
    "Unique": ("float[6] x", "", "a = Unique (x)  v = Neg (a)", [None]),
    "Unique of rows": ("float[6,4] x", "", "a = Unique <axis = 0> (x)  v = Neg (a)", [None, 4]),
    "Compress": ("float[5,4] x, bool[5] c", "", "a = Compress <axis = 0> (x, c)  v = Neg (a)", [None, 4]),
    "Range": (
        "float[4] x",
        "float o = {1.0}, float z = {0.0}",
        "m = ReduceSum <keepdims = 0> (x)  b = Abs (m)  e = Add (b, o)  a = Range (z, e, o)  v = Neg (a)",
        [None],
    ),
    "TopK": ("float[2,8] x, int64[1] k", "", "a, i = TopK (x, k)  v = Neg (a)", [None, None]),
    "Loop": (
        "float[4] x, bool go",
        "int64 most = {5}",
        """a = Loop (most, go) <body = round (int64 i, bool c) => (bool more, float[4] row) {
            row = Neg (x)  s = ReduceMax <keepdims = 0> (row)  half = Constant <value_float = 0.5> ()
            more = Less (s, half) }>  v = Neg (a)""",
        [None, 4],
    ),
    "GatherND": (
        "float[2,3] x",
        "",
        "p = Relu (x)  n = NonZero (p)  t = Transpose <perm = [1, 0]> (n)  a = GatherND (x, t)  v = Neg (a)",
        [None],
    ),
    "Reshape": (
        "float[2,3] x",
        "int64[2] s = {-1, 1}",
        "n = NonZero (x)  r = Reshape (n, s)  a = Cast <to = 1> (r)  v = Neg (a)",
        [None, 1],
    ),
}


@pytest.mark.parametrize("case", OPEN)
def test_a_size_that_values_decide_is_open_at_both_sides_of_a_cut(tmp_path: Path, case: str) -> None:
    inputs, stored, body, dims = OPEN[case]
    model = loaded(tmp_path, f"({inputs}) => (float[{','.join('NMK'[: len(dims)])}] v) <{stored}> {{ {body} }}")
    assert fixed_dims(model.types["v"]) == tuple(dims)
    makers = {name: unit for unit, names in enumerate(model.universe.tensors) for name in names}
    cutter = Cutter(model)
    made, taken = (cutter.cut(1 << makers[name]).proto.graph for name in ("a", "v"))
    (output,) = (value for value in made.output if value.name == "a")
    assert fixed_dims(output.type) == fixed_dims(taken.input[0].type) == tuple(fixed_dims(model.types["a"]) or ())
    assert None in (fixed_dims(output.type) or ())


#: constants, what makes `v`, and its dimensions
CERTAIN: dict[str, tuple[str, str, list[int]]] = {
    "a Loop of so many rounds": (
        "int64 most = {5}, bool yes = {1}",
        """a = Loop (most, yes) <body = round (int64 i, bool c) => (bool c2, float[2,6] row) {
            row = Neg (x)  c2 = Identity (c) }>  v = Neg (a)""",
        [5, 2, 6],
    ),
    "a Loop that counts": (
        "int64 most = {9}, bool yes = {1}, int64 zero = {0}",
        """n, a = Loop (most, yes, zero) <body = round (int64 i, bool c, int64 k)
            => (bool more, int64 n2, float[2,6] row) {
            one = Constant <value_int = 1> ()  three = Constant <value_int = 3> ()
            row = Neg (x)  n2 = Add (k, one)  more = Less (n2, three) }>  v = Neg (a)""",
        [3, 2, 6],
    ),
    "a Scan": (
        "",
        """last, a = Scan <num_scan_inputs = 1, body = each (float[6] s, float[6] r) => (float[6] s2, float[6] o) {
            s2 = Add (s, r)  o = Neg (s2) }> (start, x)  v = Neg (a)""",
        [2, 6],
    ),
    "a sequence": (
        "int64[2] sizes = {2, 4}, int64 one = {1}",
        "s = SplitToSequence <axis = 1> (x, sizes)  a = SequenceAt (s, one)  v = Neg (a)",
        [2, 4],
    ),
    "an op of ai.onnx.ml": ("", 'a = ai.onnx.ml.Normalizer <norm = "L2"> (x)  v = Neg (a)', [2, 6]),
    "an op of onnxruntime": ("", "a = com.microsoft.GridSample (image, grid)  v = Neg (a)", [1, 1, 2, 2]),
    "what the file declares": ("float[2,1] a", "a, i = TopK (x, size)  v = Neg (a)", [2, 1]),
}


@pytest.mark.parametrize("case", CERTAIN)
def test_a_size_that_no_value_changes_is_a_number(tmp_path: Path, case: str) -> None:
    stored, body, dims = CERTAIN[case]
    inputs = "float[2,6] x, float[6] start, int64[1] size, float[1,1,4,4] image, float[1,2,2,2] grid"
    result = f"float[{','.join('NMKL'[: len(dims)])}] v"
    model = loaded(tmp_path, f"({inputs}) => ({result}) <{stored}> {{ {body} }}")
    assert fixed_dims(model.types["v"]) == tuple(dims)
    assert "v" not in model.data_dependent


@dataclass
class StaticTarget(World):
    """A compiler that a cut behind an open size does not even reach."""

    def compile(self, units: UnitSet) -> Verdict:
        makers = union(self.universe.size_makers.get(unit, 0) for unit in members(units))
        if makers & ~units:
            return Verdict(status=Status.UNRESOLVED, kind=Kind.INVALID, message="could not be cut")
        return super().compile(units)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_refused_op_gives_its_size_is_not_asked_without_it(seed: int) -> None:
    """Behind it nothing can be known, and every other culprit is found as in a model without open sizes."""
    chance = random.Random(seed)
    count = 60
    edges = {(unit, unit + 1) for unit in range(count - 1)}
    edges |= {(chance.randrange(max(0, unit - 9), unit), unit) for unit in range(2, count) if chance.random() < 0.3}
    first = chance.randrange(20, 40)
    opened = {first}  # a unit behind them takes their size, or gives its result one of its own
    makers: dict[int, UnitSet] = {}
    for unit in range(first + 1, count):
        read = of(one for one, other in edges if other == unit and one in opened)
        if read:
            makers[unit] = read
            if chance.random() < 0.7:
                opened.add(unit)
    ops = random.Random(seed + 1000).sample([*range(1, 12)] * 6, count)
    variants = [0 if unit == first else op for unit, op in enumerate(ops)]
    model = replace(universe(variants, sorted(edges)), size_makers=makers)
    required: dict[int, UnitSet] = {}
    for unit, read in sorted(makers.items()):
        required[unit] = read | union(required.get(it, 0) for it in members(read))
    model = replace(model, required_producers=required)
    behind = of(unit for unit, along in required.items() if along >> first & 1)
    bad = variants[chance.choice([unit for unit in range(count) if unit != first and not behind >> unit & 1])]
    refused = [unit for unit, variant in enumerate(variants) if variant in (0, bad)]

    target = StaticTarget(model, lambda units: any(units >> unit & 1 for unit in refused))
    step = target.diagnose()
    found = all_found(step)
    assert {1 << unit for unit in refused if not behind >> unit & 1} <= found <= {1 << unit for unit in refused}
    certificate = step.diagnosis.certificate
    unknown = behind & ~of(refused)
    assert certificate.status is (CertificateStatus.BOUNDED if unknown else CertificateStatus.PROVEN)
    assert any("could not be asked without" in it for it in certificate.unknown) == bool(unknown)
    assert step.diagnosis.remainder == model.everything & ~behind & ~of(refused)
    assert target.calls <= 20
