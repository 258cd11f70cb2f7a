"""Where requests go: the provider's address and key, and the HTTP that carries them."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from vibeserve.agents.proxy.dialects import DIALECTS, PROVIDERS, Route
from vibeserve.errors import AgentInfraError

_CONNECT_TIMEOUT_S = 30.0
_ANTHROPIC_VERSION = "2023-06-01"


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """The API that speaks one dialect. Made by `upstream_of`."""

    dialect: str
    base_url: str
    api_key_env: str
    """name of the variable that holds the key; empty = none is sent"""

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.base_url)

    def key(self) -> str:
        """The key, read now; empty where none is needed. Raises AgentInfraError that names an absent variable."""
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        if not key and not self.is_loopback:
            text = (
                f"{self.base_url} needs a key, and the environment variable {self.api_key_env} is not set\n"
                f"next: export {self.api_key_env}=..., or name another variable by agents.api_key_env"
            )
            raise AgentInfraError(text, is_lasting=True)
        return key


def upstream_of(dialect: str, *, base_url: str = "", api_key_env: str = "") -> Upstream:
    """The API that speaks `dialect` (one of `DIALECTS`). What is empty is the provider's own.

    Anthropic's and Google's clients take a base URL without the version and OpenAI's with it; a version at the end is
    accepted for every dialect. A server on the loopback is sent a key only where a variable is named: the provider's
    key is none of its business.
    """
    assert dialect in DIALECTS, f"{dialect} is none of {', '.join(DIALECTS)}"
    provider = PROVIDERS[dialect]
    base = (base_url or provider.base_url).rstrip("/")
    if provider.prefix:
        base = re.sub(r"/v1(alpha|beta)?$", "", base)
    name = api_key_env or ("" if _is_loopback(base) else provider.api_key_env)
    return Upstream(dialect=dialect, base_url=base, api_key_env=name)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_headers(dialect: str, key: str) -> dict[str, str]:
    """What the API takes the key by; nothing without one."""
    provider = PROVIDERS[dialect]
    return {provider.key_header: provider.key_prefix + key} if key else {}


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """One request as it is sent on."""

    upstream: Upstream
    method: str
    route: Route
    query: str
    headers: Mapping[str, str]
    """of the client, cleaned; the key is not among them"""
    key: str
    body: bytes
    document: Any
    """the body read as JSON; None where it could not be read"""
    model: str

    @property
    def url(self) -> str:
        return self.upstream.base_url + self.route.path + (f"?{self.query}" if self.query else "")


class UpstreamError(Exception):
    """The API gave no answer, or broke off. `status` is what a gateway answers then."""

    def __init__(self, message: str, *, status: int, is_lasting: bool = False) -> None:
        self.status = status
        self.is_lasting = is_lasting
        super().__init__(message)


class Answer(Protocol):
    """What came back, while it comes."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it arrives. Raises UpstreamError where it breaks off."""
        ...


class Transport(Protocol):
    """Carries requests to an API, or stands in for it."""

    is_offline: bool
    """no key is needed"""

    def send(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Answer]:
        """Raises UpstreamError where there is no answer."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    """HTTP by aiohttp. Redirects are not followed: they would carry the key elsewhere."""

    is_offline = False

    def __init__(self, *, read_timeout_s: float) -> None:
        """`read_timeout_s`: longest silence of the API, before its first byte and between two."""
        self._read_timeout_s = read_timeout_s
        self._session: Any = None

    @asynccontextmanager
    async def send(self, outgoing: Outgoing) -> AsyncIterator[Answer]:
        import aiohttp

        headers = {**outgoing.headers, **key_headers(outgoing.upstream.dialect, outgoing.key)}
        if outgoing.upstream.dialect == "messages":
            names = {name.lower() for name in headers}
            headers |= {} if "anthropic-version" in names else {"anthropic-version": _ANTHROPIC_VERSION}
        try:
            answer = await self._opened().request(
                outgoing.method, outgoing.url, data=outgoing.body or None, headers=headers, allow_redirects=False,
                proxy=_system_proxy(outgoing.url),
            )  # fmt: skip
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._explained(error, outgoing) from error
        try:
            yield _HttpAnswer(answer, lambda error: self._explained(error, outgoing))
        finally:
            answer.close()

    def _opened(self) -> Any:
        import aiohttp

        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=self._read_timeout_s
            )  # fmt: skip
            self._session = aiohttp.ClientSession(
                timeout=timeout, auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _explained(self, error: Exception, outgoing: Outgoing) -> UpstreamError:
        where = outgoing.upstream.base_url
        if isinstance(error, TimeoutError):
            return UpstreamError(f"{where} was silent for {self._read_timeout_s:g} s", status=504)
        detail = str(error) or type(error).__name__
        return UpstreamError(f"{where} cannot be reached, or broke off: {detail}", status=502)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class _HttpAnswer:
    def __init__(self, answer: Any, explained: Any) -> None:
        self.status: int = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._answer = answer
        self._explained = explained

    async def chunks(self) -> AsyncIterator[bytes]:
        import aiohttp

        try:
            async for chunk in self._answer.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._explained(error) from error


def _system_proxy(url: str) -> str | None:
    """The HTTP proxy that this machine declares for `url` (HTTPS_PROXY and its like), never for the loopback."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    if _is_loopback(url) or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
