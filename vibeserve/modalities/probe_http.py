"""What probe programs share: plain HTTP to one server, and expectations that say why they do not hold."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

REQUEST_TIMEOUT_S = 60.0


class ProbeFailure(Exception):
    """A check does not hold; the text says why, without prompt text."""


class ProbeNotRun(Exception):
    """A check cannot be held of this model or server; the text says what is not looked at."""


def expect(holds: bool, detail: str) -> None:
    if not holds:
        raise ProbeFailure(detail)


def expect_error(name: str, status: int, document: Any, *, wanted: int | None = None) -> None:
    """A 4xx (or `wanted`) with the API's error object."""
    is_right = status == wanted if wanted else 400 <= status < 500
    expect(is_right, f"{name} answers {status}, not {wanted or 'a 4xx'}")
    error = document.get("error") if isinstance(document, dict) else None
    expect(
        isinstance(error, dict) and bool(error.get("message")) and "type" in error,
        f"{name} answers no error object with message and type",
    )


class PlainHttp:
    """Requests to one server, each over a connection of its own, none beyond the probes' deadline."""

    def __init__(self, base_url: str, *, deadline_s: float) -> None:
        self.root = base_url.rstrip("/").removesuffix("/v1")
        self._deadline_s = deadline_s

    def ask(
        self, method: str, path: str, *, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, lower-case headers and body."""
        connection = self._connection()
        try:
            connection.request(method, path, body=body, headers={"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def abandon(self, path: str, body: bytes) -> None:
        """POST, and go away without waiting for the answer."""
        connection = self._connection()
        try:
            connection.request("POST", path, body=body, headers={"Content-Type": "application/json"})
        finally:
            connection.close()

    def expect_ok(self, path: str) -> bytes:
        """Body of a GET that is answered with 200."""
        status, _, body = self.ask("GET", path)
        expect(status == 200, f"GET {path} answered {status}")
        return body

    def expect_metrics(self) -> None:
        body = self.expect_ok("/metrics").decode(errors="replace")
        expect("# TYPE " in body, "/metrics is not in the Prometheus text format")

    def expect_request_id(self, path: str, body: bytes) -> None:
        _, headers, _ = self.ask("POST", path, body=body, headers={"x-request-id": "probe-4711"})
        expect(headers.get("x-request-id") == "probe-4711", "x-request-id does not come back")

    def expect_no_json_refused(self, path: str) -> None:
        status, _, body = self.ask("POST", path, body=b"{not json")
        expect_error("a body that is no JSON", status, json.loads(body))

    def _connection(self) -> http.client.HTTPConnection:
        address = urlsplit(self.root)
        timeout_s = max(1.0, min(REQUEST_TIMEOUT_S, self._deadline_s - time.monotonic()))
        return http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=timeout_s)
