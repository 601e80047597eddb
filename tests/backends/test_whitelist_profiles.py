"""Profiles as data: all of the shipped ones load, and a wrong one of the user's says where it is wrong."""

from pathlib import Path

import onnx
import pytest

from onnxbisect.errors import OptionError
from onnxbisect_backends.simulator import profiles
from onnxbisect_backends.simulator.profiles import AttrConstraint, InputConstraint, LogDetail, Unlisted

#: Ops per profile as the sources count them; edgesam's 24 and three that parts hold which passed.
COUNTS = {
    "acuity-6.57.1": 128,
    "edgesam": 27,
    "iree-3.13.0-measured": 159,
    "mnn-3.6.1": 145,
    "nncase-1.9.0-measured": 108,
    "nncase-2.11.0": 117,
    "openvino-2026.4.1-measured": 165,
    "pulsar2-ax615": 71,
    "pulsar2-ax620e": 75,
    "pulsar2-ax637": 95,
    "pulsar2-ax650": 94,
    "pulsar2-m57": 95,
    "qnn-2.7.0-measured": 120,
    "rknn-2.1.0": 89,
    "rknn-2.3.2-measured": 101,
    "tpu-mlir-1.30.2": 129,
    "tpu-mlir-1.30.2-measured": 110,
    "tpu-mlir-1.8.1": 109,
    "tpu-mlir-1.8.1-measured": 100,
}

SCHEMAS = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""]


def test_every_profile_is_shipped_under_its_own_name_and_complete():
    assert {name: len(profiles.load(name)[0].ops) for name in profiles.shipped()} == COUNTS
    assert all(profiles.load(name)[0].profile == name for name in COUNTS)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_constraints_name_attributes_and_inputs_that_the_op_has(name):
    """A misspelt name would never be checked. Vendors' own ops have no schema to check against."""
    profile, _ = profiles.load(name)
    for op, support in profile.ops.items():
        if not onnx.defs.has(op):
            continue
        every = [s for s in SCHEMAS if s.name == op]
        for constraint in support.constraints:
            if constraint.rule in ("note", "shape_note"):
                continue
            if isinstance(constraint, AttrConstraint):
                assert any(constraint.name in s.attributes for s in every), (op, constraint.name)
            if isinstance(constraint, InputConstraint):
                assert any(constraint.name in [i.name for i in s.inputs] for s in every), (op, constraint.name)


def test_what_the_sources_say_of_each_tool_is_kept():
    ax650, tpu, seed = (profiles.load(name)[0] for name in ("pulsar2-ax650", "tpu-mlir-1.8.1", "edgesam"))
    assert (ax650.report, tpu.report, seed.report) == (LogDetail.FIRST, LogDetail.ALL, LogDetail.FIRST)
    assert (ax650.folds, tpu.folds, seed.folds) == (True, True, False)
    assert "indices: 暂时只支持1维" in ax650.ops["Gather"].limits
    assert seed.refused.keys() == {"Gather", "Abs", "Sin", "Cos", "Floor"}
    assert {"Clip", "Gemm", "Squeeze", "Tanh"}.isdisjoint(seed.ops)
    assert seed.unlisted is Unlisted.UNKNOWN


GOOD = 'profile = "mine"\ntool = "t"\nversion = "1"\nsource = "me"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("profile = ", "not TOML"),
        ('profile = "mine"', "tool"),
        (GOOD + "[ops]\nRelu = {}\n[refused]\nRelu = 'no'", "both supported and refused"),
        (GOOD + "[ops]\nRelu = { limit = [] }", "ops.Relu.limit"),
        (GOOD + '[ops]\nRelu = { constraints = [{ kind = "shape", name = "X", rule = "in" }] }', "ops.Relu"),
        (GOOD + '[ops]\nElu = { constraints = [{ kind = "attr", name = "alpha", rule = "is" }] }', "ops.Elu"),
    ],
)
def test_a_wrong_profile_is_refused_where_it_is_wrong(tmp_path, text, says):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(OptionError, match=says):
        profiles.load(str(path))


def test_the_example_in_the_docs_is_a_profile(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")
    path = tmp_path / "mychip.toml"
    path.write_text(text.partition("```toml\n")[2].partition("```")[0])
    assert profiles.load(str(path))[0].ops.keys() == {"Add", "Relu", "Resize"}
