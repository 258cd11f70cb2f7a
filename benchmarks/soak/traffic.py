"""The requests of a soak, many kinds in turn, and a few clients that send them."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

LEAVE, REFUSED, OK = "left", "refused", "served"
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {"a": {"enum": [1, 2, 3]}}}},
}
KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("streamed", OK, {"stream": True}),
    ("whole", OK, {}),
    ("streamed", OK, {"stream": True}),
    ("left", LEAVE, {"stream": True, "max_tokens": 64}),
    ("sampled", OK, {"temperature": 1.0, "top_p": 0.9}),
    ("choices", OK, {"temperature": 1.0, "n": 2}),
    ("constrained", OK, {"response_format": FORM, "ignore_eos": False, "max_tokens": 32}),
    ("stopped", OK, {"stream": True, "stop": ["e", "\n"]}),
    ("logprobs", OK, {"logprobs": 5}),
    ("predicted", OK, {"prediction": {"type": "content", "content": "the same words again"}}),
    ("empty", REFUSED, {"prompt": ""}),
    ("too long", REFUSED, {"max_tokens": 1 << 20}),
)
"""name, what becomes of it, and how it differs from a greedy reply of 8 tokens"""
OVERLOADED = (429, 503)
RETRY_S = 0.05
REQUEST_TIMEOUT_S = 120.0


@dataclass(kw_only=True)
class Tally:
    """What became of the requests so far."""

    num_sent: int = 0
    num_retried: int = 0
    """overloaded, and sent again"""
    outcomes: Counter[str] = field(default_factory=Counter)
    """by kind"""
    faults: list[str] = field(default_factory=list)
    """the first few answers that were not as they had to be"""
    num_faults: int = 0


def requests() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(kind, what has to become of it, body), for ever. No two prompts are alike."""
    for number in count():
        name, outcome, fields = KINDS[number % len(KINDS)]
        body = {"prompt": f"{number}: once upon a time there was", "temperature": 0, "ignore_eos": True}
        yield name, outcome, {**body, "max_tokens": 8, **fields}


async def drive(
    base_url: str, *, num_requests: int, concurrency: int, limit_s: float, watch: Callable[[Tally], None]
) -> Tally:
    """Send `num_requests`, so many at a time; stop after `limit_s` seconds at the latest. `watch` is called after each
    of them."""
    import aiohttp

    tally, stream = Tally(), islice(requests(), num_requests)
    deadline_s = time.monotonic() + limit_s
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)

    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=concurrency)) as session:

        async def client() -> None:
            for name, outcome, body in stream:
                if time.monotonic() > deadline_s:
                    return
                fault = await _send(session, f"{base_url}/v1/completions", body, outcome=outcome, tally=tally)
                tally.num_sent += 1
                tally.outcomes[name] += 1
                if fault:
                    tally.num_faults += 1
                    tally.faults += [f"{name}: {fault}"] if len(tally.faults) < 5 else []
                watch(tally)

        await asyncio.gather(*(client() for _ in range(concurrency)))
    return tally


async def _send(session: Any, url: str, body: dict[str, Any], *, outcome: str, tally: Tally) -> str:
    """What was wrong with the answer; empty where nothing was."""
    import aiohttp

    while True:
        try:
            async with session.post(url, json=body) as answer:
                if answer.status in OVERLOADED:
                    tally.num_retried += 1
                    await asyncio.sleep(RETRY_S)
                    continue
                if outcome == LEAVE:
                    await answer.content.readline()
                    # the connection goes, not only the answer
                    answer.close()
                    return "" if answer.status == 200 else f"status {answer.status}"
                return _fault(answer.status, await answer.text(), body, outcome=outcome)
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{type(error).__name__}: {error}"


def _fault(status: int, text: str, body: dict[str, Any], *, outcome: str) -> str:
    if status != (400 if outcome == REFUSED else 200):
        return f"status {status}: {text[:200]}"
    if body.get("stream"):
        return "" if text.endswith("data: [DONE]\n\n") else f"a stream that ends with {text[-60:]!r}"
    if outcome == REFUSED:
        return "" if "error" in json.loads(text) else "a refusal without an error object"
    num_choices = len(json.loads(text)["choices"])
    return "" if num_choices == body.get("n", 1) else f"{num_choices} choices"
