"""The HTTP side: `/health`, `/v1/models` and `/v1/completions`, whole or as server-sent events, over one engine."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from .asking import Ask, BadRequestError, Limits, parse
from .streams import Detokenizer, TokenStream

DRAIN_S = 5
"""that open replies get at the end"""


class Engine(Protocol):
    """A library, driven. `submit` and `check` are called on the event loop and must not wait for the model."""

    limits: Limits

    def check(self, ask: Ask) -> None:
        """BadRequestError where its schema cannot be enforced."""
        ...

    def submit(self, ask: Ask, stream: TokenStream) -> None: ...

    def run(self) -> None:
        """Serve what is submitted, for ever. Runs in a thread of its own."""
        ...


class Texts:
    """The tokenizer of a model folder, `tokenizer.json`."""

    def __init__(self, folder: Path) -> None:
        import tokenizers

        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @property
    def vocab_size(self) -> int:
        size: int = self._tokenizer.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, token_ids: list[int]) -> str:
        text: str = self._tokenizer.decode(token_ids)
        return text


def common_arguments(parser: argparse.ArgumentParser) -> None:
    """What every one of these servers is started with."""
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True, help="compute threads")
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--tokenizer-dir", type=Path, required=True, help="folder of tokenizer.json")
    parser.add_argument("--max-sequence-tokens", type=int, required=True, help="of a prompt and its reply")


def serve(engine: Engine, *, texts: Texts, arguments: argparse.Namespace) -> None:
    """Until SIGTERM. An engine that dies takes the server with it: nobody waits for its replies."""
    import uvicorn

    def run() -> None:
        try:
            engine.run()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=run, name="engine", daemon=True).start()
    # uvicorn drains on the first SIGTERM and then raises the signal again; drained is not killed
    signal.signal(signal.SIGTERM, lambda *_: None)
    app = create_app(engine, texts=texts, model_name=arguments.served_model_name)
    uvicorn.run(
        app,
        host=arguments.host,
        port=arguments.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN_S,
    )


def create_app(engine: Engine, *, texts: Texts, model_name: str) -> Any:
    """ASGI application."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(request: Request) -> Response:
        card = {"id": model_name, "object": "model", "max_model_len": engine.limits.max_sequence_tokens}
        return JSONResponse({"object": "list", "data": [card]})

    async def completions(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            if not isinstance(body, dict):
                raise BadRequestError("the body must be a JSON object")
            ask = parse(body, encode=texts.encode, limits=engine.limits)
            engine.check(ask)
        except ValueError as error:
            fault = {"message": str(error), "type": "invalid_request_error", "param": None, "code": None}
            return JSONResponse({"error": fault}, status_code=400)
        exchange = Exchange(ask, engine=engine, texts=texts, model_name=model_name)
        if ask.is_streamed:
            return StreamingResponse(exchange.events(), media_type="text/event-stream")
        return JSONResponse(await exchange.whole())

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/models", models),
            Route("/v1/completions", completions, methods=["POST"]),
        ]
    )


class Exchange:
    """One request and its reply."""

    def __init__(self, ask: Ask, *, engine: Engine, texts: Texts, model_name: str) -> None:
        self._ask = ask
        self._engine = engine
        self._model_name = model_name
        self._detokenizer = Detokenizer(texts.decode)
        self._num_tokens = 0

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events, one a step of the engine. A client that goes away closes this, and its slot is free."""
        async for body in self._bodies():
            yield f"data: {json.dumps(body)}\n\n"
        if self._ask.wants_usage:
            yield f"data: {json.dumps(self._body([]) | {'usage': self._usage()})}\n\n"
        yield "data: [DONE]\n\n"

    async def whole(self) -> dict[str, Any]:
        """The body of a reply in one piece."""
        texts: list[str] = []
        ids: list[int] = []
        last: dict[str, Any] = {}
        async for body in self._bodies():
            if "error" in body:
                return body
            last = body["choices"][0]
            texts.append(last["text"])
            ids += last["token_ids"]
        choice = {**last, "text": "".join(texts), "token_ids": ids}
        return self._body([choice]) | {"usage": self._usage()}

    async def _bodies(self) -> AsyncIterator[dict[str, Any]]:
        stream = TokenStream()
        self._engine.submit(self._ask, stream)
        try:
            async for delivery in stream.deliveries():
                if delivery.fault is not None:
                    yield {"error": {"message": delivery.fault, "type": "server_error"}}
                    return
                text = self._detokenizer.add(delivery.token_ids)
                self._num_tokens += len(delivery.token_ids)
                if delivery.finish_reason is not None:
                    text += self._detokenizer.flush()
                yield self._body(
                    [
                        {
                            "index": 0,
                            "text": text,
                            "token_ids": list(delivery.token_ids),
                            "logprobs": None,
                            "finish_reason": delivery.finish_reason,
                        }
                    ]
                )
        finally:
            stream.is_abandoned = True

    def _body(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": "cmpl", "object": "text_completion", "created": 0, "model": self._model_name, "choices": choices}

    def _usage(self) -> dict[str, int]:
        num_prompt = len(self._ask.prompt_ids)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": self._num_tokens,
            "total_tokens": num_prompt + self._num_tokens,
        }
