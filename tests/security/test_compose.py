"""Lines 10 and 16 of the security checklist for what docker-compose.yml starts; the rest is in `test_images.py`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

COMPOSE = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())
COMPILERS = {name: it for name, it in COMPOSE["services"].items() if name.startswith("worker-")}


@pytest.mark.parametrize("name", COMPILERS)
def test_10_a_worker_has_no_rights_and_cannot_get_any(name: str) -> None:
    service: dict[str, Any] = COMPILERS[name]
    assert service["cap_drop"] == ["ALL"]
    assert not service.get("privileged")
    assert "no-new-privileges:true" in service["security_opt"]


@pytest.mark.parametrize("name", sorted(COMPILERS.keys() - {"worker-pulsar2"}))
def test_10_a_worker_is_the_user_of_its_image(name: str) -> None:
    """That user has no rights (test_images.py)."""
    assert COMPILERS[name].keys().isdisjoint(("user", "cap_add"))


def test_10_pulsar2_is_root_for_its_licence_and_may_write_files_of_others_no_more() -> None:
    assert COMPILERS["worker-pulsar2"]["user"] == "0:0"
    assert COMPILERS["worker-pulsar2"]["cap_add"] == ["DAC_OVERRIDE"]


@pytest.mark.parametrize("name", COMPILERS)
def test_10_a_worker_has_bounds_of_processes_memory_and_cpus(name: str) -> None:
    assert {"cpus", "memory", "pids"} <= COMPILERS[name]["deploy"]["resources"]["limits"].keys()


def test_10_nobody_has_the_socket_of_docker() -> None:
    assert "docker.sock" not in json.dumps(COMPOSE)
    assert "network_mode" not in json.dumps(COMPOSE)


def test_16_the_queue_has_a_password() -> None:
    assert "--requirepass" in COMPOSE["services"]["redis"]["command"]
    assert "ports" not in COMPOSE["services"]["redis"]
