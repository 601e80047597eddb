"""Backends are found, and one that is broken stops nobody."""

import sys
from pathlib import Path

import pytest

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_backends import registry
from onnxbisect_backends.registry import BrokenBackend, LoadedBackend, available, make

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with one good plugin and three broken ones."""
    info = tmp_path / "vendor_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[onnx_bisect.backends]\n"
        "good = vendor_plugin_good:Good\nraises = vendor_plugin_raises:X\n"
        "missing = vendor_plugin_none:X\nnoclass = vendor_plugin_good:NotThere\nnumber = vendor_plugin_good:NUMBER\n"
    )
    (tmp_path / "vendor_plugin_good.py").write_text(
        "class Good:\n    '''A vendor compiler.\n\n    More.'''\n"
        "    def __init__(self, options): self.options = options\nNUMBER = 1\n"
    )
    (tmp_path / "vendor_plugin_raises.py").write_text("raise RuntimeError('licence file not found')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ["good", "raises"]:
        monkeypatch.delitem(sys.modules, f"vendor_plugin_{name}", raising=False)


def test_our_own_backends_load() -> None:
    found = available()

    assert isinstance(found["onnxruntime"], LoadedBackend)
    assert isinstance(found["whitelist"], LoadedBackend)
    assert found["onnxruntime"].summary
    assert found["onnxruntime"].origin == "onnx-bisect"


@pytest.mark.usefixtures("plugins")
def test_plugins_load_and_broken_ones_are_shown() -> None:
    found = available()

    good = found["good"]
    assert isinstance(good, LoadedBackend)
    assert (good.summary, good.origin) == ("A vendor compiler.", "vendor-plugin")
    reasons = {name: it.reason for name, it in found.items() if isinstance(it, BrokenBackend)}
    assert reasons["raises"] == "RuntimeError: licence file not found"
    assert "vendor_plugin_none" in reasons["missing"]
    assert "NotThere" in reasons["noclass"]
    assert reasons["number"] == "vendor_plugin_good:NUMBER is not a backend factory."
    assert isinstance(found["onnxruntime"], LoadedBackend)


@pytest.mark.usefixtures("plugins")
def test_make_gives_options_to_the_factory_and_explains_a_broken_one() -> None:
    assert make("good", {"a": "1"}).options == {"a": "1"}
    with pytest.raises(BackendUnusableError, match="'raises' cannot be loaded: RuntimeError: licence file not found"):
        make("raises", {})


def test_make_reads_toml_files() -> None:
    assert make(str(EXAMPLES / "mychip.toml"), {"chip": "mc2"}).options["chip"] == "mc2"


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of TOML files as this package carries one: a good one, a wrong one, and one that a plugin replaces."""
    folder = tmp_path / "compilers"
    folder.mkdir()
    (folder / "trt.toml").write_text("name = 'trt'\nsummary = 'Builds an engine.'\ncommand = ['trt', '{model}']\n")
    (folder / "wrong.toml").write_text("name = 'wrong'\ncommand = ['trt']\n")
    (folder / "good.toml").write_text("name = 'good'\ncommand = ['good', '{model}']\n")
    monkeypatch.setattr("onnxbisect_backends.registry._COMPILERS", folder)


@pytest.mark.usefixtures("plugins", "compilers")
def test_compilers_described_in_this_package_have_names() -> None:
    found = available()

    trt, wrong, good = found["trt"], found["wrong"], found["good"]
    assert isinstance(trt, LoadedBackend)
    assert (trt.summary, trt.origin) == ("Builds an engine.", "onnx-bisect")
    assert trt.factory({}).name == make("trt", {}).name == "trt"
    assert isinstance(wrong, BrokenBackend)
    assert "does not say where the model goes" in wrong.reason
    assert good.origin == "vendor-plugin"  # a plugin knows more than a file of ours
    assert [*found] == sorted(found)
    with pytest.raises(OptionError, match="did you mean 'trt'"):
        make("trtt", {})


def test_every_file_is_named_after_its_backend() -> None:
    folder = Path(registry.__file__).parent / "commands" / "compilers"

    names = [path.stem for path in folder.glob("*.toml")]

    assert len(names) > 10
    assert [name for name in names if make(name, {}).name != name] == []


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("whitlist", {}, "'whitlist' is no backend; did you mean 'whitelist'?"),
        ("zzz", {}, "'zzz' is no backend; valid: "),
        (
            "onnxruntime",
            {"optimisation": "enable_all"},
            "did you mean 'optimization'? Valid: optimization, tolerance, verify.",
        ),
        ("onnxruntime", {"optimization": "max"}, "cannot be 'max': input should be 'disable_all'"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(name: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        make(name, options)

    assert sentence in str(caught.value)
