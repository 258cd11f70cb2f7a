"""`python -P container_exec.py URL CONTAINER COMMAND`: run a shell command in a container with this program's pipes.

A child program, run by path; it imports the docker SDK (`pip install 'vibeserve[docker]'`) and nothing of ours. It ends
with the command and with its status. Where it is killed, the daemon closes the command's standard input.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from typing import Any

BLOCK_BYTES = 1 << 16
STDERR = 2
GONE = 137
"""the status of what SIGKILL has ended"""


def main(url: str, container: str, command: str) -> int:
    """The command's status; 125 where the daemon does not run it."""
    from docker.errors import DockerException
    from docker.utils.socket import frames_iter

    try:
        api = open_api(url)
        made = api.exec_create(container, ["/bin/sh", "-c", command], stdin=True, stdout=True, stderr=True)
        stream = api.exec_start(made["Id"], socket=True)
    except (DockerException, OSError) as error:
        sys.stderr.write(f"docker: {error}\n")
        return 125
    connection: socket.socket = getattr(stream, "_sock", stream)
    threading.Thread(target=_upwards, args=(connection,), daemon=True).start()
    for kind, data in frames_iter(stream, tty=False):
        with contextlib.suppress(BrokenPipeError):
            _write(STDERR if kind == STDERR else 1, data)
    try:
        return int(api.exec_inspect(made["Id"])["ExitCode"] or 0)
    except (DockerException, OSError):
        return GONE  # the container, and what ran in it


def open_api(url: str) -> Any:
    """The daemon at `url`; empty = the environment's own (DOCKER_HOST, DOCKER_TLS_VERIFY ...)."""
    import docker

    client = docker.DockerClient(base_url=url, timeout=60) if url else docker.from_env(timeout=60)
    return client.api


def _upwards(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := os.read(0, BLOCK_BYTES):
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a thread waits for input that nobody gives any more
