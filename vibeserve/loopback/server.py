"""The scripted model's server: Responses, Chat Completions, Messages and generateContent on one port of loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vibeserve.loopback.answering import answer_to, is_beside
from vibeserve.loopback.dialects import Answer, Asked, Dialect, dialect_of
from vibeserve.loopback.script import HTTP_FAULTS, Fault, Position, Step, StepsOf, key_of

HANG_S = 3600.0
"""a request that is not answered is let go after that, or when the server stops"""
_COUNTS = {"/count_tokens": {"input_tokens": 100}, ":countTokens": {"totalTokens": 100}}
_KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")


@dataclass(frozen=True, kw_only=True)
class Logged:
    """One request as it came, and what was made of it."""

    method: str
    path: str
    headers: Mapping[str, str]
    """names in lower case"""
    body: str
    key: str = ""
    """of the call it belongs to"""
    step: Step | None = None
    """None: a side request, or one the script says nothing about"""


@dataclass(kw_only=True)
class ScriptedServer:
    """A context manager; `base_url` is right while it runs. Every request is in `requests`, in the order of arrival."""

    script: StepsOf
    expected_key: str = ""
    """requests with another key, or none, are answered with 401; empty = any"""
    event_pause_s: float = 0.0
    """before each event of a stream"""
    port: int = 0
    """0 = any free one"""
    requests: list[Logged] = field(default_factory=list)
    _server: _Server | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __enter__(self) -> ScriptedServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def root_url(self) -> str:
        """`http://127.0.0.1:PORT`: what the clients of Anthropic and Google take."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The same with `/v1`: what the clients of OpenAI take."""
        return f"{self.root_url}/v1"

    def start(self) -> None:
        """Listen; returns at once."""
        position, stopping = Position(self.script), threading.Event()
        owner = self

        class Handler(_Handler):
            scripted, place, closing = owner, position, stopping

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self._server.closing = stopping
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="scripted-model", daemon=True).start()

    def stop(self) -> None:
        """Answer nothing any more; requests that hang are let go. Safe to call again."""
        if self._server is not None:
            server, self._server = self._server, None
            server.closing.set()
            server.shutdown()
            server.server_close()

    def log(self, logged: Logged) -> None:
        with self._lock:
            self.requests.append(logged)

    def of(self, key: str) -> list[Logged]:
        """The requests of one call."""
        with self._lock:
            return [each for each in self.requests if each.key == key]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    closing: threading.Event

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no event: agents are killed in the middle of answers."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 600.0
    scripted: ScriptedServer
    place: Position
    closing: threading.Event

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on standard error."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self._note("")
        if "/models" in self.path:
            model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "vibeserve"}
            self._send_json({"object": "list", "data": [model]})
        else:
            self._send_json({"error": {"message": f"no route {self.path}"}}, status=404)

    def do_POST(self) -> None:
        raw = self._read_body()
        path = self.path.partition("?")[0]
        count = next((answer for suffix, answer in _COUNTS.items() if path.endswith(suffix)), None)
        dialect = dialect_of(path)
        if count is not None or dialect is None:
            self._note(raw)
            missing = {"error": {"message": f"no route {path}"}}
            self._send_json(missing if count is None else count, status=404 if count is None else 200)
            return
        if not self._has_key():
            self._note(raw)
            self._send_json(dialect.error(401, "this key is not known"), status=401)
            return
        self._answer(raw, dialect, path)

    def _answer(self, raw: str, dialect: Dialect, path: str) -> None:
        try:
            asked = dialect.read(json.loads(raw), path)
        except (ValueError, AttributeError, TypeError) as error:
            self._note(raw)
            self._send_json(dialect.error(400, f"the request cannot be read: {error}"), status=400)
            return
        key = key_of(asked.prompts)
        step = None if is_beside(asked) else self._next_step(key, asked)
        self._note(raw, key=key, step=step)
        if isinstance(step, Fault) and step.kind in HTTP_FAULTS:
            self._fail(step, asked, dialect, key)
        else:
            self._send_answer(answer_to(asked, step, key=key), asked, dialect)

    def _next_step(self, key: str, asked: Asked) -> Step | None:
        return self.place.next_step(key, num_results=asked.num_results, said=asked.said)

    def _fail(self, fault: Fault, asked: Asked, dialect: Dialect, key: str) -> None:
        if fault.kind == "429":
            retry = {"retry-after": f"{fault.retry_after_s:g}"}
            self._send_json(dialect.error(429, "too many requests"), status=429, headers=retry)
        elif fault.kind == "500":
            self._send_json(dialect.error(500, "internal error"), status=500)
        elif fault.kind == "unauthorised":
            self._send_json(dialect.error(401, "this key is not known"), status=401)
        elif fault.kind == "garbled":
            self._send(b"<html>upstream error</html>", kind="text/html")
        elif fault.kind == "hang":
            self.closing.wait(HANG_S)
            self._drop()
        else:
            self._cut(answer_to(asked, None, key=key), asked, dialect)

    def _send_answer(self, answer: Answer, asked: Asked, dialect: Dialect) -> None:
        if not asked.is_stream:
            self._send_json(dialect.document(answer, asked.model))
            return
        self._start_stream()
        for piece in _encoded(dialect.events(answer, asked.model)):
            self._send_piece(piece)
        self.wfile.write(b"0\r\n\r\n")

    def _cut(self, answer: Answer, asked: Asked, dialect: Dialect) -> None:
        """Half an answer, then a reset."""
        events = list(_encoded(dialect.events(answer, asked.model)))
        if asked.is_stream:
            self._start_stream()
            for piece in events[: max(1, len(events) // 2)]:
                self._send_piece(piece)
        else:
            whole = json.dumps(dialect.document(answer, asked.model)).encode()
            self._send(whole[: len(whole) // 2], length=len(whole))
        self._drop()

    def _start_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _send_piece(self, piece: bytes) -> None:
        self.closing.wait(self.scripted.event_pause_s)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def _send_json(self, document: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._send(json.dumps(document).encode(), status=status, headers=headers)

    def _send(
        self,
        body: bytes,
        *,
        status: int = 200,
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _drop(self) -> None:
        """End the connection with a reset instead of a proper end."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _read_body(self) -> str:
        length = int(self.headers.get("content-length") or 0)
        return self.rfile.read(length).decode("utf-8", errors="replace")

    def _has_key(self) -> bool:
        expected = self.scripted.expected_key
        given = [self.headers.get(name, "").removeprefix("Bearer ") for name in _KEY_HEADERS]
        return not expected or expected in given or f"key={expected}" in self.path

    def _note(self, body: str, *, key: str = "", step: Step | None = None) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        logged = Logged(method=self.command, path=self.path, headers=headers, body=body, key=key, step=step)
        self.scripted.log(logged)


def _encoded(events: Sequence[tuple[str, Any]]) -> Iterator[bytes]:
    for name, data in events:
        head = f"event: {name}\n" if name else ""
        text = data if isinstance(data, str) else json.dumps(data)
        yield f"{head}data: {text}\n\n".encode()
