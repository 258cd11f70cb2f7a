"""The OpenAI-compatible HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from .engine import EngineFailedError, OverloadedError
from .interfaces import Output, Sequence
from .middleware import ApiKeys, RequestLog
from .protocol import ApiError, Generation, parse_chat, parse_completion
from .replies import Reply
from .service import Service

RETRY_AFTER_S = 1


def create_app(service: Service) -> ASGIApp:
    """ASGI application over `service`; its lifespan starts and stops the engine."""
    handlers = Handlers(service)
    return Starlette(
        routes=[
            Route("/health", handlers.health),
            Route("/live", handlers.live),
            Route("/metrics", handlers.metrics),
            Route("/v1/models", handlers.models),
            Route("/v1/models/{model:path}", handlers.model),
            Route("/v1/completions", handlers.completions, methods=["POST"]),
            Route("/v1/chat/completions", handlers.chat_completions, methods=["POST"]),
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
        self.service.engine.start()
        yield
        self.service.engine.stop()

    async def live(self, request: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def health(self, request: Request) -> Response:
        if self.service.engine.has_failed:
            raise ApiError(503, "the engine has failed")
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        text = self.service.metrics.render(model_name=self.service.model_name, spans=self.service.spans)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_card()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["model"])
        return JSONResponse(self._model_card())

    async def completions(self, request: Request) -> Response:
        body = await self._body(request)
        started_s = perf_counter()
        service = self.service
        generation = parse_completion(body, tokenizer=service.tokenizer, limits=service.limits)
        service.spans.add("tokenize", perf_counter() - started_s)
        return await self._generate(request, generation)

    async def chat_completions(self, request: Request) -> Response:
        body = await self._body(request)
        started_s = perf_counter()
        service = self.service
        generation = parse_chat(body, tokenizer=service.tokenizer, limits=service.limits)
        service.spans.add("tokenize", perf_counter() - started_s)
        return await self._generate(request, generation)

    async def _body(self, request: Request) -> dict[str, Any]:
        try:
            body = json.loads(await request.body())
        except ValueError as error:
            raise ApiError(400, f"the request body is not valid JSON: {error}") from error
        if not isinstance(body, dict):
            raise ApiError(400, "the request body must be a JSON object")
        self._check_model(body.get("model"))
        return body

    def _check_model(self, name: Any) -> None:
        if name is not None and name != self.service.model_name:
            message = f"the model '{name}' does not exist; this server has '{self.service.model_name}'"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _model_card(self) -> dict[str, Any]:
        return {
            "id": self.service.model_name,
            "object": "model",
            "created": 0,
            "owned_by": "runtime",
            "max_model_len": self.service.limits.max_context_tokens,
        }

    async def _generate(self, request: Request, generation: Generation) -> Response:
        started_s = perf_counter()
        service = self.service
        outputs: asyncio.Queue[Output] = asyncio.Queue()
        sequences = await service.sequences(generation, request_id=request.state.request_id, outputs=outputs)
        reply = Reply(generation, model_name=service.model_name, tokenizer=service.tokenizer)
        try:
            service.engine.submit(sequences)
        except OverloadedError:
            raise ApiError(429, "too many requests are waiting; try again", code="overloaded") from None
        except EngineFailedError:
            raise ApiError(503, "the engine has failed") from None
        service.spans.add("http", perf_counter() - started_s)
        request.state.reply = reply
        if generation.is_streamed:
            events = self._events(reply, sequences, outputs)
            return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        return await self._whole(request, reply, sequences, outputs)

    async def _events(
        self, reply: Reply, sequences: list[Sequence], outputs: asyncio.Queue[Output]
    ) -> AsyncIterator[str]:
        """Server-sent events. Closing the stream early, as the server does when the client leaves, aborts."""
        try:
            for event in reply.opening_events():
                yield event
            while not reply.is_finished:
                output = await outputs.get()
                started_s = perf_counter()
                event = reply.token_event(output)
                reply.add(output)
                yield event
                self.service.spans.add("http", perf_counter() - started_s)
            if reply.has_failed:
                yield f"data: {json.dumps(ApiError(500, 'the engine has failed').body())}\n\n"
            for event in reply.closing_events():
                yield event
        finally:
            if not reply.is_finished:
                self.service.engine.abort(sequences)

    async def _whole(
        self, request: Request, reply: Reply, sequences: list[Sequence], outputs: asyncio.Queue[Output]
    ) -> Response:
        leaving = asyncio.create_task(wait_disconnect(request))
        try:
            while not reply.is_finished:
                arriving = asyncio.create_task(outputs.get())
                await asyncio.wait((arriving, leaving), return_when=asyncio.FIRST_COMPLETED)
                if not arriving.done():
                    arriving.cancel()
                    return Response(status_code=499)
                reply.add(arriving.result())
        finally:
            leaving.cancel()
            if not reply.is_finished:
                self.service.engine.abort(sequences)
        if reply.has_failed:
            raise ApiError(500, "the engine has failed")
        started_s = perf_counter()
        response = JSONResponse(reply.body())
        self.service.spans.add("http", perf_counter() - started_s)
        return response


async def wait_disconnect(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
