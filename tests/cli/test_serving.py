"""What `serve` listens on."""

import socket

from onnxbisect_cli.serving import listening_socket
from onnxbisect_worker.settings import Settings


def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_headers() -> None:
    with (
        listening_socket(Settings(host="127.0.0.1", port=0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
