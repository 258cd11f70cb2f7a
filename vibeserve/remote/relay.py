"""`python relay.py PORT`: connect standard input and output with 127.0.0.1:PORT of this network, until both are ended.

A child program, standard library only, run by path.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

BLOCK_BYTES = 1 << 16


def main(port: str) -> None:
    connection = socket.create_connection(("127.0.0.1", int(port)))

    def upwards() -> None:
        with contextlib.suppress(OSError):
            while block := os.read(0, BLOCK_BYTES):
                connection.sendall(block)
            connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=upwards, daemon=True).start()
    with contextlib.suppress(OSError):
        while block := connection.recv(BLOCK_BYTES):
            os.write(1, block)


if __name__ == "__main__":
    main(sys.argv[1])
