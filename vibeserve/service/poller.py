"""`python poller.py HOST PORT PATH INTERVAL_S`: ask until the server has served, then print `ready` and end.

That is status 200 on PATH, and then, where standard input holds one, the whole reply to a first request: a JSON object
of `path`, `body` and `model`, a word in the body that stands for the name of the model that the server lists. What it
waits for is told on stderr. A child program, standard library only, started in the server's network by
sandbox.join_argv. It never gives up: the controller holds the deadline.
"""

from __future__ import annotations

import json
import socket
import sys
import time

_REQUEST_TIMEOUT_S = 10.0
_END_OF_CHUNKS = b"0\r\n\r\n"
_MAX_BYTES = 1 << 26


class NotServedError(Exception):
    """The exchange failed, or its status was another than 200."""


def _exchange(host: str, port: int, request: bytes, *, timeout_s: float | None) -> bytes:
    """Send one request; the body of its answer, still in chunks where it came so. NotServedError, OSError."""
    with socket.create_connection((host, port), timeout=_REQUEST_TIMEOUT_S) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(request)
        answer = b""
        while not _is_whole(answer) and len(answer) < _MAX_BYTES and (piece := connection.recv(65536)):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ")
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise NotServedError("no HTTP answer")
    if words[1] != b"200":
        raise NotServedError(f"status {words[1].decode('ascii', 'replace')}")
    return body


def _is_whole(answer: bytes) -> bool:
    """Whether the body has ended, as far as its head says; the end of the connection tells, too."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        return False
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
        if name == b"transfer-encoding" and b"chunked" in value:
            return body.endswith(_END_OF_CHUNKS)
    return False


def get(host: str, port: int, path: str) -> bytes:
    """Body of a GET."""
    head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    return _exchange(host, port, head.encode("ascii"), timeout_s=_REQUEST_TIMEOUT_S)


def post(host: str, port: int, path: str, body: bytes) -> bytes:
    """Body of the whole reply to a POST of JSON, however long it takes."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream, application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return _exchange(host, port, head.encode("ascii") + body, timeout_s=None)


def listed_model(host: str, port: int) -> str:
    """Name of the first model that the server lists."""
    body = get(host, port, "/v1/models")
    try:
        return str(json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise NotServedError("/v1/models lists no model") from error


def serve_once(host: str, port: int, first: dict[str, str]) -> None:
    """Post the first request. NotServedError where its reply is empty, or none."""
    body = first["body"]
    if first["model"] in body:
        body = body.replace(first["model"], json.dumps(listed_model(host, port))[1:-1])
    if not post(host, port, first["path"], body.encode()).strip():
        raise NotServedError("an empty reply")


def main(host: str, port: str, path: str, interval_s: str) -> None:
    given = sys.stdin.read()
    first = json.loads(given) if given else None
    is_up, said = False, ""
    while True:
        waits_for = f"POST {first['path']}" if is_up and first else f"GET {path}"
        try:
            if not is_up:
                get(host, int(port), path)
                is_up = True
            if first:
                waits_for = f"POST {first['path']}"
                serve_once(host, int(port), first)
            break
        except (OSError, NotServedError) as error:
            text = f"{waits_for}: {error}"
            if text != said:
                sys.stderr.write(text + "\n")
                said = text
        time.sleep(float(interval_s))
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
