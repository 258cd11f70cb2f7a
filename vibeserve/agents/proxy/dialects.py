"""The four ways in which clients speak to models: which requests there are, where they go, how errors look.

Sources: the API references of OpenAI (Responses, Chat Completions), Anthropic (Messages) and Google (Gemini).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RESPONSES, CHAT, MESSAGES, GEMINI = "responses", "chat", "messages", "gemini"
DIALECTS = (RESPONSES, CHAT, MESSAGES, GEMINI)
_GEMINI_CALL = re.compile(
    r"/(?P<version>v1|v1alpha|v1beta)?/?models/(?P<model>[\w.-]+):"
    r"(?P<method>generateContent|streamGenerateContent|countTokens)$"
)
_GEMINI_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    502: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_ANTHROPIC_TYPE = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
}


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Whose API a dialect is, and how it takes its key."""

    base_url: str
    api_key_env: str
    key_header: str
    key_prefix: str = ""
    prefix: str = ""
    """of every path, after a base URL"""


_OPENAI = Provider(
    base_url="https://api.openai.com/v1", api_key_env="OPENAI_API_KEY", key_header="Authorization",
    key_prefix="Bearer ",
)  # fmt: skip
PROVIDERS: Mapping[str, Provider] = {
    RESPONSES: _OPENAI,
    CHAT: _OPENAI,
    MESSAGES: Provider(
        base_url="https://api.anthropic.com", api_key_env="ANTHROPIC_API_KEY", key_header="x-api-key", prefix="/v1"
    ),
    GEMINI: Provider(
        base_url="https://generativelanguage.googleapis.com", api_key_env="GEMINI_API_KEY",
        key_header="x-goog-api-key", prefix="/v1beta",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Route:
    """One request that is let through."""

    dialect: str
    path: str
    """below the upstream's base URL; nothing of the client's but a model's name is in it"""
    is_metered: bool = True
    model: str = ""
    """Gemini names it in the path"""


def route_of(method: str, path: str, *, dialects: Sequence[str]) -> Route | None:
    """Where a client's request goes; None for what is not let through. `path` is decoded and without its query."""
    if method == "GET":
        return _models(path, dialects)
    if method != "POST":
        return None
    for dialect, end in ((RESPONSES, "/responses"), (CHAT, "/chat/completions"), (MESSAGES, "/messages")):
        if path.endswith(end):
            return _known(Route(dialect=dialect, path=PROVIDERS[dialect].prefix + end), dialects)
    if path.endswith("/messages/count_tokens"):
        return _known(Route(dialect=MESSAGES, path="/v1/messages/count_tokens", is_metered=False), dialects)
    return _gemini(path, dialects)


def _known(route: Route, dialects: Sequence[str]) -> Route | None:
    return route if route.dialect in dialects else None


def _models(path: str, dialects: Sequence[str]) -> Route | None:
    if not path.endswith("/models") or not dialects:
        return None
    return Route(dialect=dialects[0], path=f"{PROVIDERS[dialects[0]].prefix}/models", is_metered=False)


def _gemini(path: str, dialects: Sequence[str]) -> Route | None:
    call = _GEMINI_CALL.search(path)
    if call is None:
        return None
    version = call["version"] or "v1beta"
    route = Route(
        dialect=GEMINI, path=f"/{version}/models/{call['model']}:{call['method']}", model=call["model"],
        is_metered=call["method"] != "countTokens",
    )  # fmt: skip
    return _known(route, dialects)


def error_body(dialect: str, *, status: int, code: str, message: str) -> dict[str, Any]:
    """An error of ours as a client of that dialect expects it from its provider."""
    if dialect == MESSAGES:
        kind = _ANTHROPIC_TYPE.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if dialect == GEMINI:
        return {"error": {"code": status, "message": message, "status": _GEMINI_STATUS.get(status, "UNKNOWN")}}
    kind = "api_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
