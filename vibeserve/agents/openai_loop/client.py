"""Asks a model's API through the SDK: key, time limit, the API that the server speaks, parameters that it takes."""

from __future__ import annotations

import ipaddress
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vibeserve.agents.openai_loop.conversation import CHARS_PER_TOKEN, Conversation, ModelTurn
from vibeserve.agents.openai_loop.dialects import CHAT, RESPONSES, Asked, Dialect, NoAnswerError
from vibeserve.agents.openai_loop.exchanges import ExchangeLog
from vibeserve.agents.openai_loop.failures import Failure, Kind, connection_failure, reported_failure, status_failure
from vibeserve.agents.requests import AgentUsage
from vibeserve.errors import AgentInfraError, InfraError
from vibeserve.spec import RoleAgent

if TYPE_CHECKING:
    import httpx2
    import openai

OFFICIAL_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
PLACEHOLDER = "none"
"""sent to a server on this machine when there is no key: clients must send one, such servers seldom look at it"""
CONNECT_TIMEOUT_S = 30.0
_GRACE_S = 0.05
_DIED = object()

ClientFactory = Callable[[str, str], "openai.OpenAI"]
"""(base_url, api_key) -> a client that repeats nothing by itself"""


def default_client(base_url: str, api_key: str) -> openai.OpenAI:
    """The SDK's client. The key is sent whatever headers the environment asks for; a server on this machine is asked
    without a proxy."""
    import openai

    return openai.OpenAI(
        base_url=base_url, api_key=api_key, max_retries=0, default_headers={"Authorization": f"Bearer {api_key}"},
        http_client=openai.DefaultHttpxClient(trust_env=not is_loopback(base_url)),
    )  # fmt: skip


@dataclass(kw_only=True)
class Wire:
    """What was found out about the server; one for all calls of a back end."""

    declared: str
    """agents.api: auto, responses or chat"""
    dialect: Dialect = RESPONSES
    is_settled: bool = False
    """it has answered in this dialect"""
    refused: set[str] = field(default_factory=set)
    """parameters that it does not take"""

    def __post_init__(self) -> None:
        self.dialect = CHAT if self.declared == "chat" else RESPONSES


@dataclass(frozen=True, kw_only=True)
class Answered:
    turn: ModelTurn
    usage: AgentUsage
    is_estimate: bool
    recorded_index: int = -1
    """which of the call's answered requests it was, where a killed process had asked it; -1 = it was asked now"""


class ModelClient:
    """For one call of an agent. AgentInfraError at once when there is no key or no usable address."""

    def __init__(self, agent: RoleAgent, *, wire: Wire, make_client: ClientFactory) -> None:
        self._url = checked_url(agent)
        self._variable = agent.api_key_env or KEY_VARIABLE
        self._key = key_of(agent, url=self._url)
        self._wire = wire
        self._client = make_client(self._url, self._key)

    def ask(
        self, conversation: Conversation, *, asked: Asked, left_s: Callable[[], float], check: Callable[[], None],
        log: ExchangeLog, note: Callable[[str], None],
    ) -> Answered | Failure:  # fmt: skip
        """The next answer. A failure is returned where the call can end or go on in another way, and raised as
        AgentInfraError where the caller has to wait or to give up. `check` is called before every request.

        What a killed process of this run was answered to the same request is not asked, nor paid, again.
        """
        while True:
            dialect = self._wire.dialect
            body = dialect.body(conversation, asked)
            taken = {key: value for key, value in body.items() if key not in self._wire.refused}
            answer: Answered | Failure | None = self._answered_before(dialect, taken, log=log)
            if answer is None:
                check()
                answer = self._exchange(dialect, taken, left_s=left_s, log=log)
            if isinstance(answer, Answered):
                self._wire.is_settled = True
                return answer
            if answer.kind in (Kind.CONTEXT, Kind.CONTENT, Kind.OVERDUE):
                return answer
            note(self._adapted(answer, dialect))

    def close(self) -> None:
        self._client.close()

    def _adapted(self, failure: Failure, dialect: Dialect) -> str:
        """What the next request does otherwise. AgentInfraError where there is nothing left to do."""
        if failure.kind is Kind.PARAMETER:
            self._wire.refused.add(failure.parameter)
            return f"{failure.text}; asked again without {failure.parameter}"
        if failure.kind is not Kind.ROUTE:
            raise failure.error()
        if self._wire.is_settled:
            # it has answered here before: a route does not vanish, a server behind a balancer may
            raise replace(failure, is_lasting=False).error()
        if self._wire.declared == "auto" and dialect is RESPONSES:
            self._wire.dialect = CHAT
            return f"{failure.text}; Chat Completions from now on"
        tried = "neither Responses nor Chat Completions" if self._wire.declared == "auto" else f"no {dialect.path}"
        hint = f"next: look at agents.base_url ({self._url}), which must end before {dialect.path}, and at agents.api"
        raise replace(failure, text=f"{failure.text}\nthe server has {tried}\n{hint}").error()

    def _answered_before(self, dialect: Dialect, body: dict[str, Any], *, log: ExchangeLog) -> Answered | None:
        known = log.take(body)
        if known is None:
            return None
        answer = self._understood(known.answer, dialect, body, url=self._url + dialect.path)
        return replace(answer, recorded_index=known.index) if isinstance(answer, Answered) else None

    def _exchange(
        self, dialect: Dialect, body: dict[str, Any], *, left_s: Callable[[], float], log: ExchangeLog
    ) -> Answered | Failure:
        start_s = time.monotonic()
        data, status, answer = self._send(dialect, body, left_s=left_s)
        log.add(
            body, api=dialect.name, items_key=dialect.items_key, status=status, seconds=time.monotonic() - start_s,
            answer=data, error=answer.text if isinstance(answer, Failure) else "",
        )  # fmt: skip
        return answer

    def _send(
        self, dialect: Dialect, body: dict[str, Any], *, left_s: Callable[[], float]
    ) -> tuple[Any, int, Answered | Failure]:
        """(document of the answer, its status, what it means)"""
        import httpx2
        import openai

        url, limit_s = self._url + dialect.path, max(_GRACE_S, left_s())
        timeout = httpx2.Timeout(limit_s, connect=min(CONNECT_TIMEOUT_S, limit_s))
        said = _within(
            lambda: self._client.post(dialect.path, cast_to=httpx2.Response, body=body, options={"timeout": timeout}),
            limit_s=limit_s,
        )
        if said is None or (isinstance(said, openai.APITimeoutError) and left_s() <= _GRACE_S):
            return None, 0, Failure(kind=Kind.OVERDUE, text=f"{url} had not answered after {limit_s:.3g} s")
        if isinstance(said, openai.APIStatusError):
            told = status_failure(said, url=url, key_variable=self._variable, sent=body)
            cleaned: Failure = replace(told, text=clean(told.text, key=self._key))
            return clean(said.body, key=self._key), said.status_code, cleaned
        if isinstance(said, openai.APIConnectionError):
            return None, 0, connection_failure(said, url=url)
        if isinstance(said, openai.APIError):
            return None, 0, Failure(kind=Kind.API, text=f"{url}: {clean(said.message, key=self._key)}")
        return self._read(said, dialect, body, url=url)

    def _read(
        self, response: httpx2.Response, dialect: Dialect, body: dict[str, Any], *, url: str
    ) -> tuple[Any, int, Answered | Failure]:
        status = response.status_code
        try:
            data = clean(json.loads(response.content), key=self._key)
        except ValueError:
            head = clean(response.text[:200], key=self._key)
            return head, status, Failure(kind=Kind.API, text=f"{url} answered {status} with what is no JSON: {head!r}")
        return data, status, self._understood(data, dialect, body, url=url)

    def _understood(self, data: Any, dialect: Dialect, body: dict[str, Any], *, url: str) -> Answered | Failure:
        failed = reported_failure(data, url=url)
        if failed is not None:
            return failed
        try:
            turn = dialect.turn(data)
        except NoAnswerError as error:
            return Failure(kind=Kind.API, text=f"{url}: no answer of the {dialect.name} API: {error}")
        if turn.usage is not None:
            return Answered(turn=turn, usage=turn.usage, is_estimate=False)
        return Answered(turn=turn, usage=estimated_usage(body, turn), is_estimate=True)


def estimated_usage(body: dict[str, Any], turn: ModelTurn) -> AgentUsage:
    """By characters, for servers that do not count."""
    written = len(turn.text) + len(turn.reasoning) + len(turn.refusal) + sum(len(call.arguments) for call in turn.calls)
    sent = len(json.dumps(body, ensure_ascii=False, default=dict))
    return AgentUsage(
        input_tokens=sent // CHARS_PER_TOKEN, output_tokens=-(-written // CHARS_PER_TOKEN), num_requests=1
    )


def key_of(agent: RoleAgent, *, url: str) -> str:
    """The key, from the environment of this process. AgentInfraError that names the variable when it is not set."""
    variable = agent.api_key_env or KEY_VARIABLE
    key = os.environ.get(variable, "").strip()
    if not key and is_loopback(url):
        return PLACEHOLDER
    if not key:
        raise AgentInfraError(
            f"no key for {url}: the environment variable {variable} is not set\n"
            f"next: set it, or name another one in agents.api_key_env",
            is_lasting=True,
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        text = f"the environment variable {variable} holds no key: it has blanks or signs beyond ASCII"
        raise AgentInfraError(text, is_lasting=True)
    return key


def checked_url(agent: RoleAgent) -> str:
    """The API's address without a slash at its end. AgentInfraError for what is no HTTP address."""
    url = (agent.base_url or OFFICIAL_URL).strip().rstrip("/")
    if _is_http(url):
        return url
    text = f"back end openai, role {agent.role}: base_url '{agent.base_url}' is no http or https address"
    raise AgentInfraError(f"{text}\nnext: set agents.base_url, such as http://127.0.0.1:8000/v1", is_lasting=True)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in url
    except ValueError:  # a port or an IPv6 address that is none
        return False


def is_loopback(url: str) -> bool:
    """Whether the address is one of this machine alone."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def clean(data: Any, *, key: str) -> Any:
    """JSON data without the key, should a server echo it, and without half surrogates, which no file takes."""
    if isinstance(data, dict):
        return {clean(name, key=key): clean(value, key=key) for name, value in data.items()}
    if isinstance(data, list):
        return [clean(value, key=key) for value in data]
    if not isinstance(data, str):
        return data
    text = data.encode("utf-8", errors="replace").decode("utf-8")
    return text if key == PLACEHOLDER else text.replace(key, "[key]")


def _within(call: Callable[[], httpx2.Response], *, limit_s: float) -> httpx2.Response | openai.APIError | None:
    """What `call` returns, or the SDK's error; None after `limit_s` seconds.

    The SDK's own limit is one on every read: a server that sends a byte now and then would hold a call for ever. The
    thread of a call that is given up ends with the read that it waits for.
    """
    import openai

    box: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def work() -> None:
        try:
            box.put(call())
        except openai.APIError as error:
            box.put(error)
        finally:
            box.put(_DIED)

    threading.Thread(target=work, name="vibeserve-model", daemon=True).start()
    try:
        said = box.get(timeout=limit_s + _GRACE_S)
    except queue.Empty:
        return None
    if said is _DIED:
        raise InfraError("the request to the model broke off inside the client; its trace is above")
    answer: httpx2.Response | openai.APIError = said
    return answer
