"""Around every request: its id, one log line, and the API key."""

from __future__ import annotations

import hmac
import logging
import uuid
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .protocol import ApiError

logger = logging.getLogger("runtime.access")

OPERATOR_PATHS = ("/health", "/live", "/metrics")
"""not logged, and answered without a key"""


class RequestLog:
    """Takes or makes `x-request-id`, returns it, and logs the request without what was asked."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started_s = perf_counter()
        request_id = Headers(scope=scope).get("x-request-id") or uuid.uuid4().hex
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            if scope["path"] not in OPERATOR_PATHS:
                logger.info("request", extra={"fields": log_fields(scope, status, perf_counter() - started_s)})


def log_fields(scope: Scope, status: int, seconds: float) -> dict[str, object]:
    """What is logged of a request."""
    state = scope["state"]
    return {
        "request_id": state["request_id"],
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "seconds": round(seconds, 6),
    }


class ApiKeys:
    """Refuses requests to the API without the key, where one is configured."""

    def __init__(self, app: ASGIApp, *, api_key: str | None) -> None:
        self.app = app
        self.expected = None if api_key is None else f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.expected is None or scope["type"] != "http" or scope["path"] in OPERATOR_PATHS:
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("authorization", "").encode()
        if hmac.compare_digest(given, self.expected):
            await self.app(scope, receive, send)
            return
        error = ApiError(401, "missing or wrong API key", code="invalid_api_key")
        await JSONResponse(error.body(), status_code=401)(scope, receive, send)
