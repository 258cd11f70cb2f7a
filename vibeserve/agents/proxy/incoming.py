"""What a client sent, read and cleaned."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from vibeserve.agents.proxy.dialects import CHAT
from vibeserve.agents.proxy.sse import parse_json

MAX_REQUEST_BYTES = 64 << 20
_HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect",
}  # fmt: skip
_OURS = {"host", "content-length", "content-encoding", "accept-encoding"}
_CREDENTIALS = {
    "authorization", "proxy-authorization", "proxy-authenticate", "x-api-key", "api-key", "x-goog-api-key", "cookie",
    "openai-organization", "openai-project", "x-goog-user-project",
}  # fmt: skip
_NOT_SENT_ON = _HOP_BY_HOP | _OURS | _CREDENTIALS


def credentials(headers: Mapping[str, str], query: Mapping[str, str]) -> set[str]:
    """Whatever the client offers as its key."""
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    offered = (bearer, headers.get("x-api-key", ""), headers.get("x-goog-api-key", ""), query.get("key", ""))
    return {value.strip() for value in offered}


def headers_to_send(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's headers without credentials, addresses and what belongs to its connection (RFC 9110, 7.6.1)."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    dropped = _NOT_SENT_ON | named
    kept = {
        name: value for name, value in headers.items()
        if name.lower() not in dropped and not name.lower().startswith(("x-forwarded-", "forwarded"))
    }  # fmt: skip
    return {**kept, "Accept-Encoding": "identity"}


def query_to_send(query: str) -> str:
    """The query without a key."""
    return urlencode([(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name != "key"])


def decompressed(body: bytes, encoding: str) -> bytes | None:
    """The body in clear; None where this interpreter cannot read its encoding (zstd, br), or it is damaged or longer
    than `MAX_REQUEST_BYTES`."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        text = reader.decompress(body, MAX_REQUEST_BYTES)
    except zlib.error:
        return None
    return text if reader.eof else None


def with_usage_told(document: Any, *, dialect: str) -> Any:
    """A streamed chat request that says nothing about `stream_options.include_usage` asks for the usage."""
    if dialect != CHAT or not isinstance(document, dict) or not document.get("stream"):
        return document
    options = document.get("stream_options") or {}
    if not isinstance(options, dict) or "include_usage" in options:
        return document
    return {**document, "stream_options": {**options, "include_usage": True}}


def read_body(body: bytes, *, encoding: str, dialect: str) -> tuple[bytes, Any, dict[str, str]]:
    """(bytes to send, their JSON or None, headers that describe them)."""
    clear = decompressed(body, encoding)
    if clear is None:
        return body, None, {"Content-Encoding": encoding}
    document = parse_json(clear)
    changed = with_usage_told(document, dialect=dialect)
    if changed is not document:
        return json.dumps(changed).encode(), changed, {}
    return clear, document, {}


def model_in(document: Any) -> str:
    """The model that a request names; empty where it cannot be read."""
    model = document.get("model") if isinstance(document, dict) else None
    return model if isinstance(model, str) else ""
