"""The request whose whole reply ends a start: a server is ready when it has served, not when it says so.

It is what the workload's own `send` would post first, so it fits any modality; the readiness probe posts it from inside
the server's network. A runtime that loads its weights at the first request has them in its start-up time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Pool, Request, Response, SendError, Socket

if TYPE_CHECKING:
    from vibeserve.modalities import Bundle

MODEL = "the-model-that-the-server-lists"
"""stands for its name, which nobody knows before the server is up (`poller`)"""
_SEND_TIMEOUT_S = 10.0
"""for a `send` that goes on though its request has failed"""


@dataclass(frozen=True, kw_only=True)
class FirstRequest:
    """One POST. `body` is JSON text."""

    path: str
    body: str


def first_request(bundle: Bundle, *, seed: int, dialect: str = "vllm", model: str = "") -> FirstRequest | None:
    """The cheapest that the workload has, of the pool that anybody may see. None for a `send` that posts nothing:
    then readiness is what the server says. ContractError where the target's own file fails."""
    with bundle.blamed("workload"):
        request = next(bundle.workload.requests(seed, Pool.visible))
    request = bundle.plain(bundle.shortened(request))
    session = _Posted(dialect=dialect, model=model or MODEL)
    with bundle.blamed("workload"):
        asyncio.run(_send(bundle, session, request))
    return session.found


async def _send(bundle: Bundle, session: _Posted, request: Request) -> None:
    try:
        await asyncio.wait_for(bundle.workload.send(session, request), _SEND_TIMEOUT_S)
    except (SendError, TimeoutError):
        return


class _Posted:
    """A `contract.Session` that sends nothing and keeps the first post."""

    def __init__(self, *, dialect: str, model: str) -> None:
        self.dialect, self.model = dialect, model
        self.found: FirstRequest | None = None

    def now_s(self) -> float:
        return 0.0

    async def post(self, path: str, body: Any, *, on_line: Callable[[float, bytes], None] | None = None) -> Response:
        if self.found is None:
            self.found = FirstRequest(path=f"/{path.lstrip('/')}", body=json.dumps(body))
        await asyncio.sleep(0)  # a `send` that only ever tries again must not keep the loop to itself
        raise SendError("nothing is sent yet")

    async def connect(self, path: str, *, on_message: Callable[[float, str], None]) -> Socket:
        """No post: a server that is spoken to over a WebSocket is ready when it says so."""
        await asyncio.sleep(0)
        raise SendError("nothing is sent yet")
