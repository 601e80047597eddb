"""Runs the stand-in for pulsar2 in forks of one process that has imported it: a start costs a tenth.

Started with the path of its socket, it ends with its standard input. Runs are children of this process, not of their
clients, so what is about killing processes starts the stand-in by itself.
"""

import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from support.backends import pulsar2_stand_in


def main(path: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([sys.stdin, listening], [], [])[0]:
            client, _ = listening.accept()
            if os.fork() == 0:
                run(client)
            client.close()
    shutil.rmtree(Path(path).parent)


def run(client: socket.socket) -> NoReturn:
    """With the client's streams, words, folder and environment; it gets the exit status."""
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    with client.makefile("rb") as sent:
        words, folder, environment = json.loads(sent.read(int.from_bytes(size, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["pulsar2", *words]
    status = 1
    try:
        status = pulsar2_stand_in.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    client.sendall(bytes([status]))
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1])
