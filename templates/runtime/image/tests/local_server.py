"""The application driven in process over ASGI, as an HTTP server drives it: no sockets, no client library."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from runtime.api import PATH
from runtime.http import create_app
from runtime.service import Service


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class LocalServer:
    """Runs the application's lifespan and its requests on an event loop of its own."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.app = create_app(service)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stopping = asyncio.Event()
        self._started: Future[None] = Future()

    def __enter__(self) -> LocalServer:
        self._thread.start()
        self._lifespan = self._spawn(self._run_lifespan())
        self._started.result(timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._lifespan.result(timeout=60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=60)

    def get(self, path: str, *, headers: dict[str, str] | None = None) -> Response:
        return self.start("GET", path, headers=headers).result(timeout=120)

    def post(self, body: Any, *, headers: dict[str, str] | None = None) -> Response:
        """To the route of image generation."""
        return self.start("POST", PATH, body=body, headers=headers).result(timeout=120)

    def start(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
        leaves: bool = False,
    ) -> Future[Response]:
        """Send a request without waiting for it; with `leaves` the client goes away while it waits."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._spawn(self._request(method, path, raw, headers or {}, leaves))

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _run_lifespan(self) -> None:
        asked = iter(("lifespan.startup", "lifespan.shutdown"))

        async def receive() -> dict[str, Any]:
            kind = next(asked)
            if kind == "lifespan.shutdown":
                await self._stopping.wait()
            return {"type": kind}

        async def send(message: Any) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._started.set_result(None)

        await self.app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)

    async def _request(self, method: str, path: str, raw: bytes, headers: dict[str, str], leaves: bool) -> Response:
        response, left = Response(), asyncio.Event()
        pending = [{"type": "http.request", "body": raw, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if pending:
                return pending.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                response.status = message["status"]
                response.headers = {key.decode(): value.decode() for key, value in message["headers"]}
                return
            response.body += message.get("body", b"")

        if leaves:
            self._loop.call_later(0.05, left.set)
        await self.app(http_scope(method, path, headers), receive, send)
        return response


def http_scope(method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(key.lower().encode(), value.encode()) for key, value in headers.items()],
        "state": {},
    }
