"""The application driven in process over ASGI, as an HTTP server drives it: no sockets, no client library."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import queue
import threading
import wave
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from runtime.http import create_app
from runtime.service import Service

BOUNDARY = "test-boundary"
TRANSCRIPTION = "conversation.item.input_audio_transcription."


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class LocalServer:
    """Runs the application's lifespan, its requests and its WebSockets on an event loop of its own."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.app = create_app(service)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._stopping = asyncio.Event()
        self._started: Future[None] = Future()

    def __enter__(self) -> LocalServer:
        self._thread.start()
        self._lifespan = self.spawn(self._run_lifespan())
        self._started.result(timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stopping.set)
        self._lifespan.result(timeout=60)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=60)

    def get(self, path: str, *, headers: dict[str, str] | None = None) -> Response:
        return self.spawn(self._request("GET", path, b"", headers or {})).result(timeout=120)

    def post(self, path: str, body: bytes, *, headers: dict[str, str] | None = None) -> Response:
        return self.spawn(self._request("POST", path, body, headers or {})).result(timeout=120)

    def transcribe(self, file: bytes | None, **fields: str) -> Response:
        """POST a form to the transcription route."""
        parts = [
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in fields.items()
        ]
        if file is not None:
            head = 'Content-Disposition: form-data; name="file"; filename="a.wav"'
            parts.append(f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + file + b"\r\n")
        body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
        content_type = f"multipart/form-data; boundary={BOUNDARY}"
        return self.post("/v1/audio/transcriptions", body, headers={"content-type": content_type})

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

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

    async def _request(self, method: str, path: str, raw: bytes, headers: dict[str, str]) -> Response:
        response = Response()
        pending = [{"type": "http.request", "body": raw, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if pending:
                return pending.pop()
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                response.status = message["status"]
                response.headers = {key.decode(): value.decode() for key, value in message["headers"]}
                return
            response.body += message.get("body", b"")

        await self.app(scope_of("http", method, path, headers), receive, send)
        return response


class Speaker:
    """One WebSocket of the application. `with Speaker(server) as speaker:`"""

    def __init__(self, server: LocalServer, *, rate_hz: int = 16000, headers: dict[str, str] | None = None) -> None:
        self._server, self._rate_hz, self._headers = server, rate_hz, headers or {}
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        self.denied = 0

    def __enter__(self) -> Speaker:
        self._say({"type": "websocket.connect"})
        scope = scope_of("websocket", "GET", "/v1/realtime", self._headers)
        self._done = self._server.spawn(self._server.app(scope, self._incoming.get, self._send))
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        self._say({"type": "websocket.disconnect", "code": 1006})
        self._done.result(timeout=60)

    def event(self, kind: str, **fields: Any) -> None:
        self.text(json.dumps({"type": kind, **fields}))

    def text(self, text: str) -> None:
        self._say({"type": "websocket.receive", "text": text})

    def update(self, *, partials: bool = True) -> dict[str, Any]:
        audio = {"format": {"type": "audio/pcm", "rate": self._rate_hz}, "transcription": {"partials": partials}}
        self.event("session.update", session={"type": "transcription", "audio": {"input": audio}})
        return self.wait("session.updated")

    def append(self, samples: NDArray[np.float32]) -> None:
        self.event("input_audio_buffer.append", audio=base64.b64encode(pcm16(samples)).decode())

    def commit(self) -> dict[str, Any]:
        """The completed transcript."""
        self.event("input_audio_buffer.commit")
        return self.wait(f"{TRANSCRIPTION}completed")

    def wait(self, kind: str) -> dict[str, Any]:
        """The next event of that type; those before it are in `seen`."""
        while True:
            event = self._events.get(timeout=120)
            self.seen.append(event)
            if event["type"] == kind:
                return event

    def _say(self, message: dict[str, Any]) -> None:
        self._server.loop.call_soon_threadsafe(self._incoming.put_nowait, message)

    async def _send(self, message: Any) -> None:
        if message["type"] == "websocket.send":
            self._events.put(json.loads(message["text"]))
        elif message["type"] == "websocket.http.response.start":
            self.denied = message["status"]
            self._events.put({"type": "denied"})


def scope_of(kind: str, method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
    scope = {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http" if kind == "http" else "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(key.lower().encode(), value.encode()) for key, value in headers.items()],
        "state": {},
        "extensions": {"websocket.http.response": {}},
    }
    return scope | ({"method": method} if kind == "http" else {"subprotocols": []})


def pcm16(samples: NDArray[np.float32]) -> bytes:
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes()


def wav(samples: NDArray[np.float32], *, rate_hz: int = 16000, channels: int = 1) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        out.writeframes(pcm16(np.repeat(samples, channels)))
    return stream.getvalue()
