"""The GitHub action and the GitLab component: what they hand to `onnx-bisect submit`, and what becomes of its status.

A program that writes down its arguments stands in for `onnx-bisect` here; what `submit` does with them has its tests.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = ROOT / ".github/actions/onnx-bisect/action.yml"
COMPONENT = ROOT / "templates/onnx-bisect.yml"
RECORDER = """#!{python}
import json, os, pathlib, sys
pathlib.Path("called.json").write_text(json.dumps(sys.argv[1:]))
pathlib.Path("onnx-bisect").mkdir(exist_ok=True)
pathlib.Path("onnx-bisect/report.md").write_text("# a report")
if "--fix" in sys.argv:
    pathlib.Path("onnx-bisect/repair").mkdir()
    pathlib.Path("onnx-bisect/repair/repair.md").write_text("# a repair")
sys.exit(int(os.environ["STATUS"]))
"""
HOSTILE = "models/$(touch owned) `touch owned`; touch owned.onnx"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program = tmp_path / "onnx-bisect-bin" / "onnx-bisect" / "bin" / "onnx-bisect"
    program.parent.mkdir(parents=True)
    program.write_text(RECORDER.format(python=sys.executable))
    program.chmod(0o755)
    return tmp_path


def run(script: str, folder: Path, variables: Mapping[str, str]) -> int:
    bin_folder = folder / "onnx-bisect-bin"
    environment = {
        "PATH": f"{bin_folder / 'onnx-bisect' / 'bin'}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(bin_folder),
        **variables,
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def called(folder: Path) -> list[str]:
    arguments: list[str] = json.loads((folder / "called.json").read_text())
    return arguments


def action_script() -> str:
    action = yaml.safe_load(ACTION.read_text())
    [script] = [step["run"] for step in action["runs"]["steps"] if step["name"] == "Submit"]
    assert isinstance(script, str)
    return script


def action_variables(**given: str) -> dict[str, str]:
    github = {"GITHUB_REPOSITORY": "a/b", "GITHUB_REF_NAME": "main", "GITHUB_SHA": "0123", "PIPELINE": "https://ci/1"}
    inputs = {
        "MODEL": "m.onnx",
        "BACKENDS": "qnn",
        "OPTIONS": "",
        "FIX": "",
        "ARGUMENTS": "",
        "OUT": "onnx-bisect",
        "FAIL": "true",
    }
    files = {"GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary"}
    return {**github, **inputs, **files, "STATUS": "0", **given}


def component(inputs: Mapping[str, str]) -> dict[str, Any]:
    _, text = COMPONENT.read_text().split("\n---\n")
    for name, value in inputs.items():
        text = text.replace(f"$[[ inputs.{name} ]]", value)
    job: dict[str, Any] = yaml.safe_load(text)["onnx-bisect"]
    return job


def test_the_action_and_the_workflow_are_clean() -> None:
    zizmor = Path(sys.executable).with_name("zizmor")
    linted = subprocess.run([zizmor, "--offline", ROOT / ".github"], capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout


def blocks(page: str, language: str = "yaml") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL)


def check_schema(schema: str, *files: Path) -> None:
    checker: list[str | Path] = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", schema, *files]
    checked = subprocess.run(checker, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_recipes_for_github_are_valid_and_clean(tmp_path: Path) -> None:
    workflow, _ = blocks("ci.md")
    recipe = tmp_path / ".github" / "workflows" / "models.yml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(workflow)
    steps = tmp_path / ".github" / "workflows" / "server.yml"
    job = {"runs-on": "ubuntu-24.04", "steps": yaml.safe_load(blocks("deployment.md")[-2])}
    steps.write_text(yaml.safe_dump({"on": "push", "permissions": {}, "jobs": {"with-server": job}}))
    check_schema("vendor.github-workflows", recipe, steps, *(ROOT / ".github" / "workflows").glob("*.yml"))
    check_schema("vendor.github-actions", ACTION)
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    check_schema("vendor.github-issue-forms", *(it for it in forms if it.name != "config.yml"))
    policies = tmp_path / "zizmor.yml"  # a recipe names versions of GitHub's own actions; readers pin their commits
    own = {"actions/*": "ref-pin", "github/*": "ref-pin"}
    policies.write_text(yaml.safe_dump({"rules": {"unpinned-uses": {"config": {"policies": own}}}}))
    program = Path(sys.executable).with_name("zizmor")
    zizmor: list[str | Path] = [program, "--offline", "--config", policies, recipe]
    linted = subprocess.run(zizmor, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout


def test_the_recipes_for_gitlab_are_valid(tmp_path: Path) -> None:
    _, recipe = blocks("ci.md")
    files = {"recipe.yml": recipe, "server.yml": blocks("deployment.md")[-1]}
    job = component({"stage": "test", "image": "i", "arguments": "", "allow_culprits": "false"})
    files["component.yml"] = yaml.safe_dump({"onnx-bisect": job})
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    check_schema("vendor.gitlab-ci", *(tmp_path / name for name in files))


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_recipe_annotates_each_culprit_in_one_line(tmp_path: Path) -> None:
    steps = yaml.safe_load(blocks("ci.md")[0])["jobs"]["decoder"]["steps"]
    [script] = [step["run"] for step in steps if step.get("name") == "Annotate"]
    place = {"artifactLocation": {"uri": "models/a.onnx"}, "region": {"startLine": 3}}
    result = {"locations": [{"physicalLocation": place}], "message": {"text": "no Sin, 50%"}}
    (tmp_path / "onnx-bisect").mkdir()
    (tmp_path / "onnx-bisect" / "report.sarif").write_text(json.dumps({"runs": [{"results": [result, result]}]}))
    (tmp_path / "onnx-bisect" / "report.md").write_text("# a report")
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": "summary"}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "::error file=models/a.onnx,line=3::no Sin, 50%25\n" * 2
    assert (tmp_path / "summary").read_text() == "# a report"


def test_the_action_passes_everything_on_as_it_is(folder: Path) -> None:
    several = action_variables(
        MODEL=HOSTILE, BACKENDS="qnn\nax=pulsar2\n", OPTIONS="qnn.soc_model=88\n", ARGUMENTS="--recheck"
    )
    assert run(action_script(), folder, several) == 0
    arguments = called(folder)
    assert arguments[0] == "submit"
    assert arguments[-2:] == ["--", HOSTILE]
    pairs = list(pairwise(arguments))
    assert [value for name, value in pairs if name == "--backend"] == ["qnn", "ax=pulsar2"]
    assert ("--option", "qnn.soc_model=88") in pairs
    assert ("--label", "commit=0123") in pairs
    assert "--recheck" in arguments
    assert "--fix" not in arguments
    assert not (folder / "owned").exists()


@pytest.mark.parametrize(("status", "fail", "ends"), [(1, "true", 1), (1, "false", 0), (3, "false", 3), (0, "true", 0)])
def test_the_actions_status_and_summary(folder: Path, status: int, fail: str, ends: int) -> None:
    assert run(action_script(), folder, action_variables(STATUS=str(status), FAIL=fail)) == ends
    assert f"exit-status={status}" in (folder / "output").read_text()
    assert (folder / "summary").read_text() == "# a report"


def test_the_action_asks_for_a_repair_and_shows_it_first(folder: Path) -> None:
    assert run(action_script(), folder, action_variables(FIX=HOSTILE)) == 0
    assert {("--fix", "--allow"), ("--allow", HOSTILE)} <= set(pairwise(called(folder)))
    assert (folder / "summary").read_text() == "# a repair\n# a report"
    assert not (folder / "owned").exists()


def test_the_component_asks_for_a_repair(folder: Path) -> None:
    job = component({"arguments": "", "allow_culprits": "false"})
    given = {
        "MODEL": "m.onnx",
        "BACKEND": "qnn",
        "OPTION": "",
        "FIX": "exact",
        "ALLOW_CULPRITS": "false",
        "STATUS": "0",
    }
    gitlab = {"CI_PROJECT_PATH": "a/b", "CI_COMMIT_REF_NAME": "main", "CI_COMMIT_SHA": "0123", "CI_PIPELINE_URL": "u"}
    assert run("\n".join(job["script"]), folder, {**gitlab, **given}) == 0
    assert ("--allow", "exact") in pairwise(called(folder))


@pytest.mark.parametrize(
    ("status", "allowed", "ends"), [(1, "true", 99), (1, "false", 1), (3, "true", 3), (0, "false", 0)]
)
def test_the_components_status(folder: Path, status: int, allowed: str, ends: int) -> None:
    job = component({"arguments": "--recheck", "allow_culprits": allowed})
    gitlab = {"CI_PROJECT_PATH": "a/b", "CI_COMMIT_REF_NAME": "main", "CI_COMMIT_SHA": "0123", "CI_PIPELINE_URL": "u"}
    given = {"MODEL": HOSTILE, "BACKEND": "qnn", "OPTION": "soc_model=88", "ALLOW_CULPRITS": allowed}
    assert run("\n".join(job["script"]), folder, {**gitlab, **given, "STATUS": str(status)}) == ends
    assert job["allow_failure"]["exit_codes"] == [99]
    assert called(folder)[-3:] == ["--recheck", "--", HOSTILE]
    assert not (folder / "owned").exists()
