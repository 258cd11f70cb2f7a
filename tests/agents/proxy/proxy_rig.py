"""A scripted API on the loopback, a proxy in front of it, and clients that speak to the proxy's socket."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vibeserve.agents.ledger import Ledger
from vibeserve.agents.prices import ModelPrice, PriceTable
from vibeserve.agents.proxy import Proxy

KEY = "sk-test-0123456789abcdef/+="
"""what no client may ever see"""
PATHS = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/gemini-x:generateContent",
}


@dataclass(kw_only=True)
class Call:
    """One request as the scripted API got it, and the means to answer it."""

    handler: BaseHTTPRequestHandler
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    def begin(self, status: int, *, kind: str = "application/json", length: int | None = None, **headers: str) -> None:
        self.handler.send_response(status)
        self.handler.send_header("Content-Type", kind)
        if length is not None:
            self.handler.send_header("Content-Length", str(length))
        else:
            self.handler.send_header("Transfer-Encoding", "chunked")
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()

    def send(self, data: bytes) -> None:
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.handler.wfile.flush()

    def end(self) -> None:
        self.handler.wfile.write(b"0\r\n\r\n")

    def hang_up(self) -> None:
        self.handler.close_connection = True
        self.handler.connection.shutdown(socket.SHUT_RDWR)

    def json(self, document: Any, status: int = 200, **headers: str) -> None:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.begin(status, length=len(data), **headers)
        self.handler.wfile.write(data)

    def stream(self, events: Sequence[Any], **headers: str) -> None:
        self.begin(200, kind="text/event-stream", **headers)
        for item in events:
            self.send(event(item))
        self.end()


def event(document: Any) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document)
    return f"data: {text}\n\n".encode()


Script = Callable[[Call], None]


class ScriptedApi:
    """Answers each request by the next script, the last one again and again."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.calls: list[Call] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def _do(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                call = Call(handler=self, path=self.path, headers=dict(self.headers.items()), raw=raw)
                api.calls.append(call)
                script = api.scripts.pop(0) if len(api.scripts) > 1 else api.scripts[0]
                try:
                    script(call)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = _do

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def answers(self, *scripts: Script) -> None:
        self.scripts = list(scripts)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("proxy", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


@dataclass(kw_only=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(kw_only=True)
class Client:
    """Speaks to a proxy as a command-line agent would."""

    proxy: Proxy
    key: str | None = None
    """None = the call's own"""

    def open(
        self, path: str, body: Any = None, *, method: str = "POST", headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = _OverSocket(self.proxy.socket)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        key = self.proxy.client_key if self.key is None else self.key
        given = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, body=data, headers=given)
        return connection.getresponse()

    def ask(self, path: str, body: Any = None, **more: Any) -> Reply:
        response = self.open(path, body, **more)
        return Reply(status=response.status, headers=response.headers, text=response.read().decode())


@dataclass(kw_only=True)
class Setup:
    """A proxy with what is around it."""

    proxy: Proxy
    ledger: Ledger
    record_dir: Path
    api: ScriptedApi
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(proxy=self.proxy)

    def ask(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.client.ask(path, body, **more)

    @property
    def traffic(self) -> list[dict[str, Any]]:
        lines = (self.record_dir / "traffic.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


PRICES = PriceTable(
    date="2026-01-01",
    models={
        "big": ModelPrice(input_usd_per_m=10.0, cached_input_usd_per_m=1.0, output_usd_per_m=100.0),
        "small": ModelPrice(input_usd_per_m=1.0, cached_input_usd_per_m=0.1, output_usd_per_m=10.0),
    },
)


def responses_events(text: str = "done", usage: dict[str, Any] | None = None, model: str = "big") -> list[Any]:
    told = usage or {
        "input_tokens": 1000, "input_tokens_details": {"cached_tokens": 400}, "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 1050,
    }  # fmt: skip
    item = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return [
        {"type": "response.created", "response": {"id": "r1", "model": model, "usage": None}},
        {"type": "response.output_text.delta", "delta": text},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": "r1", "model": model, "output": [item], "usage": told}},
    ]


def in_threads(actions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Results in the order of `actions`, run at the same time."""
    results: queue.Queue[tuple[int, Any]] = queue.Queue()
    threads = [
        threading.Thread(target=lambda n=number, a=action: results.put((n, a())), daemon=True)
        for number, action in enumerate(actions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "an action never ended"
    return [value for _, value in sorted((results.get() for _ in actions), key=lambda pair: pair[0])]
