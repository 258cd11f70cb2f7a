"""`python poller.py HOST PORT PATH INTERVAL_S`: ask until the server answers 200, then print `ready` and end.

A child program, standard library only, started in the server's network by sandbox.join_argv. It never gives up: the
controller holds the deadline.
"""

from __future__ import annotations

import socket
import sys
import time

_REQUEST_TIMEOUT_S = 10.0


def answers_ok(host: str, port: int, path: str) -> bool:
    """Whether one GET is answered with status 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection((host, port), timeout=_REQUEST_TIMEOUT_S) as connection:
            connection.sendall(request.encode("ascii"))
            head = b""
            while b"\r\n" not in head and len(head) < 1024 and (piece := connection.recv(256)):
                head += piece
    except OSError:
        return False
    words = head.split(b" ")
    return len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1] == b"200"


def main(host: str, port: str, path: str, interval_s: str) -> None:
    while not answers_ok(host, int(port), path):
        time.sleep(float(interval_s))
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
