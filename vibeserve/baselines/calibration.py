"""A fair peer runs in its faster dtype: a short load on each declared one picks it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.baselines.port import Peer, PeerOptions
from vibeserve.baselines.registry import get_peer
from vibeserve.core.nouns import LoadPoint, PromptRequest, Reply
from vibeserve.errors import InfraError
from vibeserve.spec import Tier

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from vibeserve.client import LoadSession
    from vibeserve.hosts import Host

RAMP_S = 12.0
"""load before the window: the first prompts are all prefilled at once, which no later second looks like"""
WINDOW_S = 10.0
WARM_UP_TIMEOUT_S = 240.0
WARM_UP_TOKENS = 8
_NAP_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Document of the choice. `tokens_per_s` is empty where there was nothing to choose."""

    name: str
    version: str
    dtype: str
    flags: tuple[str, ...]
    load: str
    window_s: float
    tokens_per_s: dict[str, float]
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where the short loads run: machine, wall, cores, and the requests (a fresh stream for every dtype)."""

    host: Host
    tier: Tier
    engine_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]
    threads: int
    run_dir: Path
    load: LoadPoint
    requests: Callable[[], Iterator[PromptRequest]]
    tokenizer: Tokenizer
    ramp_s: float = RAMP_S
    window_s: float = WINDOW_S


def calibrate(name: str, *, options: PeerOptions, dtypes: tuple[str, ...], bench: Bench) -> Calibration:
    """Run the peer in each of `dtypes` under load and keep the one with the higher output throughput.

    One declared dtype, or none (the engine's own file), starts nothing. Raises `InfraError` when the peer is absent or
    no dtype gave a token in the window, `ServerError` when a server fails.
    """
    peer = get_peer(name)
    version = peer.installed_version()
    if version is None:
        raise InfraError(f"peer '{name}' is not installed\nnext: {peer.install_command}")
    speeds = {dtype: _speed(peer, replace(options, dtype=dtype), bench) for dtype in dtypes} if len(dtypes) > 1 else {}
    if speeds and not any(speeds.values()):
        raise InfraError(f"peer '{name}' gave no token in {bench.window_s:g} s in any of {', '.join(dtypes)}")
    dtype = max(speeds, key=lambda item: speeds[item]) if speeds else (dtypes[0] if dtypes else "")
    return Calibration(
        name=name,
        version=version,
        dtype=dtype,
        flags=peer.flags(replace(options, dtype=dtype)),
        load=bench.load.name,
        window_s=bench.window_s if speeds else 0.0,
        tokens_per_s={key: round(value, 2) for key, value in speeds.items()},
    )


def _speed(peer: Peer, options: PeerOptions, bench: Bench) -> float:
    """Output tokens per second of one server in one window."""
    from vibeserve.client import LoadSession
    from vibeserve.service import start_server

    server = start_server(
        peer.launch(options),
        host=bench.host,
        tier=bench.tier,
        cpus=bench.engine_cpus,
        threads=bench.threads,
        run_dir=bench.run_dir / options.dtype,
    )

    def load(point: LoadPoint, requests: Iterator[PromptRequest]) -> LoadSession:
        return LoadSession(
            base_url=server.base_url,
            adapter=peer.adapter,
            model=peer.model_name(options),
            load=point,
            requests=requests,
            cpus=bench.client_cpus,
            join=lambda argv: bench.host.join_argv(server.process, argv),
            name=f"calibrate-{peer.name}-{options.dtype}",
        )

    try:
        # a server may build its cache or compile at its first request: that is no part of its speed
        short = (replace(request, max_tokens=WARM_UP_TOKENS) for request in islice(bench.requests(), 1))
        warm_up = load(LoadPoint(name="warm-up", concurrency=1), short)
        warm_up.start()
        try:
            warm_up.wait(timeout_s=WARM_UP_TIMEOUT_S)
        finally:
            warm_up.stop()
        session = load(bench.load, bench.requests())
        session.start()
        try:
            _sleep_active(session, bench.ramp_s + bench.window_s, check=lambda: _check_alive(server.poll(), peer.name))
        finally:
            replies = session.stop()
    finally:
        server.stop()
    return tokens_per_s(replies, start_s=bench.ramp_s, end_s=bench.ramp_s + bench.window_s, tokenizer=bench.tokenizer)


def _check_alive(status: int | None, name: str) -> None:
    if status is not None:
        raise InfraError(f"peer '{name}' ended with status {status} while it was calibrated")


def _sleep_active(session: LoadSession, seconds: float, *, check: Callable[[], None]) -> None:
    end_s = session.active_now_s() + seconds
    while session.active_now_s() < end_s:
        session.check()
        check()
        time.sleep(_NAP_S)


def tokens_per_s(replies: list[Reply], *, start_s: float, end_s: float, tokenizer: Tokenizer) -> float:
    """Tokens of the replies' re-tokenised text that arrived in a window of active seconds, per second.

    Raises `InfraError` when a reply failed: a server that refuses requests has no speed.
    """
    from vibeserve.client import token_arrivals

    failed = next((reply for reply in replies if reply.error not in (None, "cut")), None)
    if failed is not None:
        raise InfraError(f"a request of the calibration failed: {failed.error}")
    arrivals = token_arrivals(replies, tokenizer=tokenizer)
    return sum(1 for times in arrivals for at_s in times if start_s <= at_s < end_s) / (end_s - start_s)
