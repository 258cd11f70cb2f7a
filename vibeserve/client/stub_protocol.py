"""The stub's connection: runs in the stub's process only."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import TYPE_CHECKING, Any, cast

import httptools
import uvloop

if TYPE_CHECKING:
    from vibeserve.client.stub import Script

_STALL_S = 0.2  # later than this means that the stub was stopped: the rhythm moves, nothing is caught up
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


class StubConnection(asyncio.Protocol):
    """One connection, one request, one scripted reply."""

    def __init__(self, script: Script, counter: itertools.count[int]) -> None:
        self._script = script
        self._counter = counter
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._url = b""
        self._num_sent = 0
        self._num_events = 0
        self._num_tokens = 0
        self._due_s = 0.0
        self._request: dict[str, Any] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        script = self._script
        number = next(self._counter)
        if self._url != b"/v1/completions":
            self._refuse(200 if self._url == b"/health" else 404, "stub")
            return
        if script.status != 200 or (script.fail_every and number % script.fail_every == 0):
            self._refuse(script.status if script.status != 200 else 500, "scripted failure")
            return
        self._request = json.loads(self._body)
        self._num_tokens = script.num_tokens or self._request["max_tokens"]
        self._transport.write(_HEAD)
        self._due_s = self._loop.time() + script.ttft_s
        self._timer = self._loop.call_at(self._due_s, self._step)

    def _step(self) -> None:
        """Send every event that is due, then sleep until the next one."""
        now_s = self._loop.time()
        if now_s - self._due_s > _STALL_S:
            self._due_s = now_s
        parts = []
        while self._due_s <= now_s and self._num_sent < self._num_tokens:
            parts.append(self._next_event())
            self._due_s += self._script.tpot_s * self._script.chunk_tokens
            if self._script.drop_after_tokens and self._num_sent >= self._script.drop_after_tokens:
                self._transport.write(b"".join(parts))
                self._transport.close()
                return
        if self._num_sent < self._num_tokens:
            self._transport.write(b"".join(parts))
            self._timer = self._loop.call_at(self._due_s, self._step)
            return
        self._transport.write(b"".join((*parts, self._usage_event(), _chunked(b"data: [DONE]\n\n"), b"0\r\n\r\n")))
        self._transport.close()

    def _next_event(self) -> bytes:
        script = self._script
        first = self._num_sent
        self._num_sent = min(first + script.chunk_tokens, self._num_tokens)
        self._num_events += 1
        if script.raw_event and self._num_events == 2:
            return _chunked(b"data: " + script.raw_event.encode() + b"\n\n")
        positions = range(first, self._num_sent)
        choice: dict[str, Any] = {
            "index": 0,
            "text": "".join(script.pieces[k % len(script.pieces)] for k in positions),
            "finish_reason": "length" if self._num_sent == self._num_tokens else None,
        }
        if script.token_ids:
            choice["token_ids"] = [script.token_ids[k % len(script.token_ids)] for k in positions]
        if script.logprob is not None and self._request.get("logprobs"):
            choice["logprobs"] = {"token_logprobs": [script.logprob for _ in positions]}
        return _event({"choices": [choice]})

    def _usage_event(self) -> bytes:
        claimed = self._script.usage_tokens if self._script.usage_tokens >= 0 else self._num_tokens
        usage = {"prompt_tokens": len(self._request["prompt"].split()), "completion_tokens": claimed}
        return _event({"choices": [], "usage": usage})

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"error": {"message": message}}).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)
        self._transport.close()


def _event(document: dict[str, Any]) -> bytes:
    return _chunked(b"data: " + json.dumps(document).encode() + b"\n\n")


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve(script: Script) -> None:
    loop = asyncio.get_running_loop()
    counter = itertools.count(1)
    server = await loop.create_server(lambda: StubConnection(script, counter), "127.0.0.1", 0)
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    # the parent holds our stdin: its end is ours
    await loop.run_in_executor(None, sys.stdin.read)


def serve(script: Script) -> None:
    """Serve until stdin ends."""
    uvloop.run(_serve(script))
