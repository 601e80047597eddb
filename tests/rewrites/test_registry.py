"""Rules of other packages, found by entry point."""

import sys
from pathlib import Path

import pytest

from onnxbisect.rewrites import installed

PLUGIN = '''
from onnxbisect.rewrites import Exactness, Site, rule

@rule("Abs -> Abs", Exactness.EXACT, rank=99, source="https://example.com")
def {id}(at: Site) -> str:
    """The same again."""
    return at.op("Abs", at.input(0))
'''


def install(folder: Path, name: str, code: str, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[onnx_bisect.rules]\n{name} = {point}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_package_adds_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "own_rules", PLUGIN.format(id="own_abs"), "own_rules", monkeypatch)
    found = installed()
    assert found.rules[-1].id == "own-abs"
    assert found.rules[-1].summary == "The same again."
    assert not found.broken


@pytest.mark.parametrize(
    ("code", "point", "reason"),
    [
        ("raise RuntimeError('no licence')", "bad_rules", "RuntimeError: no licence"),
        ("", "bad_rules", "TypeError: bad_rules is no module with rules"),
        ("RULES = ['abs']", "bad_rules:RULES", "TypeError: bad_rules:RULES is no module with rules"),
        (PLUGIN.format(id="abs_relu"), "bad_rules", "ValueError: the rule 'abs-relu' exists already"),
    ],
    ids=["does not load", "no rule", "no module", "a name that is taken"],
)
def test_a_broken_package_is_listed_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, point: str, reason: str
) -> None:
    install(tmp_path, "bad_rules", code, point, monkeypatch)
    found = installed()
    (broken,) = found.broken
    assert (broken.name, broken.origin, broken.reason) == ("bad_rules", "bad_rules", reason)
    assert "abs-relu" in {rule.id for rule in found.rules}
