"""The owner's folder `bisect/` must never shadow Python's own `bisect` module, which `random` and many others need.

A folder without `__init__.py` loses to any real module found later on `sys.path`; one stray file would end that for
every tool that puts the repository root there.
"""

import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
COMPONENTS = ["api", "backends", "bisect", "cli", "library", "migrations", "service", "worker"]


@pytest.mark.parametrize("folder", COMPONENTS)
def test_a_component_folder_holds_packages_and_no_module_of_its_own(folder: str) -> None:
    assert not list((ROOT / folder).glob("*.py"))
    assert list((ROOT / folder).glob("onnx*bisect*/__init__.py"))


def test_no_other_folder_of_the_root_is_a_package() -> None:
    assert not list(ROOT.glob("*/__init__.py"))
    assert not list(ROOT.glob("*.py"))


@pytest.mark.parametrize("start", [["-c"], ["-P", "-c"]], ids=["root on the path", "safe path"])
def test_the_standard_library_wins_at_the_root(start: list[str]) -> None:
    code = "import random, statistics, bisect; assert bisect.bisect_left([1, 2], 2) == 1; import onnxbisect"
    subprocess.run([sys.executable, *start, code], cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, check=True)


@pytest.mark.parametrize("command", [["-m", "pytest"], ["-c", "import pytest; pytest.main(['--version'])"]])
def test_pytest_starts_at_the_root(command: list[str]) -> None:
    arguments = ["--collect-only", "-q", "tests/test_layout.py"] if command[0] == "-m" else []
    done = subprocess.run([sys.executable, *command, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_layout_is_what_the_wheel_packs() -> None:
    """A package that hatchling does not list would work here, where the install is editable, and nowhere else."""
    import tomllib

    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    present = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("*/onnx*bisect*/__init__.py")}
    assert set(packed["packages"]) == present


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    """Without those for type checkers alone."""
    packages = [path.parent.name for path in ROOT.glob("*/onnx*bisect*/__init__.py")]
    cache = str(ROOT / ".import_linter_cache")
    return grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=cache)


def test_no_modules_import_each_other_in_a_circle(imports: grimp.ImportGraph) -> None:
    """Contracts of import-linter are about packages."""
    found = {module: imports.find_modules_directly_imported_by(module) for module in imports.modules}

    assert len(found) > 400
    TopologicalSorter(found).prepare()  # CycleError names the modules


@pytest.mark.parametrize("module", ["onnxbisect_db.tables", "onnxbisect_service.settings"])
def test_what_reads_models_loads_no_database_code_and_no_settings(imports: grimp.ImportGraph, module: str) -> None:
    """They take as long to import as all that it needs."""
    server = "onnxbisect_worker.model_processes.server"
    assert imports.find_shortest_chain(importer=server, imported=module) is None


def test_no_two_public_classes_have_the_same_name() -> None:
    """A name means one thing from the planner to the page (docs/adr/0018-one-vocabulary.md)."""
    defined: dict[str, list[str]] = {}
    for component in COMPONENTS:
        for path in (ROOT / component).rglob("*.py"):
            for name in re.findall(r"^class ([A-Z]\w*)", path.read_text("utf-8"), re.MULTILINE):
                defined.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}
