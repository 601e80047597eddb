"""`onnx_bisect.export`: modules of a PyTorch model that do not export, with the real exporters of torch."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_bisect
from onnx_bisect import ExportResult, OptionError
from onnxbisect.export.failure import FailureKind
from onnxbisect.export.report import markdown, terminal
from onnxbisect_backends.exporting.checking import check
from onnxbisect_backends.exporting.probe import Exported, changed, sentence_of, settings_of
from onnxbisect_backends.toolchains.toolchain import toolchain
from onnxbisect_cli.parts import parts_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "tracker.py"
GATED = EXAMPLE.with_name("gated.py")
#: Component, kind, and what the line says.
NEWER = [
    ("pick", FailureKind.INDEX, "return features[int(image)]"),
    ("gate", FailureKind.BRANCH, "if x.mean() > 0:"),
    ("frames", FailureKind.LOOP, "for _ in range(int(frames)):"),
    ("positions", FailureKind.NUMPY, "return x + torch.from_numpy(np.sin(x.detach().numpy()))"),
    ("whitening", FailureKind.NO_FORM, "u, _, v = torch.linalg.svd(x, full_matrices=False)"),
]
RIGHT = ("backbone", "fusion.0", "fusion.1", "head")


@pytest.fixture(scope="module")
def python() -> Path:
    found = toolchain("torch")
    if not found.installed:
        pytest.skip(found.missing or "")
    return found.python


@pytest.mark.compiler
@pytest.mark.long
def test_the_example_is_told_apart_proven_and_compiled(python: Path, tmp_path: Path) -> None:
    """One export for all that is said of it: workers of pytest would each make their own."""
    exported = onnx_bisect.export(
        f"{EXAMPLE}:build",
        python=python,
        out=tmp_path,
        tries=["exporter=legacy"],
        components=True,
        backend="onnxruntime",
    )
    each_module_that_does_not_export_has_its_kind_line_and_remedy(exported)
    the_rest_is_proven_to_export_and_computes_what_the_model_computes(exported, tmp_path)
    components_are_parts_that_a_compiler_was_asked_about(exported, tmp_path)
    other_settings_say_that_the_older_exporter_succeeds_and_is_wrong(exported)
    the_forms_name_module_line_and_remedy(exported)


def each_module_that_does_not_export_has_its_kind_line_and_remedy(exported: ExportResult) -> None:
    report = exported.report
    assert [(it.path, it.kind, it.place.source if it.place else "") for it in report.culprits] == NEWER
    lines = EXAMPLE.read_text().splitlines()
    for it in report.culprits:
        assert it.place is not None
        assert lines[it.place.line - 1].strip() == it.place.source
    assert [(it.path, it.exports) for it in report.components if it.exports] == [
        (it, True) for it in (*RIGHT, "memory")
    ]
    assert not exported.exports
    assert report.undecided == ()


def the_rest_is_proven_to_export_and_computes_what_the_model_computes(exported: ExportResult, out: Path) -> None:
    assert exported.report.proven
    part = exported.report.parts[0]
    assert (part.path, set(part.without)) == ("", {it[0] for it in NEWER})
    assert part.samples > 0
    model = onnx.load(out / part.file)
    assert {node.op_type for node in model.graph.node if node.domain == "host"} == {it[0] for it in NEWER}
    assert json.loads((out / "export.json").read_text()) == json.loads(json.dumps(asdict(exported.report)))
    assert exported.report.exports <= 21


def components_are_parts_that_a_compiler_was_asked_about(exported: ExportResult, out: Path) -> None:
    parts = exported.report.parts[1:]
    assert [it.path for it in parts] == [*RIGHT, "memory"]
    assert all(it.samples > 0 and "compiles for onnxruntime" in it.compiles for it in parts)
    found = parts_of([out / "parts.toml"], {}, {}, None)
    assert [it.label for it in found] == ["backbone", "fusion-0", "fusion-1", "head", "memory"]
    for it in found:
        inputs = {value.name for value in onnx.load(it.model).graph.input}
        assert it.calibration is not None
        with np.load(next(it.calibration.glob("*.npz"))) as sample:
            assert set(sample) > inputs


def other_settings_say_that_the_older_exporter_succeeds_and_is_wrong(exported: ExportResult) -> None:
    tried = {it.path: it.tried[0] for it in exported.report.culprits}
    assert {path for path, it in tried.items() if it.exports} == set()
    assert {path for path, it in tried.items() if "differs by" in it.message} >= {"gate", "frames", "positions"}


def the_forms_name_module_line_and_remedy(exported: ExportResult) -> None:
    shown = "\n".join(terminal(exported.report))
    assert "\nframes (Frames): loop count by value\n  line     tracker.py:" in shown
    assert "  instead  use torch in place of numpy" in shown
    page = markdown(exported.report)
    assert "## `gate` (`ScoreGate`): branch on values\n\n- line: `tracker.py:" in page
    assert "- instead: use torch in place of numpy" in page
    assert "| `memory` | `MemoryBank` | yes |" in page


#: The rows of components.py: kind, line and remedy where tensors decide. All export where Python's numbers do.
ROWS = [
    ("norm", FailureKind.BRANCH, "forward = torch.tanh if flag else torch.sigmoid", "torch.where"),
    ("halves", FailureKind.BRANCH, "if flag:", "torch.cond"),
    ("positions", FailureKind.BRANCH, "return (x + x.mean(0) if flag else x).cos()", "torch.where"),
    ("attention", FailureKind.BRANCH, "if flag:", "torch.where"),
    (
        "features",
        FailureKind.BRANCH,
        "return sum(features[1 if flag else 0 :], torch.zeros_like(features[0]))",
        "Python flag",
    ),
    ("pick", FailureKind.INDEX, "return x[int(image)] * 3", "one_hot"),
    ("branches", FailureKind.BRANCH, "if way == 0:", "Python flag"),
    ("frames", FailureKind.LOOP, "for _ in range(int(frames)):", "a Python int"),
    ("memory", FailureKind.INDEX, "entry = bank.get(int(frame) - back)", "a Python int"),
]


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_ten_components_that_are_said_not_to_export(python: Path, exporter: str) -> None:
    """The older exporter takes each of them, and freezes what the example's tensors decided."""
    rows = EXAMPLE.with_name("components.py")
    report = onnx_bisect.export(f"{rows}:by_value", python=python, settings={"exporter": exporter}).report
    found = [(it.path, it.kind, it.place.source if it.place else "", it.remedy) for it in report.culprits]
    assert [it[:3] for it in found] == [it[:3] for it in ROWS]
    assert all(words in remedy for (*_, remedy), (*_, words) in zip(found, ROWS, strict=True))
    assert {"is wrong" in it.message for it in report.culprits} == {exporter == "legacy"}
    assert [it.path for it in report.components if it.exports] == ["prompt"]
    assert report.proven


@pytest.mark.compiler
@pytest.mark.long
def test_what_python_decides_exports(python: Path) -> None:
    result = onnx_bisect.export(f"{EXAMPLE.with_name('components.py')}:written", python=python)
    assert (result.exports, result.report.exports) == (True, 1)


@pytest.mark.compiler
@pytest.mark.long
def test_from_pytorch_to_pieces_for_the_npu_with_one_module_on_the_host(python: Path, tmp_path: Path) -> None:
    """The story of docs/export.md: export, run, fix, split; what run.py computes is what PyTorch computes."""
    if complaint := toolchain("qnn").missing:
        pytest.skip(complaint)
    exported = onnx_bisect.export(f"{GATED}:build", python=python, out=tmp_path)
    assert [it.path for it in exported.report.culprits] == ["gate"]
    model, samples = tmp_path / "parts" / "model-with-stand-ins.onnx", tmp_path / "samples" / "model"

    found = onnx_bisect.diagnose(model, backend="qnn", calibration=samples)
    assert [it["ops"] for it in found.report["culprits"]] == [["Celu"], ["host::gate"]]

    fixed = onnx_bisect.fix(model, backend="qnn", samples=samples)
    assert [it.ops for it in fixed.document.left] == [("host::gate",)]
    assert fixed.document.samples == 12
    fixed.write(tmp_path / "repair")

    repair = tmp_path / "repair"
    split = ["split", str(repair / "repaired.onnx"), "--report", str(repair), "--samples", str(samples)]
    done = subprocess.run(
        [Path(sys.executable).with_name("onnx-bisect"), *split, "--backend", "qnn"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((tmp_path / "repair" / "split" / "manifest.json").read_text())
    assert [(it["kind"], it["compiled"]) for it in manifest["pieces"]] == [
        ("npu", True),
        ("custom", None),
        ("npu", True),
    ]
    for sample in sorted(samples.glob("*.npz")):
        script = tmp_path / "repair" / "split" / "run.py"
        subprocess.run([sys.executable, "-I", script, sample], cwd=tmp_path, check=True)
        with np.load(sample) as eager, np.load(tmp_path / "outputs.npz") as outputs:
            for name in outputs:
                np.testing.assert_allclose(outputs[name], eager[name], atol=1e-5, rtol=1e-4)


@pytest.mark.compiler
def test_silent_errors_of_the_older_exporter_are_found(python: Path) -> None:
    result = onnx_bisect.export(f"{EXAMPLE}:build", python=python, settings={"exporter": "legacy"})
    found = {it.path: (it.kind, "is wrong" in it.message) for it in result.report.culprits}
    assert found == {
        "pick": (FailureKind.INDEX, True),
        "gate": (FailureKind.BRANCH, True),
        "frames": (FailureKind.LOOP, True),
        "memory": (FailureKind.LOST_INPUT, True),
        "positions": (FailureKind.NUMPY, True),
        "whitening": (FailureKind.NO_FORM, False),
    }
    # what has no line of its own is at the line that defines the module's forward
    places = {it.path: it.place.source for it in result.report.culprits if it.place}
    assert places["memory"].startswith("def forward(self, x: Tensor, frame: int")
    assert len(places) == len(found)
    assert {it.path for it in result.report.components if it.exports} == set(RIGHT)
    assert result.report.proven


SMALL = """
import time, torch
def raises(): raise ValueError("no")
def returns(): return torch.nn.ReLU()
def prints():
    print("x" * 1000000, flush=True)
    return torch.nn.ReLU(), torch.zeros(1)
def gpu(): return torch.nn.Linear(1, 1).cuda(), (torch.zeros(1),)
def fails(): return torch.nn.Linear(2, 2), (torch.zeros(3),)
def hangs():
    print("x" * 1000000)
    time.sleep(1000)
"""


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "seconds", "sentence"),
    [
        ("raises", 300, r"raises\(\) of model.py raised ValueError: no \(model.py:3\)\."),
        ("returns", 300, r"returns\(\) of model.py returned a ReLU; it has to return \(model, args\)"),
        ("none", 300, r"model.py has no function none; name the one that builds the model"),
        ("gpu", 300, r"gpu\(\) of model.py asks for a GPU: .*\(model.py:8\)\. .* build the model there"),
        ("fails", 300, r"does not run on its inputs: RuntimeError"),
        ("hangs", 20, r"hangs\(\) of model.py did not end within 20 s; --timeout gives it more\."),
    ],
)
def test_a_source_that_does_not_run_is_one_sentence(
    python: Path, tmp_path: Path, function: str, seconds: int, sentence: str
) -> None:
    (tmp_path / "model.py").write_text(SMALL)
    with pytest.raises(OptionError, match=sentence):
        onnx_bisect.export(f"{tmp_path / 'model.py'}:{function}", python=python, timeout=seconds)


@pytest.mark.compiler
@pytest.mark.long
def test_a_source_that_prints_a_megabyte_is_asked_nonetheless(python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SMALL)
    (result,) = onnx_bisect.export_each(f"{tmp_path / 'model.py'}:prints", python=python, out=tmp_path / "out")
    assert result.exports
    assert result.report.methods == ()


@pytest.mark.compiler
@pytest.mark.long
def test_settings_that_a_model_does_not_have_are_not_tried(python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(METHODS)
    source = f"{tmp_path / 'model.py'}:build"
    with pytest.raises(OptionError, match=r"The model has no setting attention: models of transformers have it\."):
        onnx_bisect.export(source, python=python, settings={"attention": "eager"})
    settings = {"opset": "99"}
    (culprit,) = onnx_bisect.export(source, python=python, settings=settings, tries=["all"]).report.culprits
    assert [it.setting for it in culprit.tried] == ["strict=true", "exporter=legacy", "opset=17", "opset=23"]


@pytest.mark.compiler
@pytest.mark.long
def test_a_python_without_transformers_is_one_sentence(python: Path) -> None:
    with pytest.raises(OptionError, match=r"hf:some/model needs transformers, which \S+ does not have"):
        onnx_bisect.export("hf:some/model", python=python)


def test_a_file_of_a_stand_in_alone_is_compared(tmp_path: Path) -> None:
    node = onnx.helper.make_node("gate", ["x"], ["y"], domain="host", module="gate")
    x, y = (onnx.helper.make_tensor_value_info(it, onnx.TensorProto.FLOAT, [2]) for it in "xy")
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("host", 1)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)
    onnx.save(model, tmp_path / "0.onnx")
    given, output = np.zeros(2, np.float32), np.ones(2, np.float32)
    arrays: dict[str, Any] = {"i0": given, "tgate:0:0": given, **dict.fromkeys(("o0", "n0", "sgate:0:0"), output)}
    np.savez(tmp_path / "0.onnx.0.npz", **arrays)
    found = check(tmp_path / "0.onnx", Exported(inputs=(("x", "i0"),), samples=("captured",)))
    assert (found.samples, found.differs) == (1, "")


METHODS = """
import torch
class Net(torch.nn.Module):
    @torch.no_grad()
    def unused(self, x): return x
    @torch.no_grad()
    def used(self, x): return x.tanh()
    def forward(self, x): return self.used(x)
def build(): return Net(), (torch.ones(1),)
"""


@pytest.mark.compiler
@pytest.mark.long
def test_methods_that_do_not_run_are_named_though_they_share_a_decorator(python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(METHODS)
    assert onnx_bisect.export(f"{tmp_path / 'model.py'}:build", python=python).report.methods == ("Net.unused",)


@pytest.mark.compiler
@pytest.mark.long
def test_an_opset_that_the_exporter_cannot_make_is_no_success(python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(METHODS)
    source = f"{tmp_path / 'model.py'}:build"
    (culprit,) = onnx_bisect.export(source, python=python, settings={"opset": "99"}, tries=["opset=18"]).report.culprits
    assert re.fullmatch(r"the exporter cannot make opset 99: its file has opset \d+", culprit.message)
    assert [(it.setting, it.exports) for it in culprit.tried] == [("opset=18", True)]


def test_a_range_of_opsets_is_tried_one_by_one() -> None:
    assert list(changed(settings_of({"opset": "18"}), ["opset=17..20", "strict=true"])) == [
        *("opset=17", "opset=19", "opset=20"),
        "strict=true",
    ]


@pytest.mark.parametrize(
    ("problem", "detail", "sentence"),
    [
        ("raises", "ValueError: no (m.py:3)", "build() of m.py raised ValueError: no (m.py:3)."),
        ("returns", "a ReLU", "build() of m.py returned a ReLU; it has to return (model, args), (model, args, kwargs)"),
        ("missing", "build", "m.py has no function build; name the one that builds the model: m.py:FUNCTION."),
        ("file", "it is no Python file", "m.py cannot be loaded: it is no Python file."),
    ],
)
def test_a_source_of_another_form_is_one_sentence(problem: str, detail: str, sentence: str) -> None:
    said = sentence_of({"problem": problem, "detail": detail}, "build", "m.py", Path("python"))
    assert said.startswith(sentence)


def test_a_python_without_torch_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def build(): ...")
    with pytest.raises(OptionError, match=r"has no torch \(No module named 'torch'\); --python names the Python"):
        onnx_bisect.export(f"{tmp_path / 'model.py'}:build", python=sys.executable)


@pytest.mark.parametrize(
    ("source", "settings", "sentence"),
    [
        ("model.py", {}, "names no function; say FILE.py:FUNCTION"),
        ("none.py:build", {}, "There is no file none.py"),
        ("none.py:build", {"exporter": "old"}, "The setting exporter is 'old'; it has to be dynamo or legacy."),
        ("none.py:build", {"opset": "x"}, "The setting opset is 'x'; it has to be a number."),
        ("none.py:build", {"size": "1"}, "'size' is no setting of an export; valid: "),
    ],
)
def test_mistakes_of_the_call_are_one_sentence(source: str, settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence.replace(".", r"\.")):
        onnx_bisect.export(source, settings=settings)


#: Modules that are used by other ways than their forward; the functions build models.
WAYS = """
import functools, numpy, torch
from torch import nn
class Gate(nn.Module):
    def forward(self, x):
        if x.mean() > 0:
            return x * 2
        return x - 1
class Base(nn.Module):
    def refine(self, x): return x + 1
    def project(self, x, *, scale):
        if x.mean() > 0:
            return {"out": x * scale}
        return {"out": x}
class Head(Base):
    def project(self, x, *, scale): return super().project(x, scale=scale)
    def forward(self, x): return x
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.lin = Head(), nn.Linear(4, 4)
    def again(self, x): return self.head.project(x, scale=x.sum())["out"]
    def encode(self, x): return self.lin(self.again(x))
class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.out, self.tied, self.lost = Encoder(), nn.Linear(4, 4), nn.Linear(4, 7), nn.Linear(4, 4)
    def forward(self, x): return nn.functional.linear(self.out(self.encoder.encode(x)), self.tied.weight)
class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
    @property
    def table(self): return torch.from_numpy(numpy.sin(self.weight.detach().numpy()))
    @property
    def width(self): return len(self.weight)
class Property(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = Table()
    def forward(self, x): return x + self.positions.table * self.positions.width
class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(4, 4), nn.Linear(4, 4)
    def clipped(self, x):
        if x.mean() > 0:
            return x * 2
        return x
    def encode(self, x): return self.clipped(self.down(x))
    def decode(self, x):
        for _ in range(int(x.abs().sum()) % 3 + 1):
            x = x.sin()
        return self.up(x)
    def forward(self, x): return self.up(self.down(x))
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.codec, self.mid = Codec(), nn.Linear(4, 4)
    def forward(self, x): return self.codec.decode(self.mid(self.codec.encode(x))) + self.codec(x)
class Layer(nn.Module):
    def __init__(self, gate, width):
        super().__init__()
        self.gate, self.lin = gate, nn.Linear(4, width)
    def forward(self, x): return self.lin(self.gate(x))
class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        gate = Gate()
        self.a, self.b = Layer(gate, 4), Layer(gate, 5)
    def forward(self, x): return self.b(self.a(x))
class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.codec, self.gate, self.lin = Codec(), Gate(), nn.Linear(4, 4)
        self.encode = self.codec.encode
    def forward(self, x): return self.gate.forward(self.lin(self.encode(x)))
class State(nn.Module):
    def update(self, x):
        if x.mean() > 0:
            self.last = x
        else:
            self.last = -x
    @torch.no_grad()
    def read(self, x): return self.last * x
class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = State()
    def forward(self, x):
        self.state.update(x)
        return self.state.read(x)
x = torch.linspace(-1, 1.5, 8).view(2, 4)
def build(name): return globals()[name](), (x,)
nested, prop, two, shared, kept, stateful = (
    functools.partial(build, it) for it in ("Nested", "Property", "Two", "Shared", "Kept", "Stateful")
)
"""


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
@pytest.mark.parametrize(
    ("function", "culprits"),
    [
        ("nested", [("encoder.head.project", "Head.project", FailureKind.BRANCH)]),
        ("prop", [("positions.table", "Table.table", FailureKind.NUMPY)]),
        (
            "two",
            [
                ("codec.decode", "Codec.decode", FailureKind.LOOP),
                ("codec.encode", "Codec.encode", FailureKind.BRANCH),
            ],
        ),
        ("shared", [("a.gate", "Gate", FailureKind.BRANCH)]),
        ("kept", [("codec.encode", "Codec.encode", FailureKind.BRANCH), ("gate", "Gate", FailureKind.BRANCH)]),
    ],
)
def test_a_method_that_others_call_is_a_question_of_its_own(
    python: Path, tmp_path: Path, exporter: str, function: str, culprits: list[tuple[str, str, FailureKind]]
) -> None:
    (tmp_path / "model.py").write_text(WAYS)
    source = f"{tmp_path / 'model.py'}:{function}"
    report = onnx_bisect.export(source, python=python, settings={"exporter": exporter}).report
    if exporter == "legacy":  # numpy's result is a constant in the module, too; one of two gates always goes one way
        culprits = [it for it in culprits if it[0] not in ("positions.table", "gate")]
    assert [(it.path, it.cls, it.kind) for it in report.culprits] == culprits
    if (exporter, function) != ("legacy", "shared"):  # that exporter takes no node of one module twice
        assert report.proven
        assert set(report.parts[0].without) == {it[0] for it in culprits}


@pytest.mark.compiler
@pytest.mark.long
def test_what_is_not_run_is_named_and_no_more(python: Path, tmp_path: Path) -> None:
    """A tied weight is used, whoever calls its module; methods of a base class count, too."""
    (tmp_path / "model.py").write_text(WAYS)
    nested = onnx_bisect.export(f"{tmp_path / 'model.py'}:nested", python=python).report
    assert nested.never == ("lost",)
    assert nested.methods == ("Base.refine", "Head.forward")
    stateful = onnx_bisect.export(f"{tmp_path / 'model.py'}:stateful", python=python).report
    assert stateful.notes[-1].endswith("return other things than tensors: state.update.")
    assert (stateful.never, stateful.methods) == ((), ())


#: Modules that torch itself made of others, and what such modules compute.
MADE_BY_TORCH = """
import torch
from torch import nn
def layer(): return nn.Sequential(nn.Linear(8, 8), nn.ReLU())
class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 8, batch_first=True)
    def forward(self, x):
        lengths = torch.full((2,), 5)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]
class Rounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = layer()
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x).float()
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scripted = torch.jit.script(layer())
        self.traced = torch.jit.trace(layer(), torch.zeros(1, 8))
        self.compiled = torch.compile(layer())
        self.quantized = torch.ao.quantization.quantize_dynamic(layer(), {nn.Linear}, dtype=torch.qint8)
        self.padded, self.rounded = Padded(), Rounded()
    def forward(self, x):
        return self.rounded(self.padded(self.quantized(self.compiled(self.traced(self.scripted(x))))))
def build(): return Model(), (torch.randn(2, 5, 8),)
class Gate(nn.Module):
    def forward(self, x): return x if x.float().mean() > 0 else -x
def narrow(dtype):
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), Gate(), layer(), nn.LayerNorm(8))
    return model.eval().to(dtype), (torch.randn(2, 5, 8, dtype=dtype),)
def bfloat16(): return narrow(torch.bfloat16)
def float16(): return narrow(torch.float16)
"""


@pytest.mark.compiler
@pytest.mark.long
def test_modules_that_torch_made_of_others_are_told_apart(python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MADE_BY_TORCH)
    report = onnx_bisect.export(f"{tmp_path / 'model.py'}:build", python=python).report
    assert {it.path: it.kind for it in report.culprits} == {
        "scripted": FailureKind.SCRIPTED,
        "traced": FailureKind.SCRIPTED,
        "quantized.0": FailureKind.QUANTIZED,
        "padded": FailureKind.PACKED,
    }
    assert report.proven
    assert all(it.place is None or it.place.file == str(tmp_path / "model.py") for it in report.culprits)


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_model_of_a_narrow_type_is_compared_within_its_rounding(python: Path, tmp_path: Path, dtype: str) -> None:
    (tmp_path / "model.py").write_text(MADE_BY_TORCH)
    report = onnx_bisect.export(f"{tmp_path / 'model.py'}:{dtype}", python=python).report
    assert [(it.path, it.kind) for it in report.culprits] == [("1", FailureKind.BRANCH)]
    assert report.proven
    assert report.parts[0].samples


#: Dicts where exporters take them for keyword arguments, and caches, which modules change.
TRAPS = """
import functools, torch
from torch import nn
from torch.utils import _pytree as pytree
class Inner(nn.Module):
    def forward(self, x, extra): return x * extra.pop("a") - extra["z"]
class Dicts(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.inner = nn.Linear(4, 4), Inner()
    def forward(self, x, masks): return self.inner(self.lin(x), {"z": masks["b"] * 2, "a": masks.pop("a")})
class Named(nn.Module):
    def forward(self, x, masks): return self.inner(x, extra=masks)
    def __init__(self):
        super().__init__()
        self.inner = Inner()
class Empty(nn.Module):
    def forward(self, x, extra): return x + extra["y"] if "y" in extra else x * 2
class Cache:
    def __init__(self, kept=()): self.kept = list(kept)
class Registered(Cache): pass
pytree.register_pytree_node(Registered, lambda it: (it.kept, None), lambda kept, context: Registered(kept))
class Gate(nn.Module):
    def forward(self, x):
        if x.mean() > 0:
            return x * 2
        return x - 1
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.gate = nn.Linear(4, 4), Gate()
    def forward(self, x, cache):
        cache.kept.append(self.gate(self.lin(x)))
        return sum(cache.kept)
class Decoder(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.layers = kind, nn.ModuleList([Layer(), Layer()])
    def forward(self, x, past):
        cache = self.kind(past)
        for layer in self.layers:
            x = layer(x, cache)
        return x, cache.kept
class Outside(Decoder):
    def forward(self, x, past):
        for layer in self.layers:
            x = layer(x, past)
        return x
def tensors(): return {"b": torch.linspace(-1, 1, 8).view(2, 4), "a": torch.linspace(0, 2, 8).view(2, 4)}
x = torch.linspace(-1, 1.5, 8).view(2, 4)
def dicts(): return Dicts(), (x, tensors())
def named(): return Named(), (x,), {"masks": {"z": x, "a": x + 1}}
def empty(): return Empty(), (x, {})
def cache(): return Decoder(Cache), (x, [x, x * 2])
def outside(): return Outside(Cache), (x, Cache([x]))
def registered(): return Outside(Registered), (x, Registered([x]))
"""


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
@pytest.mark.parametrize("function", ["dicts", "named", "empty"])
def test_a_last_dict_is_an_argument(python: Path, tmp_path: Path, exporter: str, function: str) -> None:
    (tmp_path / "model.py").write_text(TRAPS)
    source = f"{tmp_path / 'model.py'}:{function}"
    result = onnx_bisect.export(
        source, python=python, settings={"exporter": exporter}, out=tmp_path / "out", components=True
    )
    assert result.exports
    inputs = {
        it.path: len(onnx.load(tmp_path / "out" / it.file).graph.input) for it in result.report.parts if it.samples
    }
    assert (
        inputs
        == {
            "dicts": {"": 3, "lin": 1, "inner": 3},
            "named": {"": 3, "inner": 3},
            "empty": {"": 1},
        }[function]
    )


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
@pytest.mark.parametrize("function", ["cache", "outside", "registered"])
def test_what_a_cache_goes_through_is_asked_nonetheless(
    python: Path, tmp_path: Path, exporter: str, function: str
) -> None:
    """The modules between which a cache goes are asked as a part of the model, what is in them alone."""
    (tmp_path / "model.py").write_text(TRAPS)
    source = f"{tmp_path / 'model.py'}:{function}"
    report = onnx_bisect.export(source, python=python, settings={"exporter": exporter}).report
    assert {it.path: it.kind for it in report.culprits} == {
        **({} if function == "cache" else {"": FailureKind.CONTAINER}),
        "layers.0.gate": FailureKind.BRANCH,
    }
    assert report.notes[-1].endswith("return other things than tensors: layers.0, layers.1.")
    assert report.proven == (function == "cache")
    assert all(it.samples for it in report.parts)


LEFT = '''
import torch
from torch import nn
class Decoder(nn.Module):
    """Padded positions see nothing, and the sum over what they see depends on what is done about it."""
    def generate(self): pass
    def forward(self, x, mask):
        seen = torch.ones(5, 5).tril().bool() & mask[:, None].bool()
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen)
class Blind(Decoder):
    def forward(self, x, mask):
        if mask[0, 0] == 0:
            return super().forward(x, mask) * 2
        return super().forward(x, mask)
x, mask = torch.linspace(-1, 2, 40).view(2, 5, 4), torch.ones(2, 5, dtype=torch.long)
class Masked(nn.Module):
    def forward(self, x, keys, seen):
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen & keys[:, None])
class Bare(nn.Module):
    def table(self): return torch.arange(4.0).sin()
    def forward(self, x): return x
class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.bare = Bare()
    def forward(self, x): return x + self.bare.table()
def masked(): return Masked(), (x, torch.ones(2, 5, dtype=torch.bool), torch.ones(2, 5, 5).tril().bool())
def tables(): return Tables(), (x,)
def right(): return Decoder(), (x, mask)
def wrong(): return Blind(), (x, mask)
'''


@pytest.mark.compiler
@pytest.mark.long
def test_a_mask_padded_on_the_left_is_tried_where_text_is_generated(python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(LEFT)
    source, legacy = tmp_path / "model.py", {"exporter": "legacy"}
    right = onnx_bisect.export(f"{source}:right", python=python, settings=legacy, out=tmp_path / "out")
    assert right.exports
    assert right.report.parts[0].samples == 5
    assert len([*(tmp_path / "out" / "samples" / "model").iterdir()]) == 4
    (culprit,) = onnx_bisect.export(f"{source}:wrong", python=python, settings=legacy).report.culprits
    assert re.search("output 0 on left-padded inputs: differs by", culprit.message)


@pytest.mark.compiler
@pytest.mark.long
def test_masks_are_tried_that_their_makers_could_have_made(python: Path, tmp_path: Path) -> None:
    """What a row without a token computes is undefined, and no fault of the export."""
    (tmp_path / "model.py").write_text(LEFT)
    result = onnx_bisect.export(f"{tmp_path / 'model.py'}:masked", python=python, settings={"exporter": "legacy"})
    assert (result.exports, result.report.parts[0].samples) == (True, 4)


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_a_method_without_arguments_is_a_part(python: Path, tmp_path: Path, exporter: str) -> None:
    (tmp_path / "model.py").write_text(LEFT)
    source = f"{tmp_path / 'model.py'}:tables"
    report = onnx_bisect.export(
        source, python=python, settings={"exporter": exporter}, components=True, backend="onnxruntime", out=tmp_path
    ).report
    assert [(it.path, it.unchecked) for it in report.parts] == [("", ""), ("bare.table", "")]
    assert "compiles for onnxruntime" in report.parts[0].compiles
    # only the newer exporter makes a file without nodes of it
    compiled = ["model"] if exporter == "dynamo" else ["model", "bare-table"]
    assert [it.label for it in parts_of([tmp_path / "parts.toml"], {}, {}, None)] == compiled
