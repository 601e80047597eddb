"""deploy/kubernetes, against the schemas of Kubernetes and what the service itself takes and tells."""

import copy
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from onnxbisect_api.health import Metrics
from onnxbisect_db.database import Database
from onnxbisect_service.settings import Settings

FOLDER = Path(__file__).parents[1] / "deploy/kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
#: A file to copy for a compiler of one's own, with its image.
OWN = "worker-mychip"
OBJECTS: list[dict[str, Any]] = [
    found
    for name in (*KUSTOMIZATION["resources"], f"{OWN}.yaml")
    for found in yaml.safe_load_all((FOLDER / name).read_text())
]
PODS = {it["metadata"]["name"]: it["spec"]["template"]["spec"] for it in OBJECTS if "template" in it.get("spec", {})}
NAMES = [f"{it['kind']} {it['metadata']['name']}" for it in OBJECTS]


def _containers() -> Iterator[dict[str, Any]]:
    for pod in PODS.values():
        yield from pod["containers"]


@pytest.mark.parametrize("found", OBJECTS, ids=NAMES)
def test_kubernetes_takes_it(found: dict[str, Any]) -> None:
    kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)


def test_a_misspelled_field_would_be_seen() -> None:
    wrong = copy.deepcopy(OBJECTS[NAMES.index("Deployment api")])
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_every_variable_is_a_setting_and_every_image_is_named() -> None:
    literals = [text.partition("=")[0] for it in KUSTOMIZATION["configMapGenerator"] for text in it["literals"]]
    variables = {*literals, *(entry["name"] for container in _containers() for entry in container.get("env", []))}
    settings = {f"ONNXBISECT_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in variables if not name.startswith("AWS_")} <= settings
    images = {it["image"] for it in _containers()} - {f"onnx-bisect-{OWN}"}
    assert images == {it["name"] for it in KUSTOMIZATION["images"]}


def test_api_and_workers_read_a_compiler_of_ones_own_from_the_same_folder() -> None:
    for name in ("api", "worker-control", OWN):
        (container,) = PODS[name]["containers"]
        folder = next(it["value"] for it in container["env"] if it["name"] == "ONNXBISECT_BACKENDS")
        volume = next(it["name"] for it in container["volumeMounts"] if it["mountPath"] == folder)
        source = next(it["configMap"] for it in PODS[name]["volumes"] if it["name"] == volume)
        assert source["name"] == "compilers"


@pytest.mark.parametrize("name", PODS)
def test_10_a_pod_has_no_rights_and_bounds_of_memory(name: str) -> None:
    pod = PODS[name]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert (rights["allowPrivilegeEscalation"], rights["capabilities"]) == (False, {"drop": ["ALL"]})
        assert "memory" in container["resources"]["limits"]


def test_workers_scale_by_a_metric_that_there_is(tmp_path: Path) -> None:
    scaled = yaml.safe_load((FOLDER / "keda.yaml").read_text())["spec"]
    name = scaled["scaleTargetRef"]["name"]
    slots = next(it["value"] for it in PODS[name]["containers"][0]["env"] if it["name"] == "ONNXBISECT_SLOTS")
    trigger = scaled["triggers"][0]["metadata"]
    (metric,) = re.findall(r"onnxbisect_\w+", trigger["query"])
    with closing(Database(f"sqlite:///{tmp_path / 'db.sqlite'}")) as database:
        database.upgrade()
        told = {family.name for family in Metrics(database).registry.collect()}
    assert metric in told
    assert trigger["threshold"] == slots
