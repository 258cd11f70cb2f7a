"""Errors of the API, in the shape of OpenAI's."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """An error of the API: HTTP status and the fields of its error object."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        self.param = param
        self.code = code
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = "server_error" if self.status >= 500 else kinds.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}
