"""The HTTP API: real-time sessions, transcriptions of files, and an OpenAI-compatible server's routes around them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from .audio import AudioError, Resampler, Samples, read_wav
from .engine import Transcribed
from .forms import FormError, read_form
from .middleware import ApiKeys, RequestLog
from .protocol import ApiError
from .realtime import RealtimeSession
from .service import Service

RETRY_AFTER_S = 1
MAX_BODY_BYTES = 25 << 20
"""the OpenAI API's own limit on files"""
FORMATS = ("json", "text", "verbose_json")


def create_app(service: Service) -> ASGIApp:
    """ASGI application over `service`; the end of its lifespan stops the engine."""
    handlers = Handlers(service)
    return Starlette(
        routes=[
            Route("/health", handlers.health),
            Route("/live", handlers.live),
            Route("/metrics", handlers.metrics),
            Route("/v1/models", handlers.models),
            Route("/v1/models/{model:path}", handlers.model),
            Route("/v1/audio/transcriptions", handlers.transcribe, methods=["POST"]),
            WebSocketRoute("/v1/realtime", handlers.realtime),
        ],
        middleware=[Middleware(RequestLog), Middleware(ApiKeys, api_key=service.api_key)],
        exception_handlers={ApiError: api_error, HTTPException: http_error, Exception: internal_error},
        lifespan=handlers.lifespan,
    )


class Handlers:
    """The routes."""

    def __init__(self, service: Service) -> None:
        self.service = service

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self.service.engine.stop()

    async def live(self, request: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def health(self, request: Request) -> Response:
        if not self.service.engine.is_alive:
            raise ApiError(503, "the model has failed")
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        self.service.metrics.num_unfinished = self.service.num_sessions
        text = self.service.metrics.render(model_name=self.service.model_name, spans=self.service.spans)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_card()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["model"])
        return JSONResponse(self._model_card())

    async def realtime(self, websocket: WebSocket) -> None:
        """One client that speaks, until it leaves."""
        if self._is_full:
            await websocket.send_denial_response(await http_error(Request({"type": "http"}), overloaded()))
            return
        with self._place():
            await RealtimeSession(websocket, self.service).run()

    async def transcribe(self, request: Request) -> Response:
        """A whole file: `file` (WAV) and `model`, `response_format` of `FORMATS`; what else the API knows is ignored
        where it is a hint (`language`, `prompt`, `temperature` 0)."""
        started_s = perf_counter()
        with self._place():
            try:
                form = read_form(await body_of(request), content_type=request.headers.get("content-type", ""))
                if "file" not in form:
                    raise ApiError(400, "file is missing: a WAV file", param="file")
                samples, seconds = self._samples(form["file"].data)
            except (FormError, AudioError) as error:
                raise ApiError(400, str(error), param="file") from error
            if "model" in form:
                self._check_model(form["model"].text)
            kind = form["response_format"].text if "response_format" in form else "json"
            if kind not in FORMATS:
                raise ApiError(400, f"response_format '{kind[:40]}' is not served: {', '.join(FORMATS)} are",
                               param="response_format")  # fmt: skip
            self.service.spans.add("http", perf_counter() - started_s)
            found = await self._transcribed(samples, seconds=seconds)
        self.service.metrics.latency.observe(perf_counter() - started_s)
        self.service.metrics.count_finished("stop")
        return rendered(found, kind=kind, seconds=seconds)

    def _samples(self, data: bytes) -> tuple[Samples, float]:
        import numpy as np

        raw, rate_hz = read_wav(data)
        limit_s, seconds = self.service.parameters.max_audio_s, len(raw) / rate_hz
        if not len(raw):
            raise AudioError("the file holds no audio")
        if seconds > limit_s:
            raise AudioError(f"the file holds {seconds:.1f} s of audio; at most {limit_s:g} s are transcribed at once")
        resampler = Resampler(rate_hz, to_hz=self.service.sample_rate_hz)
        return np.concatenate((resampler.push(raw), resampler.finish())), seconds

    async def _transcribed(self, samples: Samples, *, seconds: float) -> Transcribed:
        answer: asyncio.Future[Transcribed] = asyncio.get_running_loop().create_future()

        def tell(found: Transcribed) -> None:
            if found.is_final and not answer.done():
                answer.set_result(found)

        engine = self.service.engine
        hearing = engine.open(tell)
        try:
            engine.hear(hearing, samples, end_ms=int(1000 * seconds))
            engine.commit(hearing)
            return await answer
        finally:
            engine.drop(hearing)

    @property
    def _is_full(self) -> bool:
        return self.service.num_sessions >= self.service.parameters.max_sessions

    @contextlib.contextmanager
    def _place(self) -> Any:
        """A session's place; 503 where all are taken."""
        if self._is_full:
            raise overloaded()
        self.service.num_sessions += 1
        try:
            yield
        finally:
            self.service.num_sessions -= 1

    def _check_model(self, name: Any) -> None:
        if name != self.service.model_name:
            message = f"the model '{str(name)[:80]}' does not exist; this server has '{self.service.model_name}'"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _model_card(self) -> dict[str, Any]:
        return {"id": self.service.model_name, "object": "model", "created": 0, "owned_by": "runtime"}


def overloaded() -> HTTPException:
    return HTTPException(503, "as many clients speak as this server serves; try again")


async def body_of(request: Request) -> bytes:
    """The whole body; 413 as soon as it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB", param="file")
    return bytes(body)


def rendered(found: Transcribed, *, kind: str, seconds: float) -> Response:
    if kind == "text":
        return PlainTextResponse(found.text + "\n")
    document: dict[str, Any] = {"text": found.text, "usage": {"type": "duration", "seconds": seconds}}
    if kind == "verbose_json":
        document |= {"task": "transcribe", "language": "english", "duration": seconds, "segments": []}
        document |= {"token_ids": list(found.token_ids)}
    return JSONResponse(document)


async def api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    headers = {"retry-after": str(RETRY_AFTER_S)} if error.status in (429, 503) else None
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


async def internal_error(request: Request, error: Exception) -> Response:
    """A fault of ours; the server logs its traceback."""
    return JSONResponse(ApiError(500, "internal error").body(), status_code=500)


async def http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    retry = {"retry-after": str(RETRY_AFTER_S)} if error.status_code == 503 else {}
    headers = dict(error.headers or {}) | retry
    return JSONResponse(
        ApiError(error.status_code, error.detail).body(), status_code=error.status_code, headers=headers
    )
