"""What went wrong with a request, and what follows: another API, one parameter less, a shorter context, the end of the
call, or an error for the caller to wait upon."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from vibeserve.agents.openai_loop.dialects import OPTIONAL
from vibeserve.errors import AgentInfraError

if TYPE_CHECKING:
    import openai

NO_ROUTE = (404, 405, 501)
_UNKNOWN_PATH = re.compile(r"\b(unknown|invalid|unsupported|unrecogni[sz]ed|no such) (path|url|route|endpoint)")
_NO_MODEL = re.compile(r"\bmodel\b.{0,120}\b(not found|not exist|unknown|not available|not loaded|no access)", re.S)
_TOO_LONG = re.compile(r"context[ _](length|window|size)|maximum context|prompt is too long|too many (input )?tokens")
_FILTERED = ("content_filter", "content_policy_violation", "invalid_prompt")
_TRANSIENT = (408, 409, 425, 429)
_MAX_TEXT = 500


class Kind(Enum):
    ROUTE = "the server has no such route"
    PARAMETER = "the server does not know a parameter"
    CONTEXT = "the context is too long"
    CONTENT = "the provider does not answer this"
    OVERDUE = "the call's time is over"
    API = "the API failed"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Of one request."""

    kind: Kind
    text: str
    """one line for people, with the address and the server's own words"""
    status: int = 0
    """0 = no answer came"""
    parameter: str = ""
    """PARAMETER: which"""
    retry_after_s: float | None = None
    is_lasting: bool = False

    def error(self) -> AgentInfraError:
        return AgentInfraError(self.text, retry_after_s=self.retry_after_s, is_lasting=self.is_lasting)


def status_failure(error: openai.APIStatusError, *, url: str, key_variable: str, sent: Mapping[str, Any]) -> Failure:
    """Of an answer with a status of 400 and above. `sent` is the request's body."""
    status = error.status_code
    words = _words_of(error)
    text = f"{url} answered {status}: {words}"
    code = f"{error.code or ''} {error.type or ''}"
    if status in (401, 403):
        hint = f"next: look at the key in {key_variable}, and at what it may use"
        return Failure(kind=Kind.API, status=status, text=f"{text}\n{hint}", is_lasting=True)
    if status in (*NO_ROUTE, 400, 422) and _is_about_model(error, words, model=str(sent["model"])):
        hint = f"next: is agents.model={sent['model']} a model of this server?"
        return Failure(kind=Kind.API, status=status, text=f"{text}\n{hint}", is_lasting=True)
    if status in NO_ROUTE or (status == 400 and _UNKNOWN_PATH.search(words.lower())):
        return Failure(kind=Kind.ROUTE, status=status, text=text, is_lasting=True)
    if status in _TRANSIENT or status >= 500:
        # without quota a repetition helps as soon as somebody has paid
        return Failure(kind=Kind.API, status=status, text=text, retry_after_s=retry_after_s(error.response.headers))
    if "context_length" in code or status == 413 or _TOO_LONG.search(words.lower()):
        return Failure(kind=Kind.CONTEXT, status=status, text=text, is_lasting=True)
    if any(name in code for name in _FILTERED):
        return Failure(kind=Kind.CONTENT, status=status, text=text)
    refused = [name for name in OPTIONAL if name in sent and (error.param == name or re.search(rf"\b{name}\b", words))]
    if refused:
        return Failure(kind=Kind.PARAMETER, status=status, text=text, parameter=refused[0], is_lasting=True)
    return Failure(kind=Kind.API, status=status, text=text, is_lasting=True)


def connection_failure(error: openai.APIConnectionError, *, url: str) -> Failure:
    """Of a request that got no answer."""
    cause = error.__cause__
    reason = f"{type(cause).__name__}: {cause}" if cause is not None and str(cause) else type(cause or error).__name__
    return Failure(kind=Kind.API, text=f"no answer from {url} ({reason})")


def reported_failure(data: Any, *, url: str) -> Failure | None:
    """Of an answer with status 200 that says in its body that it failed; None where it does not."""
    told = data.get("error") if isinstance(data, dict) else None
    if not told:
        return None
    row = told if isinstance(told, dict) else {"message": str(told)}
    words = " ".join(str(row.get("message") or row)[:_MAX_TEXT].split())
    is_filtered = any(name in str(row.get("code")) for name in _FILTERED)
    return Failure(kind=Kind.CONTENT if is_filtered else Kind.API, status=200, text=f"{url} reports: {words}")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait (RFC 9110, 10.2.3, and `retry-after-ms`); None where it does not."""
    for name, factor in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * factor
        except ValueError:
            date = email.utils.parsedate_tz(value)
            seconds = email.utils.mktime_tz(date) - time.time() if date is not None else math.nan
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _words_of(error: openai.APIStatusError) -> str:
    body = error.body
    told = body.get("message") or body.get("detail") if isinstance(body, dict) else body
    return " ".join(str(told or error.message)[:_MAX_TEXT].split())


def _is_about_model(error: openai.APIStatusError, words: str, *, model: str) -> bool:
    if error.code == "model_not_found":
        return True
    return bool(_NO_MODEL.search(words.lower())) and (error.param == "model" or model.lower() in words.lower())
