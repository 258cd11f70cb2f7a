"""The HTTP API: image generation, and the routes of an OpenAI-compatible server around it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from . import api, interfaces
from .engine import Order, OverloadedError
from .middleware import ApiKeys, RequestLog
from .protocol import ApiError
from .service import Service

RETRY_AFTER_S = 1
MAX_BODY_BYTES = 1 << 20
CLIENT_GONE = 499
"""nginx's status for a client that closed its connection; nobody reads it but the log"""

logger = logging.getLogger("runtime")


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
            Route(api.PATH, handlers.generate, methods=["POST"]),
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
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        text = self.service.metrics.render(model_name=self.service.model_name, spans=self.service.spans)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_card()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["model"])
        return JSONResponse(self._model_card())

    async def generate(self, request: Request) -> Response:
        """One image: parse, wait for the engine, render."""
        started_s = perf_counter()
        asked = self._asked(await body_of(request), request_id=request.state.request_id)
        self.service.spans.add("http", perf_counter() - started_s)
        try:
            order = self.service.engine.submit(asked)
        except OverloadedError:
            raise ApiError(429, "too many requests are waiting; try again", code="overloaded") from None
        if not await self._is_answered(order, request):
            self.service.metrics.count_finished("abort")
            return Response(status_code=CLIENT_GONE)
        failure = order.image.exception()
        if failure is not None:
            self.service.metrics.count_finished("error")
            log_failure(failure, request_id=asked.request_id)
            raise ApiError(500, "the model failed on this request")
        answered_s = perf_counter()
        response = JSONResponse(api.render(order.image.result(), asked))
        self.service.spans.add("http", perf_counter() - answered_s)
        self.service.metrics.latency.observe(perf_counter() - started_s)
        self.service.metrics.count_finished("stop")
        return response

    def _asked(self, raw: bytes, *, request_id: str) -> interfaces.Request:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the request body is not valid JSON: {error}") from error
        if not isinstance(body, dict):
            raise ApiError(400, "the request body must be a JSON object")
        self._check_model(body.get("model"))
        return self.service.api.parse(body, request_id=request_id)

    async def _is_answered(self, order: Order, request: Request) -> bool:
        """Wait for the image or for the client to leave; False, and the order is dropped, where it left first."""
        leaving = asyncio.create_task(wait_disconnect(request))
        try:
            await asyncio.wait((order.image, leaving), return_when=asyncio.FIRST_COMPLETED)
            return order.image.done()
        finally:
            leaving.cancel()
            order.drop()

    def _check_model(self, name: Any) -> None:
        if name is not None and name != self.service.model_name:
            message = f"the model '{name}' does not exist; this server has '{self.service.model_name}'"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _model_card(self) -> dict[str, Any]:
        return {"id": self.service.model_name, "object": "model", "created": 0, "owned_by": "runtime"}


async def body_of(request: Request) -> bytes:
    """The whole body; 413 as soon as it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")
    return bytes(body)


async def wait_disconnect(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def log_failure(failure: BaseException, *, request_id: str) -> None:
    """Type and places, not the message: what a model raises may quote what it was asked."""
    frames = traceback.extract_tb(failure.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
    fields = {"request_id": request_id, "error": type(failure).__name__, "at": places}
    logger.error("the model failed", extra={"fields": fields})


async def api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    headers = {"retry-after": str(RETRY_AFTER_S)} if error.status in (429, 503) else None
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


async def internal_error(request: Request, error: Exception) -> Response:
    """A fault of ours; the server logs its traceback."""
    return JSONResponse(ApiError(500, "internal error").body(), status_code=500)


async def http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = ApiError(error.status_code, error.detail).body()
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)
