"""The application driven in process over ASGI, as an HTTP server drives it: no sockets, no client library."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

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

    @property
    def events(self) -> list[dict[str, Any]]:
        """Parsed server-sent events; the closing [DONE] is checked and left out."""
        lines = self.body.decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""], lines[-2:]
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    @property
    def choice_events(self) -> list[dict[str, Any]]:
        return [choice for event in self.events for choice in event["choices"]]


class LocalServer:
    """Runs the application's lifespan and its requests on an event loop of its own."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._app = create_app(service)
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

    def post(self, path: str, body: Any, *, headers: dict[str, str] | None = None) -> Response:
        return self.start("POST", path, body=body, headers=headers).result(timeout=120)

    def complete(self, prompt: Any, /, **fields: Any) -> Response:
        """Greedy completion of a fixed length unless `fields` say otherwise."""
        defaults = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        return self.post("/v1/completions", {**defaults, **fields})

    def start(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
        leave_after_chunks: int | None = None,
    ) -> Future[Response]:
        """Send a request without waiting; the client leaves after so many body chunks where that is given."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._spawn(self._request(method, path, raw, headers or {}, leave_after_chunks))

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

        await self._app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)

    async def _request(
        self, method: str, path: str, raw: bytes, headers: dict[str, str], leave_after_chunks: int | None
    ) -> Response:
        response, chunks, left = Response(), 0, asyncio.Event()
        pending = [{"type": "http.request", "body": raw, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if pending:
                return pending.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal chunks
            if message["type"] == "http.response.start":
                response.status = message["status"]
                response.headers = {key.decode(): value.decode() for key, value in message["headers"]}
                return
            response.body += message.get("body", b"")
            chunks += 1
            if leave_after_chunks is not None and chunks >= leave_after_chunks:
                left.set()

        if leave_after_chunks == 0:
            self._loop.call_later(0.05, left.set)
        await self._app(http_scope(method, path, headers), receive, send)
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
