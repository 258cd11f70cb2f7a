"""`python relay.py PORT [lines]`: connect standard input and output with 127.0.0.1:PORT of this network, until both are
ended. `python relay.py - ARGV...` is the near end of one whose output goes by lines: it runs ARGV and undoes that.

With `lines` what comes back is a line of Base64 for each piece: a way that hands output on by whole lines (Slurm's)
would keep the rest of a reply for ever. A child program, standard library only, run by path.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import subprocess
import sys
import threading

BLOCK_BYTES = 1 << 16
LINES = "lines"
NEAR = "-"


def main(port: str, mode: str = "") -> None:
    connection = socket.create_connection(("127.0.0.1", int(port)))

    def upwards() -> None:
        with contextlib.suppress(OSError):
            while block := os.read(0, BLOCK_BYTES):
                connection.sendall(block)
            connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=upwards, daemon=True).start()
    with contextlib.suppress(OSError):
        while block := connection.recv(BLOCK_BYTES):
            write(base64.b64encode(block) + b"\n" if mode == LINES else block)


def near(argv: list[str]) -> None:
    """Hand on what the far end says; it gets this program's own input."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as far, contextlib.suppress(OSError):
        assert far.stdout is not None
        for line in far.stdout:
            write(base64.b64decode(line))
        os.close(1)


def write(data: bytes) -> None:
    """All of it."""
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    if sys.argv[1] == NEAR:
        near(sys.argv[2:])
    else:
        main(*sys.argv[1:])
