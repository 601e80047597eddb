"""Other options of the same backend, tried on what it refuses: `diagnose(..., alternatives=…)`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_bisect
from onnx_bisect import OptionError, ProbeAnswered, Status, report_schema
from onnxbisect.report.html import html
from onnxbisect.report.markdown import markdown
from onnxbisect.report.terminal import lines

ROOT = Path(__file__).parents[2]
C2 = ROOT / "tests" / "cases" / "c2_chain100_3bad.onnx"

#: A compiler whose chip and mode decide what it takes, quicker than a Python could start. Ops are in the names of
#: nodes. A call is one line in the file `calls.log`.
COMPILER = """
model=$1 chip=$2 mode=$3 log=$4
nodes=$(grep -aoE 'n[0-9]+_[A-Z][a-z]+' "$model" | sort -u)
count=$(echo "$nodes" | wc -l)
echo "$count $chip $mode" >> "$log"
case $chip in old) refused='Asinh Cosh Atan' ;; new) refused=Atan ;; esac
for op in $refused; do
    if [ $op$mode != Atanslow ] && echo "$nodes" | grep -q $op; then echo "error: no $op"; exit 1; fi
done
[ $chip != tiny ] || [ $count -le 50 ]
"""
TOML = """
name = "chips"
command = ["sh", "{here}/compiler.sh", "{model}", "{chip}", "{mode}", "{here}/calls.log"]
[options.chip]
default = "old"
choices = ["old", "new", "newest", "tiny"]
worth_trying = ["new", "newest", "tiny"]
[options.mode]
default = "fast"
choices = ["fast", "slow"]
worth_trying = ["fast", "slow"]
[options.skip]
default = "none"
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def chips(tmp_path: Path) -> Path:
    (tmp_path / "compiler.sh").write_text(COMPILER)
    path = tmp_path / "chips.toml"
    path.write_text(TOML)
    return path


def small(folder: Path) -> Path:
    ops = ("Relu", "Asinh", "Neg", "Cosh", "Atan", "Abs")
    nodes = [helper.make_node(op, [f"t{i}"], [f"t{i + 1}"], name=f"n{i}_{op}") for i, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", f"t{len(ops)}")]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:])
    path = folder / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def asked(chips: Path) -> list[str]:
    log = chips.with_name("calls.log")
    return log.read_text().splitlines() if log.exists() else []


def by_options(result: onnx_bisect.Result) -> Mapping[str, onnx_bisect.TriedOptions]:
    return {",".join(f"{key}={value}" for key, value in it.options.items()): it for it in result.alternatives}


def ops(result: onnx_bisect.Result, ids: tuple[str, ...]) -> set[str]:
    return {culprit.ops[0] for culprit in result.culprits if culprit.id in ids}


def test_every_alternative_says_which_culprits_it_takes(chips: Path, tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(
        small(tmp_path), backend=chips, alternatives={"chip": ["new", "newest"], "mode": ["slow"]}
    )

    assert result.verdict is Status.FAIL
    assert len(result.culprits) == 3
    found = by_options(result)
    assert list(found) == ["chip=new", "chip=newest", "mode=slow"]
    assert ops(result, found["chip=new"].takes) == {"Asinh", "Cosh"}
    assert ops(result, found["chip=new"].refuses) == {"Atan"}
    assert found["chip=new"].whole is None
    assert found["chip=newest"].whole is Status.PASS
    assert ops(result, found["mode=slow"].takes) == {"Atan"}


def test_the_whole_model_is_asked_about_only_where_no_culprit_is_refused(chips: Path, tmp_path: Path) -> None:
    model = small(tmp_path)
    first = onnx_bisect.diagnose(model, backend=chips)
    before = len(asked(chips))

    result = onnx_bisect.diagnose(model, backend=chips, alternatives={"chip": ["new", "newest"]})

    assert result.stats.compiler_calls == 0
    new = asked(chips)[before:]
    assert new.count("1 new fast") == 3
    assert new.count("1 newest fast") == 3
    assert new.count("6 newest fast") == 1
    assert len(new) == 7 == sum(it["compiler_calls"] for it in result.report["alternatives"])
    assert result.culprits == first.culprits


def test_verdicts_on_alternatives_are_kept(chips: Path, tmp_path: Path) -> None:
    model, wanted = small(tmp_path), {"chip": ["new", "newest"]}
    onnx_bisect.diagnose(model, backend=chips, alternatives=wanted)
    before = len(asked(chips))

    again = onnx_bisect.diagnose(model, backend=chips, alternatives=wanted)
    assert len(asked(chips)) == before
    assert [(it["compiler_calls"], it["cached"]) for it in again.report["alternatives"]] == [(0, 3), (0, 4)]

    # the search of that target begins with them
    assert onnx_bisect.diagnose(model, backend=chips, options={"chip": "newest"}).stats.compiler_calls == 0


def test_culprits_may_be_taken_and_the_whole_refused(chips: Path) -> None:
    result = onnx_bisect.diagnose(C2, backend=chips, alternatives={"chip": ["tiny"]})

    (tiny,) = result.alternatives
    assert len(tiny.takes) == 3
    assert tiny.whole is Status.FAIL
    assert "takes all 3 culprits, and not the whole model" in "\n".join(lines(result.report))


def test_all_tries_what_the_backend_declares_and_nothing_that_changes_nothing(chips: Path, tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(small(tmp_path), backend=chips, alternatives="all")

    assert list(by_options(result)) == ["chip=new", "chip=newest", "chip=tiny", "mode=slow"]  # and not mode=fast
    only = onnx_bisect.diagnose(small(tmp_path), backend=chips, alternatives={"mode": []})
    assert list(by_options(only)) == ["mode=slow"]


def test_a_model_that_compiles_is_not_asked_about_again(chips: Path, tmp_path: Path) -> None:
    result = onnx_bisect.diagnose(
        small(tmp_path), backend=chips, options={"chip": "newest"}, alternatives={"chip": ["new"]}
    )
    assert result.verdict is Status.PASS
    assert result.alternatives == ()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"chap": ["new"]}, "'chap' is no option .* did you mean 'chip'"),
        ({"chip": ["nwe"]}, "'nwe' is no value of the option 'chip'"),
        ({"skip": []}, "does not say which values of 'skip' are worth trying"),
        ("every", "give 'all'"),
    ],
)
def test_what_cannot_be_tried_is_said_before_any_compile(chips: Path, tmp_path: Path, wanted: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        onnx_bisect.diagnose(small(tmp_path), backend=chips, alternatives=wanted)
    assert asked(chips) == []


def test_a_function_has_no_options(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="by name or file"):
        onnx_bisect.diagnose(small(tmp_path), backend=lambda path: True, alternatives="all")


def test_the_budget_is_for_diagnosis_and_alternatives_together(chips: Path, tmp_path: Path) -> None:
    model = small(tmp_path)
    calls = onnx_bisect.diagnose(model, backend=chips, cache=False).stats.compiler_calls
    chips.with_name("calls.log").unlink()

    result = onnx_bisect.diagnose(
        model, backend=chips, cache=False, budget_calls=calls + 4, alternatives={"chip": ["new", "newest"]}
    )

    assert len(asked(chips)) == calls + 4
    assert [it["compiler_calls"] for it in result.report["alternatives"]] == [3, 1]
    assert len(result.report["alternatives"][1]["unknown"]) == 2


def test_an_alternative_that_cannot_be_asked_keeps_no_other_from_it(
    chips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chips.write_text(TOML + "[version]\ncommand = ['sh', '-c', 'test {chip} != new && echo 1.0']\n")

    result = onnx_bisect.diagnose(small(tmp_path), backend=chips, alternatives={"chip": ["new", "newest"]})

    new, newest = result.alternatives
    assert "does not tell its version" in new.problem
    assert newest.whole is Status.PASS


def test_every_form_of_the_report_has_them(chips: Path, tmp_path: Path) -> None:
    answered: list[ProbeAnswered] = []
    result = onnx_bisect.diagnose(
        small(tmp_path),
        backend=chips,
        alternatives={"chip": ["new", "newest"]},
        progress=lambda event: answered.append(event) if isinstance(event, ProbeAnswered) else None,
    )

    jsonschema.validate(json.loads(result.to_json()), report_schema())
    text = "\n".join(lines(result.report))
    assert "chip=new     takes 2 of 3 culprits: " in text
    assert "chip=newest  the whole model compiles" in text
    assert "7 compiler calls for other options" in text
    for other in (markdown(result.report), html(result.report)):
        assert "chip=newest" in other
        assert "the whole model compiles" in other
    assert [event.why for event in answered][-1] == "the whole model with chip=newest"
    assert onnx_bisect.Result.of(result.report, result.attachments).alternatives == result.alternatives
