"""What an API's refusal means: worth another try later, never, or the client's own doing."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from typing import Any

from vibeserve.agents.proxy.sse import parse_json
from vibeserve.errors import AgentInfraError

_PASSING = frozenset(
    {
        "rate_limit_exceeded", "rate_limit_error", "overloaded_error", "api_error", "timeout_error", "server_error",
        "server_is_overloaded", "slow_down", "internal_error", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL",
        "DEADLINE_EXCEEDED",
    }
)  # fmt: skip
_QUOTA = frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached", "usage_limit_reached"})
_LASTING = frozenset(
    {
        "invalid_api_key", "authentication_error", "permission_error", "model_not_found", "UNAUTHENTICATED",
        "PERMISSION_DENIED", "API_KEY_INVALID",
    }
)  # fmt: skip
_MAX_TEXT = 300


def failure_of(status: int, headers: Mapping[str, str], body: bytes, *, where: str) -> AgentInfraError | None:
    """The error that an answer with `status` >= 400 stands for; None where it is about the request itself."""
    error = error_in(parse_json(body))
    codes = codes_of(error)
    text = f"{where} answered {status}: {message_of(error) or _short(body.decode(errors='replace'))}"
    if status == 402 or codes & _QUOTA:
        return AgentInfraError(f"{text}\nnext: top the account up", retry_after_s=retry_after_s(headers))
    if status in (408, 429) or status >= 500:
        return AgentInfraError(text, retry_after_s=retry_after_s(headers))
    if status in (401, 403):
        return AgentInfraError(f"{text}\nnext: check the key that agents.api_key_env names", is_lasting=True)
    if codes & _LASTING or status == 404 or 300 <= status < 400:
        hint = "next: check agents.model, agents.base_url and the key that agents.api_key_env names"
        return AgentInfraError(f"{text}\n{hint}", is_lasting=True)
    return None


def told_failure(error: Mapping[str, Any], *, where: str) -> AgentInfraError | None:
    """The same for an error inside an answer with status 200."""
    codes = codes_of(error)
    text = f"{where} broke its answer off: {message_of(error) or ', '.join(sorted(codes))}"
    if codes & _QUOTA:
        return AgentInfraError(f"{text}\nnext: top the account up")
    if codes & _PASSING or any(code.startswith("5") or code == "429" for code in codes):
        return AgentInfraError(text)
    if codes & _LASTING:
        return AgentInfraError(text, is_lasting=True)
    return None


def error_in(document: Any) -> Mapping[str, Any]:
    """The error object of a body; empty where there is none. Gemini may wrap it in a list."""
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, Mapping):
        return {}
    error = document.get("error")
    if isinstance(error, Mapping):
        return error
    return {"message": error} if isinstance(error, str) else document


def codes_of(error: Mapping[str, Any]) -> set[str]:
    """Everything in an error object that names its kind."""
    details = error.get("details")
    listed = details if isinstance(details, list) else []
    reasons = [detail.get("reason") for detail in listed if isinstance(detail, Mapping)]
    named = [error.get("code"), error.get("type"), error.get("status"), *reasons]
    return {str(name) for name in named if isinstance(name, str | int)}


def message_of(error: Mapping[str, Any]) -> str:
    message = error.get("message") or error.get("detail")
    if message is None:
        return ""
    return _short(message if isinstance(message, str) else json.dumps(message))


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_TEXT else flat[:_MAX_TEXT] + " ..."


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """What the API asks to wait, in seconds: `retry-after-ms`, or `Retry-After` as a number or a date (RFC 9110)."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("Retry-After")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        when = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, when.timestamp() - time.time())


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
