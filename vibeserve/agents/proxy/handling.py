"""One request from its arrival to its record."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.agents.proxy.account import Account
from vibeserve.agents.proxy.books import Books
from vibeserve.agents.proxy.dialects import Route, error_body, route_of
from vibeserve.agents.proxy.incoming import (
    MAX_REQUEST_BYTES,
    credentials,
    headers_to_send,
    model_in,
    query_to_send,
    read_body,
)
from vibeserve.agents.proxy.record import Recorder
from vibeserve.agents.proxy.redaction import Redactor
from vibeserve.agents.proxy.upstream import Answer, Outgoing, Transport, Upstream, UpstreamError

if TYPE_CHECKING:
    from aiohttp import web

_PASSED_ON = ("content-type", "request-id", "x-request-id", "x-should-retry")
_PASSED_ON_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-", "retry-after")
_MAX_ERROR_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What every exchange of a call needs."""

    client_key: str
    model: str
    upstreams: Mapping[str, Upstream]
    keys: Mapping[str, str]
    """by dialect; empty = none is sent"""
    transport: Transport
    books: Books
    recorder: Recorder
    redactor: Redactor


async def handle(request: web.Request, desk: Desk) -> web.StreamResponse:
    """Answer one request of a client."""
    from aiohttp import web

    dialects = tuple(desk.upstreams)
    offered = credentials(request.headers, request.query)
    if not any(secrets.compare_digest(desk.client_key.encode(), key.encode()) for key in offered):
        text = "this is not the key of this call\nnext: give the client the key that the call was started with"
        return _error(dialects[0], status=401, code="wrong_client_key", message=text)
    route = route_of(request.method, request.path, dialects=dialects)
    if route is None:
        text = f"{request.method} {request.path} is not let through, only requests to a model ({', '.join(dialects)})"
        return _error(dialects[0], status=404, code="unknown_route", message=text)
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        text = f"the request is longer than {MAX_REQUEST_BYTES >> 20} MiB"
        return _error(route.dialect, status=413, code="request_too_large", message=text)
    outgoing = _outgoing(request, body, route=route, desk=desk)
    account = Account(outgoing=outgoing, books=desk.books, recorder=desk.recorder, redactor=desk.redactor)
    refusal = desk.books.admit() if route.is_metered else ""
    if refusal:
        response = _error(route.dialect, status=403, code=desk.books.stop_reason or "refused", message=refusal)
        account.refused(403, response.body)
        return response
    try:
        return await _send_on(request, account, desk)
    finally:
        account.close()


def _outgoing(request: web.Request, body: bytes, *, route: Route, desk: Desk) -> Outgoing:
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    to_send, document, described = read_body(body, encoding=encoding, dialect=route.dialect)
    return Outgoing(
        upstream=desk.upstreams[route.dialect], method=request.method, route=route,
        query=query_to_send(request.query_string), headers={**headers_to_send(request.headers), **described},
        key=desk.keys.get(route.dialect, ""), body=to_send, document=document,
        model=route.model or model_in(document) or desk.model,
    )  # fmt: skip


def _error(dialect: str, *, status: int, code: str, message: str) -> web.Response:
    """An answer of ours. Stock clients do not repeat what says so (`x-should-retry`, of their generated SDKs)."""
    from aiohttp import web

    headers = {} if status >= 500 else {"x-should-retry": "false"}
    document = error_body(dialect, status=status, code=code, message=message)
    return web.Response(
        status=status, body=json.dumps(document).encode(), content_type="application/json", headers=headers
    )


async def _send_on(request: web.Request, account: Account, desk: Desk) -> web.StreamResponse:
    try:
        async with desk.transport.send(account.outgoing) as answer:
            if answer.status >= 300:
                return await _pass_error(answer, account, desk)
            return await _stream(request, answer, account, desk)
    except UpstreamError as error:
        text = desk.redactor.clean_text(str(error))
        response = _error(account.outgoing.route.dialect, status=error.status, code="upstream_failed", message=text)
        account.failed(error, response.body)
        return response


def _headers(answer: Answer, redactor: Redactor) -> dict[str, str]:
    return {
        name: redactor.clean_text(value)
        for name, value in answer.headers.items()
        if name.lower() in _PASSED_ON or name.lower().startswith(_PASSED_ON_PREFIXES)
    }


async def _pass_error(answer: Answer, account: Account, desk: Desk) -> web.StreamResponse:
    """A refusal goes to the client as it is."""
    from aiohttp import web

    body = b""
    async for chunk in answer.chunks():
        body += chunk
        if len(body) > _MAX_ERROR_BYTES:
            break
    body = desk.redactor.clean(body[:_MAX_ERROR_BYTES])
    account.answered_with_error(answer, body)
    return web.Response(status=answer.status, body=body, headers=_headers(answer, desk.redactor))


async def _stream(request: web.Request, answer: Answer, account: Account, desk: Desk) -> web.StreamResponse:
    """Every piece goes on as it comes; what it tells is counted before the client can act on it."""
    from aiohttp import web

    response = web.StreamResponse(status=answer.status, headers=_headers(answer, desk.redactor))
    await response.prepare(request)
    account.begin(answer)
    redacted = desk.redactor.stream()
    try:
        async for chunk in answer.chunks():
            await _write(response, account, redacted.feed(chunk))
        await _write(response, account, redacted.finish())
    except UpstreamError as error:
        account.broken_off(error)
        # without the end of the body, so that the client sees what happened
        if request.transport is not None:
            request.transport.close()
        return response
    except ConnectionResetError:
        return response  # the client went away: `account.close` says so
    account.end()
    with contextlib.suppress(ConnectionResetError):
        await response.write_eof()
    return response


async def _write(response: web.StreamResponse, account: Account, data: bytes) -> None:
    if data:
        account.feed(data)
        await response.write(data)
