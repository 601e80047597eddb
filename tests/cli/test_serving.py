"""What `serve` listens on, and what it prints."""

import os
import pty
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxbisect_cli.serving import listening_socket
from onnxbisect_service.settings import Settings
from support.cli.command_line import PROGRAM


def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_headers() -> None:
    with (
        listening_socket(Settings(host="127.0.0.1", port=0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def printed(data: Path, stdout: int, read: Callable[[], str]) -> str:
    """What `serve` prints until it has said where its token is."""
    process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--data", str(data)], stdout=stdout)
    try:
        said = ""
        while f"{data / 'token'}" not in said or not said.endswith("\n"):
            said += read()
        return said
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.long
@pytest.mark.parametrize("terminal", [False, True])
def test_the_token_is_printed_to_a_terminal_only(tmp_path: Path, terminal: bool) -> None:
    """systemd, docker and cron keep what a service prints."""
    mine, its = pty.openpty() if terminal else os.pipe()
    said = printed(tmp_path, its, lambda: os.read(mine, 4096).decode())
    os.close(its)
    os.close(mine)
    assert ((tmp_path / "token").read_text().strip() in said) is terminal
    assert "http://127.0.0.1:" in said
