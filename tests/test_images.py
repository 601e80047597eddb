"""What the Dockerfiles and the compose file say, by their linter and schema; the workflow `test.yml` builds them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml

from onnxbisect_service.settings import Settings, load_settings

ROOT = Path(__file__).parents[1]
DOCKERFILES = ("api/Dockerfile", "worker/Dockerfile")
DATABASES = {"redis", "postgres"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


def _interpolated(text: str) -> str:
    """As compose does it, where nothing is set but what must be."""
    with_defaults = re.sub(r"\$\{\w+(?::?-([^}]*)|:\?[^}]*)?\}", lambda found: found[1] or "", text)
    return with_defaults.replace("$$", "$")


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_a_dockerfile_is_clean(dockerfile: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([hadolint, ROOT / dockerfile], capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_what_an_image_copies_is_sent_to_the_build(dockerfile: str) -> None:
    """Everything is ignored that `.dockerignore` does not name."""
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / dockerfile).read_text(), flags=re.MULTILINE)
    copied = {source.partition("/")[0] for line in copies for source in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().split()

    assert ignored[0] == "*"
    assert len(copied) > 5
    assert copied - {line.removeprefix("!") for line in ignored if line[0] == "!"} == set()


def test_the_compose_file_is_one(compose: dict[str, Any]) -> None:
    merged = json.loads(_interpolated(json.dumps({key: value for key, value in compose.items() if key[:2] != "x-"})))
    assert compose_spec.PyCompose.from_json(json.dumps(merged)).service_names() == list(compose["services"])
    merged["services"]["api"]["imag"] = "x"
    with pytest.raises(ValueError, match="imag"):
        compose_spec.PyCompose.from_json(json.dumps(merged))


def test_what_the_compose_file_sets_is_understood(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if name.startswith("ONNXBISECT_"):
                assert name.removeprefix("ONNXBISECT_").lower() in Settings.model_fields
                monkeypatch.setenv(name, _interpolated(value))
    assert load_settings().trusted_proxies == ()


def test_a_proxy_can_be_named_to_the_api(compose: dict[str, Any]) -> None:
    """Otherwise all clients behind it share one address, with its 128 connections."""
    environment = compose["services"]["api"]["environment"]
    for name in ("ONNXBISECT_PUBLIC_URL", "ONNXBISECT_TRUSTED_PROXIES"):
        assert environment[name] == f"${{{name}:-}}"


def test_databases_publish_no_port_and_compilers_have_no_way_out(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["api"]
    assert compose["networks"]["inside"]["internal"] is True
    compilers = {name for name in services if name.startswith("worker-")} - {"worker-control"}
    for name in compilers | DATABASES:
        assert services[name]["networks"] == ["inside"], name


def test_every_service_is_watched_and_bounded(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["deploy"]["resources"]["limits"]["memory"], name
        assert "healthcheck" in service or name == "migrate", name
        if name not in DATABASES:
            assert service["cap_drop"] == ["ALL"], name
            assert service["read_only"] is True, name
