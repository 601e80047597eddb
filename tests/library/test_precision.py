"""`onnx_bisect.precision`: the nodes that must stay precise, in onnxruntime's own QDQ and in float16."""

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from onnx import helper

import onnx_bisect
from onnx_bisect import ModelError, OptionError, PrecisionResult
from onnx_bisect.precision_record import MeasurementBudget
from onnxbisect.language import CHINESE, within
from onnxbisect.precision.pictures import flow, html, trade
from onnxbisect.precision.plan import PrecisionEnding
from onnxbisect.precision.report import PrecisionReport, markdown, terminal
from onnxbisect.report.text import plain
from onnxbisect_backends.contract import Limits, list_quantised
from onnxbisect_backends.precision.arithmetic import OrtArithmetic, Ran
from onnxbisect_backends.precision.scoring import UserMetric
from onnxbisect_backends.precision.targets import in_turns, tensors_of_nodes
from onnxbisect_backends.registry import make
from support.cli.processes import survivors
from support.precision import CHANNELS, SIZE, Net, planted_pair, scaled_channel

PAIR = ("Mul_3", "Mul_5")
METRIC = """from __future__ import annotations
import os, time
import numpy as np
from dataclasses import dataclass
@dataclass
class Box:  # it is looked up by the name of its module
    side: float
def near(reference, outputs, sample):
    assert set(sample) == {"x"}, sample
    (name,) = reference
    return 1 - np.abs(reference[name] - outputs[name]).mean() / np.abs(reference[name]).mean()
def far(reference, outputs, sample): return 1 - near(reference, outputs, sample)
def nan(reference, outputs, sample): return float("nan")
def raises(reference, outputs, sample): raise ValueError("no box")
def text(reference, outputs, sample): return "good"
def hangs(reference, outputs, sample):
    while True: pass
def dies(reference, outputs, sample):
    os._exit(7)
def endless(reference, outputs, sample): return 10**400
class Odd:
    def __float__(self): raise RuntimeError("odd")
def odd(reference, outputs, sample): return Odd()
def several(reference, outputs, sample): return np.ones(2)
def scalar(reference, outputs, sample): return np.float32(0.5)
def array(reference, outputs, sample): return np.array(0.5)
def box(reference, outputs, sample): return Box(0.5).side
def loud(reference, outputs, sample):
    for _ in range(20000): print("x" * 100)
    return 0.5
def forks(reference, outputs, sample):
    if os.fork() == 0:
        os.setsid()
        time.sleep(300)
    return 0.5
def silent(reference, outputs, sample):
    os.close(1)
    os.close(2)
    return 0.5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("precision")
    planted_pair(made)
    (made / "metric.py").write_text(METRIC)
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> PrecisionResult:
    return onnx_bisect.precision(folder / "net.onnx", samples=folder / "samples", at_least=25, out=folder / "out")


def test_a_planted_pair_is_found_and_each_is_shown_to_be_needed(found: PrecisionResult) -> None:
    report = found.report
    assert (found.keep, report.ending) == (PAIR, PrecisionEnding.MINIMAL)
    assert (report.full, report.candidates, report.samples) == (200.0, 9, 2)
    assert report.all_low is not None
    assert report.value is not None
    assert report.all_low < 5 < 25 < report.value
    for member in report.members:
        assert member.without is not None
        assert member.without < 25
        (ask,) = [it for it in report.asks if it.number == member.asked]
        assert (ask.kept, ask.value) == (1, member.without)
    assert 0 < report.work < 0.1
    assert found.headline.startswith(
        "2 nodes of 9 have to stay in high precision for sqnr of at least 25.0 dB: with them"
    )


def test_the_reason_is_the_channel_that_was_scaled(found: PrecisionResult) -> None:
    for member in found.report.members:
        assert member.reason.startswith("Channel ")
        assert "times an ordinary channel: one scale for all leaves that one" in member.reason


def test_a_rewrite_that_computes_the_same_leaves_nothing_to_keep(found: PrecisionResult, folder: Path) -> None:
    report = found.report
    assert (report.changes, report.changed_keep) == (("fold the scale of 'Mul_3' into that of 'Mul_5'",), ())
    assert float(report.changed_shown.removesuffix(" dB")) > 25
    assert [it.kept for it in report.asks if it.on.endswith("rewritten")] == [7, 0]
    assert any(report.changed in line for line in terminal(report))
    assert report.changed in markdown(report)
    before, after = (
        onnxruntime.InferenceSession(it, _as_written(), providers=["CPUExecutionProvider"])
        for it in (folder / "net.onnx", folder / "out" / "rewritten.onnx")
    )
    with np.load(folder / "samples" / "0.npz") as sample:
        (old,), (new,) = (it.run(None, dict(sample)) for it in (before, after))
    np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4)


def test_the_written_model_has_these_nodes_in_float_and_computes_what_is_said(
    found: PrecisionResult, folder: Path
) -> None:
    written = onnx.load(folder / "out" / "mixed.onnx")
    made_by = {name: node for node in written.graph.node for name in node.output}
    for node in written.graph.node:
        quantised = any(it in made_by and made_by[it].op_type == "DequantizeLinear" for it in node.input[:1])
        if node.op_type == "Conv":
            assert quantised
    session = onnxruntime.InferenceSession(
        written.SerializeToString(), _as_written(), providers=["CPUExecutionProvider"]
    )
    whole = onnxruntime.InferenceSession(folder / "net.onnx", providers=["CPUExecutionProvider"])
    values = []
    for file in (folder / "samples").iterdir():
        feed = dict(np.load(file))
        (expected,), (got,) = whole.run(None, feed), session.run(None, feed)
        values.append(10 * np.log10((expected**2).sum() / ((expected - got) ** 2).sum()))
    assert min(values) == pytest.approx(found.report.value, abs=0.1)
    assert json.loads((folder / "out" / "precision.json").read_text()) == json.loads(json.dumps(asdict(found.report)))


def test_the_forms_say_it_and_in_chinese_too(found: PrecisionResult, folder: Path) -> None:
    shown = "\n".join(terminal(found.report))
    assert "\n  Mul_3 (Mul)  Without it " in shown
    page = markdown(found.report)
    shown_words, words = (re.findall(r"[\w.]+", text) for text in (shown, page.replace("\\", "")))
    assert words[: len(shown_words)] == shown_words
    assert page == (folder / "out" / "precision.md").read_text()
    assert "- `Mul_5` (`Mul`): Without it " in page
    with within(CHINESE):
        chinese, written = terminal(found.report), markdown(found.report)
    assert chinese[2].startswith("要达到 sqnr 至少 25.0 dB")
    assert "必须保持高精度" in chinese[2]
    assert not re.search("[a-z]{3,} [a-z]{3,}", re.sub("`[^`]*`", "", written).replace("onnxruntime rewritten", ""))
    assert "是普通通道的" in "".join(line.strip() for line in chinese)


def test_the_picture_has_a_point_for_each_measurement_and_marks_the_set(found: PrecisionResult, folder: Path) -> None:
    drawn = (folder / "out" / "precision.svg").read_text()
    root = ElementTree.fromstring(drawn)  # noqa: S314 - it is ours
    points = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(points) == len([it for it in found.report.asks if it.on == "onnxruntime"])  # not of the rewritten model
    (marked,) = [it for it in points if it.get("r") == "6"]
    assert marked[0].text == f"ask 3: 2 nodes kept, {found.report.shown}"
    (bad,) = (replace(it, node='"><b>', tensor="<i>") for it in found.report.errors[:1])
    bad_member = replace(found.report.members[0], node=bad.node)
    report = replace(
        found.report, model="<script>\x1b&", metric='"><b>', wanted="<i>", members=(bad_member,), errors=(bad,)
    )
    for draw in (trade, flow):
        hostile = draw(report)
        assert "<script" not in hostile
        assert "<i>" not in hostile
        assert "<b>" not in hostile
        ElementTree.fromstring(hostile)  # noqa: S314
    assert "<script" not in html(report)
    assert "<b>" not in html(report)


def test_the_error_along_the_dataflow_starts_at_the_pair_and_ends_with_what_was_measured(
    found: PrecisionResult, folder: Path
) -> None:
    report = found.report
    by_tensor = {it.tensor: it for it in report.errors}  # without those that the quantiser merges into others
    assert list(by_tensor) == sorted(by_tensor)
    assert report.errors[-1].tensor == "t8"
    assert report.all_low is not None
    assert report.value is not None
    assert report.errors[-1].low == pytest.approx(report.all_low, abs=0.5)
    assert report.errors[-1].kept == pytest.approx(report.value, abs=0.5)
    before, after = by_tensor["t2"], by_tensor["t5"]  # the pair is the nodes 3 and 5
    assert before.low > 25 > 10 > after.low
    assert after.kept > 25
    drawn = (folder / "out" / "errors.svg").read_text()
    root = ElementTree.fromstring(drawn)  # noqa: S314 - it is ours
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    members = [it for it in report.errors if it.node in found.keep]
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == len(members) >= 1
    assert min(it.kept for it in report.errors) > 25  # a Relu that is merged is no error
    page = (folder / "out" / "precision.html").read_text()
    assert page == html(report)
    assert page.count("<svg") == 2
    assert "<script" not in page


def test_another_threshold_in_the_same_folder_is_answered_from_the_record(found: PrecisionResult, folder: Path) -> None:
    again = onnx_bisect.precision(folder / "net.onnx", samples=folder / "samples", at_least=24, out=folder / "out")
    assert again.keep == found.keep
    assert again.report.resumed == len(again.report.asks) == len(found.report.asks)
    assert (folder / "out" / "mixed.onnx").is_file()


def test_a_search_that_was_ended_goes_on_and_another_question_does_not_use_its_record(
    folder: Path, tmp_path: Path
) -> None:
    def ask(**more: object) -> PrecisionResult:
        given = {"samples": folder / "samples", "at_least": 25, "out": tmp_path, **more}
        return onnx_bisect.precision(folder / "net.onnx", **given)  # type: ignore[arg-type]

    with pytest.raises(OptionError, match="The budget ended before anything could be measured"):
        ask(budget_calls=1)
    early = ask(budget_calls=2)
    assert early.report.ending is PrecisionEnding.BUDGET
    assert early.keep == PAIR
    assert "the budget ended before it was known" in early.headline
    record = tmp_path / "asks.jsonl"
    record.write_text(record.read_text() + '{"keep": ["Con')  # as a killed process leaves it
    whole = ask()
    assert (whole.keep, whole.report.ending, whole.report.resumed) == (PAIR, PrecisionEnding.MINIMAL, 3)
    head, *lines = record.read_text().splitlines()
    ends = [it for it in lines if len(json.loads(it)["keep"]) in (0, 9)]
    one = json.dumps({**json.loads(ends[0]), "keep": [PAIR[1]], "value": 40})  # of an earlier way to search
    record.write_text("\n".join([head, *ends, one, ""]))
    from_record = ask(budget_calls=1)
    ending = PrecisionEnding.MINIMAL  # without it all is low, which is on record
    assert (from_record.keep, from_record.report.ending) == ((PAIR[1],), ending)
    other = ask(metric="cosine", at_least=0.99, budget_calls=3)
    assert other.report.resumed == 0


def test_several_measurements_at_a_time_find_the_same(folder: Path, found: PrecisionResult) -> None:
    again = onnx_bisect.precision(folder / "net.onnx", samples=folder / "samples", at_least=25, jobs=3)
    assert replace(again.report, seconds=0.0) == replace(found.report, seconds=0.0)
    with pytest.raises(OptionError, match="jobs is 0"):
        onnx_bisect.precision(folder / "net.onnx", samples=folder / "samples", jobs=0)


def test_what_was_measured_ahead_is_on_record_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made = OrtArithmetic.run, list[frozenset[str]]()

    def counted(self: OrtArithmetic, keep: Iterable[str]) -> tuple[Ran, Path]:
        if self.folder.name == "model":  # and not that of the rewritten one
            made.append(frozenset(keep))
        return run(self, keep)

    def ask(**more: Any) -> PrecisionReport:
        given = {"samples": folder / "samples", "at_least": 25, "out": tmp_path, "jobs": 3, **more}
        return onnx_bisect.precision(folder / "net.onnx", **given).report

    monkeypatch.setattr(OrtArithmetic, "run", counted)
    early = ask(budget_calls=6)
    recorded = [json.loads(it) for it in (tmp_path / "asks.jsonl").read_text().splitlines()[1:]]
    assert {frozenset(it["keep"]) for it in recorded if it["on"] == "onnxruntime"} >= set(made)
    assert len(early.asks) < len(made) == 6
    ask()
    again = set(made[:6]) & set(made[6:])
    assert again <= {frozenset(PAIR)}  # the file to write


def test_16_bits_do_where_the_range_is_the_cause(tmp_path: Path) -> None:
    file = scaled_channel(tmp_path)
    found = onnx_bisect.precision(file, samples=tmp_path / "samples", at_least=30, out=tmp_path / "out")
    report = found.report
    assert report.wide == found.keep == ("Mul_up", "Mul_down")
    assert float(report.wide_shown.removesuffix(" dB")) > 30
    assert plain(report.sixteen) in markdown(report)
    assert report.sixteen in terminal(report)
    written = onnx.load(tmp_path / "out" / "mixed16.onnx")
    assert {onnx.TensorProto.UINT8, onnx.TensorProto.UINT16} <= {it.data_type for it in written.graph.initializer}
    (layers,) = json.loads((tmp_path / "out" / "pulsar2.json").read_text())["quant"]["layer_configs"]
    assert layers == {"layer_names": ["Mul_up", "Mul_down"], "data_type": "U16"}
    again = onnx_bisect.precision(file, samples=tmp_path / "samples", at_least=30, out=tmp_path / "out")
    assert again.report.resumed == len(report.asks)
    assert again.report.wide == report.wide


def test_a_part_of_a_budget_ends_with_its_own_calls_and_with_the_whole() -> None:
    whole = MeasurementBudget(3, None, time.monotonic())
    part = whole.part(2)
    part.take()
    part.take()
    assert (part.spent, whole.spent) == (True, False)
    other = whole.part(2)
    other.take()
    assert (other.spent, whole.spent) == (True, True)


def test_low_precision_that_is_good_enough_needs_nothing(folder: Path) -> None:
    found = onnx_bisect.precision(folder / "net.onnx", samples=folder / "samples", metric="maxabs", at_most=1e6)
    assert (found.keep, found.report.ending, len(found.report.asks)) == ((), PrecisionEnding.NOTHING, 2)
    assert found.headline.startswith("All of net.onnx can be int8: ")


def test_an_overflow_of_float16_is_found_with_its_tensor(tmp_path: Path) -> None:
    net = Net(1)
    net.convolution()
    net.overflow()
    net.convolution()
    file = net.write(tmp_path)
    found = onnx_bisect.precision(file, samples=tmp_path / "samples", low="float16", at_least=40)
    assert list(found.keep) == net.planted
    assert found.report.all_low is None
    assert found.report.all_low_shown == "no finite number"
    assert all("and float16 ends at 65504: it becomes infinite." in it.reason for it in found.report.members)


def test_a_metric_of_the_user_decides(folder: Path) -> None:
    found = onnx_bisect.precision(
        folder / "net.onnx", samples=folder / "samples", metric=f"{folder / 'metric.py'}:far", at_most=0.1
    )
    assert found.keep == PAIR
    assert found.report.full == 0.0
    assert all(it.without is not None and it.without > 0.1 for it in found.report.members)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("nan", r"nan\(\) of metric.py returned NaN on sample 0; it has to return a number\."),
        ("raises", r"raises\(\) of metric.py raised ValueError: no box \(line 14\) on sample 0\."),
        ("text", r"text\(\) of metric.py returned str on sample 0; it has to return a number\."),
        ("absent", r"metric.py has no function absent\."),
        ("hangs", r"hangs\(\) of metric.py gave no answer: it did not end within \d+ s\."),
        ("dies", r"dies\(\) of metric.py gave no answer: its process died\."),
        ("endless", r"endless\(\) of metric.py returned int on sample 0; it has to return a number\."),
        ("odd", r"odd\(\) of metric.py returned Odd on sample 0; it has to return a number\."),
        ("several", r"several\(\) of metric.py returned ndarray on sample 0; it has to return a number\."),
    ],
)
def test_a_metric_that_fails_is_one_sentence(folder: Path, tmp_path: Path, function: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=f"^{sentence}$"):
        scored(folder, tmp_path, function)


@pytest.mark.parametrize("function", ["scalar", "array", "box", "loud", "forks", "silent"])
def test_a_metric_may_be_written_in_any_way_and_leaves_nobody(folder: Path, tmp_path: Path, function: str) -> None:
    assert scored(folder, tmp_path, function) == 0.5
    assert not survivors(folder)


def scored(folder: Path, tmp_path: Path, function: str) -> float:
    for name in ("reference", "found", "samples"):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "0.npz", **{"x" if name == "samples" else "0": np.ones(3)})  # type: ignore[arg-type]
    scorer = UserMetric(
        f"{folder / 'metric.py'}:{function}",
        names=["y"],
        reference=tmp_path / "reference",
        samples=tmp_path / "samples",
        limits=Limits(seconds=1.0 if function == "hangs" else 100.0),
        at_most=False,
    )
    outputs = [{"0": np.ones(3)}]
    return scorer.value(outputs, outputs, tmp_path / "found")


def test_a_threshold_that_full_precision_misses_is_one_sentence(folder: Path) -> None:
    expected = (
        "^Full precision itself has sqnr 200.0 dB on onnxruntime, and sqnr of at least 300.0 dB is wanted; "
        "give another threshold.$"
    )
    with pytest.raises(OptionError, match=expected):
        onnx_bisect.precision(folder / "net.onnx", samples=folder / "samples", at_least=300)


def _samples(folder: Path, **arrays: np.ndarray) -> Path:
    folder.mkdir()
    np.savez(folder / "0.npz", **arrays)  # type: ignore[arg-type] # numpy's stubs miss keywords of arrays
    return folder


WRONG: list[tuple[str, Callable[[Path], Path | None], str]] = [
    ("none", lambda it: None, "say where they are with --samples PATH"),
    ("empty", lambda it: it, "has no .npz or .npy files"),
    ("absent", lambda it: it / "nowhere", "cannot be read: No such file"),
    ("shape", lambda it: _samples(it / "s", x=np.zeros((1, CHANNELS, SIZE, 1), np.float32)), "has the shape"),
    ("dtype", lambda it: _samples(it / "s", x=np.zeros((1, CHANNELS, SIZE, SIZE))), "has float64 for the input 'x'"),
    ("key", lambda it: _samples(it / "s", y=np.zeros(1)), "'y'"),
    ("nan", lambda it: _samples(it / "s", x=np.full((1, CHANNELS, SIZE, SIZE), np.nan, np.float32)), "not finite"),
]


@pytest.mark.parametrize(("make", "sentence"), [it[1:] for it in WRONG], ids=[it[0] for it in WRONG])
def test_samples_that_cannot_be_used_are_one_sentence(
    folder: Path, tmp_path: Path, make: Callable[[Path], Path | None], sentence: str
) -> None:
    with pytest.raises(OptionError) as raised:
        onnx_bisect.precision(folder / "net.onnx", samples=make(tmp_path))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"metric": "psnr"}, "There is no metric 'psnr'; there are sqnr, cosine, maxabs"),
        ({"metric": "maxabs"}, "maxabs is the better the smaller it is: give --at-most."),
        ({"metric": "cosine", "at_most": 1.0}, "cosine is the better the larger it is: give --at-least."),
        ({"metric": "m.py:score"}, "Say what is wanted of m.py:score"),
        ({"metric": "m.py:score", "at_least": 1.0}, "There is no file m.py of a metric."),
        ({"at_least": float("nan")}, "The threshold must be a finite number."),
        ({"low": "int4"}, "There is no low precision 'int4'; there are int8, float16."),
        ({"backend": "whitelist", "options": {"ops": "Conv"}}, "precision has no arithmetic of 'whitelist'"),
    ],
)
def test_arguments_that_cannot_be_used_are_one_sentence(folder: Path, given: dict[str, object], sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        onnx_bisect.precision(folder / "net.onnx", samples=folder / "samples", **given)  # type: ignore[arg-type]
    assert sentence in str(raised.value)


def test_a_model_that_does_not_run_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    proto = onnx.load(folder / "net.onnx")
    proto.graph.node[0].op_type, proto.graph.node[0].domain = "Frobnicate", "vendor"
    proto.opset_import.append(onnx.helper.make_opsetid("vendor", 1))
    onnx.save(proto, tmp_path / "net.onnx")
    with pytest.raises(ModelError, match=r"^The model does not run on the samples in full precision: .*Frobnicate"):
        onnx_bisect.precision(tmp_path / "net.onnx", samples=folder / "samples")


def test_a_model_older_than_quantizelinear_is_measured_all_the_same(tmp_path: Path) -> None:
    net = Net(3)
    net.convolution()
    net.add("Relu")
    file = net.write(tmp_path)
    proto = onnx.load(file)
    proto.opset_import[0].version, proto.ir_version = 9, 4
    onnx.save(proto, file)
    found = onnx_bisect.precision(file, samples=tmp_path / "samples", at_least=20)
    assert (found.report.ending, found.report.notes, found.report.candidates) == (PrecisionEnding.NOTHING, (), 2)


def test_a_model_without_anything_to_quantise_is_one_sentence(tmp_path: Path) -> None:
    info = [onnx.helper.make_tensor_value_info(it, onnx.TensorProto.FLOAT16, [4]) for it in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], name="r")], "g", info[:1], info[1:])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "net.onnx",
    )
    with pytest.raises(OptionError, match=r"^Nothing of net\.onnx can be int8: it has no node with float32 tensors"):
        onnx_bisect.precision(
            tmp_path / "net.onnx", samples=_samples(tmp_path / "s", x=np.ones(4, np.float16)), at_least=20
        )


def test_names_of_nodes_are_shown_as_what_they_are(found: PrecisionResult) -> None:
    hostile = replace(found.report.members[0], node="a\x1b[31m|<b>`", module="m\n")
    shown = replace(found.report, members=(hostile,), model="`|\u202e.onnx", wide=("<img>",), notes=("<img>",))
    for text in ("\n".join(terminal(shown)), markdown(shown)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "\\<img\\>" in markdown(shown)
    assert not re.search(r"(?<!\\)<img", markdown(shown))


def _as_written() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


@pytest.mark.compiler
def test_the_set_is_proven_on_the_emulator_of_the_target(folder: Path, tmp_path: Path) -> None:
    if complaint := make("qnn", {}).check():
        pytest.skip(complaint)
    found = onnx_bisect.precision(
        folder / "net.onnx", backend="qnn", samples=folder / "samples", at_least=25, out=tmp_path
    )
    report = found.report
    assert (found.keep, report.ending, report.backend) == (PAIR, PrecisionEnding.MINIMAL, "qnn")
    there = [it for it in report.asks if it.on == "qnn"]
    assert [it.kept for it in there] == [9, 0, 2, 1, 1]  # the ends, the set, and each member left out
    assert [it.number for it in there] == [1, 2, 8, 9, 10]  # the ends come before onnxruntime's search
    assert {it.asked for it in report.members} == {9, 10}
    assert report.full is not None
    assert 40 < report.full < 200  # float16
    assert report.wide == PAIR
    assert [it.kept for it in report.asks if it.on == "qnn, 16 bits"] == [0]
    again = onnx_bisect.precision(
        folder / "net.onnx", backend="qnn", samples=folder / "samples", at_least=25, out=tmp_path
    )
    assert (again.keep, again.report.resumed) == (PAIR, len(report.asks))
    told: list[str] = []
    with pytest.raises(
        OptionError, match=r"^Full precision itself has sqnr \d+.\d dB on qnn, and sqnr of at least 190"
    ):
        onnx_bisect.precision(
            folder / "net.onnx", backend="qnn", samples=folder / "samples", at_least=190, progress=told.append
        )
    assert len(told) == 1  # what only the target misses is found before any search


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize(("backend", "needed"), [("qnn", 3), ("rknn", 2)])
def test_a_variance_that_overflows_in_the_targets_float16_is_kept_on_the_host(
    tmp_path: Path, backend: str, needed: int
) -> None:
    """The Sqrt of one large number overflows in RKNN's simulator only in some company, and not in this."""
    if complaint := make(backend, {}).check():
        pytest.skip(complaint)
    net = Net(2)
    net.convolution()
    net.variance()
    net.convolution()
    file = net.write(tmp_path)
    found = onnx_bisect.precision(file, backend=backend, samples=tmp_path / "samples", low="float16", at_least=30)
    report = found.report
    assert list(found.keep) == net.planted[:needed]
    assert report.ending is PrecisionEnding.MINIMAL
    assert all(it.without is None or it.without < 30 for it in report.members)
    assert all("and float16 ends at 65504: it becomes infinite." in it.reason for it in report.members)
    assert report.notes == (
        f"Nodes that stay in high precision were measured on the host: {backend} computes in float16 alone.",
    )


def test_float16_is_for_targets_that_compute_in_it(folder: Path) -> None:
    with pytest.raises(OptionError, match="With 'qnn' the low precision is int8"):
        onnx_bisect.precision(
            folder / "net.onnx",
            backend="qnn",
            options={"precision": "bf16", "soc_model": "88"},
            samples=folder / "samples",
            low="float16",
        )


def test_steps_alternate_between_host_and_target_and_read_no_later_one() -> None:
    """A diamond: the kept node of one branch stands beside a low one of the other, and both are read again."""
    ops = [("a", "x", "x"), ("b", "a", "a"), ("c", "a", "x"), ("d", "b", "c"), ("e", "d", "c")]
    nodes = [helper.make_node("Add", [one, two], [name], name=name) for name, one, two in ops]
    graph = helper.make_graph(nodes, "g", [], [])
    every = frozenset("abcde")

    def named(keep: str) -> list[tuple[bool, str]]:
        return [(host, "".join(it.name for it in some)) for host, some in in_turns(graph, frozenset(keep), every)]

    assert named("") == [(False, "abcde")]
    assert named("b") == [(False, "ac"), (True, "b"), (False, "de")]
    assert named("be") == [(False, "ac"), (True, "b"), (False, "d"), (True, "e")]
    assert named("ad") == [(True, "a"), (False, "bc"), (True, "d"), (False, "e")]
    assert named("abcde") == [(True, "abcde")]


@pytest.mark.compiler
@pytest.mark.long
def test_a_compiler_that_quantises_by_itself_proves_the_set_by_its_own_tensors(tmp_path: Path) -> None:
    """onnxruntime needs two nodes. RKNN fuses the second one into the convolution behind it, and needs three."""
    if complaint := make("rknn", {}).check():
        pytest.skip(complaint)
    file = scaled_channel(tmp_path)

    def search() -> PrecisionResult:
        return onnx_bisect.precision(
            file, backend="rknn", samples=tmp_path / "samples", at_least=30, out=tmp_path / "out"
        )

    found = search()
    report = found.report
    assert found.keep == ("Mul_up", "Relu_r3", "Conv_c4")
    assert (report.ending, report.backend, report.arithmetic) == (
        PrecisionEnding.MINIMAL,
        "rknn",
        "RKNN-Toolkit2 2.3.2",
    )
    there = [it for it in report.asks if it.on == "rknn"]
    assert report.value is not None
    assert report.value > 40
    for member in report.members:
        assert member.without is not None
        assert member.without < 20
        (ask,) = [it for it in there if it.number == member.asked]
        assert (ask.kept, ask.value) == (2, member.without)
        assert member.reason.startswith("Channel 5 of ")  # of what the merged node read
    (note,) = [it for it in report.notes if "after fusing" in it]
    assert note.startswith("rknn has no tensors of 'Mul_down'")
    written = yaml.safe_load((tmp_path / "out" / "rknn.hybrid.yaml").read_text())
    assert written == {"custom_quantize_layers": dict.fromkeys(("up", "r3", "c4"), "float16")}
    assert not (tmp_path / "out" / "mixed.onnx").exists()  # a QDQ model of another set of nodes would mislead
    again = search()
    assert (again.keep, again.report.resumed) == (found.keep, len(report.asks))


@pytest.mark.compiler
@pytest.mark.long
def test_tpu_mlir_needs_two_nodes_and_its_table_names_them_as_it_does(tmp_path: Path) -> None:
    """It merges the first scale into the convolution before it, so that the Relu behind has to stay."""
    if complaint := make("tpu-mlir", {}).check():
        pytest.skip(complaint)
    file = scaled_channel(tmp_path)
    found = onnx_bisect.precision(
        file, backend="tpu-mlir", samples=tmp_path / "samples", at_least=30, out=tmp_path / "out"
    )
    assert found.keep == ("Relu_r3", "Mul_down")
    # behind the two ends and onnxruntime's set: the tool's own errors tell the pair at once
    assert [it.kept for it in found.report.asks if it.on == "tpu-mlir"][3:] == [2, 1]
    assert found.report.ending is PrecisionEnding.MINIMAL
    assert (tmp_path / "out" / "tpu_mlir.qtable").read_text() == "r3_Relu F16\ndown_Mul F16\n"
    assert found.report.changed_keep == ()


@pytest.mark.compiler
@pytest.mark.long
def test_a_constant_that_rknn_lists_is_no_tensor_to_keep(tmp_path: Path) -> None:
    """RKNN quantises the constant of a Sub, and refuses its name afterwards: SAM's decoder could not be measured."""
    backend = make("rknn", {})
    if complaint := backend.check():
        pytest.skip(complaint)
    net = Net(3)
    net.convolution()
    net.add("Neg")
    net.add("Add", net.store(np.array([1.5])))
    net.convolution()
    file, work = net.write(tmp_path), tmp_path / "work"
    work.mkdir()
    ended = list_quantised(backend, file, tmp_path / "samples", work, Limits(seconds=300))
    assert ended.exit_code == 0, ended.log
    listed = json.loads((work / "tensors.json").read_text())
    assert not [name for name in listed if name.startswith("w")]


def test_tensors_that_a_compiler_adds_belong_to_the_node_that_they_are_named_after() -> None:
    def tensor(name: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])

    nodes = [
        onnx.helper.make_node("Relu", ["x"], ["t"], name="t_1"),
        onnx.helper.make_node("Neg", ["t"], ["t_1_out"], name="N"),
        onnx.helper.make_node("Abs", ["t_1_out"], ["y"], name="A"),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [tensor("x")], [tensor("y")])
    tensors = ["x_int8", "t", "t_1_2conv0", "t_1_out_mm", "y_int8", "y2", "other"]
    assert tensors_of_nodes(graph, tensors) == {"t_1": ["t", "t_1_2conv0"], "N": ["t_1_out_mm"], "A": ["y_int8"]}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_planted_sets_among_decoys_are_found_in_real_arithmetic(seed: int, tmp_path: Path) -> None:
    """Pairs, triples and scaled channels that int8 bears; benchmarks/precision.py has a hundred of them."""
    net = Net.random(seed)
    file = net.write(tmp_path)
    found = onnx_bisect.precision(file, samples=tmp_path / "samples", at_least=25)
    assert sorted(found.keep) == sorted(net.planted)
