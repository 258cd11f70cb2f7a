"""A fair peer runs in its faster dtype: a short load on each declared one picks it, by a rate of its workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.baselines.port import Peer, PeerOptions
from vibeserve.baselines.registry import get_peer
from vibeserve.contract import CUT, Metric, Record, Request
from vibeserve.core.nouns import LoadPoint
from vibeserve.errors import InfraError
from vibeserve.sandbox import Resources
from vibeserve.spec import Tier

if TYPE_CHECKING:
    from vibeserve.client import LoadSession
    from vibeserve.hosts import Host
    from vibeserve.modalities import Bundle
    from vibeserve.service import Server

RAMP_S = 12.0
"""load before the window: the first prompts are all prefilled at once, which no later second looks like"""
WINDOW_S = 10.0
WARM_UP_TIMEOUT_S = 240.0
_NAP_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Document of the choice. `speeds` by dtype, in the metric's unit, is empty where there was nothing to choose."""

    name: str
    version: str
    dtype: str
    flags: tuple[str, ...]
    load: str
    window_s: float
    metric: str
    speeds: dict[str, float]
    schema_version: int = 2


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where the short loads run: machine, wall, cores, and the requests (a fresh stream for every dtype).

    `speed` reads `metric`, a rate, from the records of a window [start_s, end_s) of active seconds; None = no value.
    """

    host: Host
    tier: Tier
    engine_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]
    threads: int
    run_dir: Path
    load: LoadPoint
    bundle: Bundle
    requests: Callable[[], Iterator[Request]]
    warm_up: Callable[[], Iterator[Request]]
    metric: Metric
    speed: Callable[[Sequence[Record], float, float], float | None]
    ramp_s: float = RAMP_S
    window_s: float = WINDOW_S
    resources: Resources = field(default_factory=Resources)
    exclusive: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
    """holds the device around the measured load (`vibeserve.lease`)"""
    start: Callable[..., Server] | None = None
    """on another machine: what starts a server there (`RemoteBench.start`)"""
    load_session: Callable[..., LoadSession] | None = None
    """on another machine: what makes a load there (`RemoteBench.load_session`)"""


def calibrate(name: str, *, options: PeerOptions, dtypes: tuple[str, ...], bench: Bench) -> Calibration:
    """Run the peer in each of `dtypes` under load and keep the one with the higher rate of `bench.metric`.

    One declared dtype, or none (the engine's own file), starts nothing. Raises `InfraError` when the peer is absent or
    no dtype has a rate above 0 in the window, `ServerError` when a server fails.
    """
    peer = get_peer(name)
    version = peer.installed_version()
    if version is None:
        raise InfraError(f"peer '{name}' is not installed\nnext: {peer.install_command}")
    speeds = {dtype: _speed(peer, replace(options, dtype=dtype), bench) for dtype in dtypes} if len(dtypes) > 1 else {}
    if speeds and not any(speeds.values()):
        what = f"{bench.metric.name} above 0 in {bench.window_s:g} s"
        raise InfraError(f"peer '{name}' has no {what} in any of {', '.join(dtypes)}")
    dtype = max(speeds, key=lambda item: speeds[item]) if speeds else (dtypes[0] if dtypes else "")
    return Calibration(
        name=name,
        version=version,
        dtype=dtype,
        flags=peer.flags(replace(options, dtype=dtype)),
        load=bench.load.name,
        window_s=bench.window_s if speeds else 0.0,
        metric=bench.metric.name,
        speeds={key: round(value, 2) for key, value in speeds.items()},
    )


def _speed(peer: Peer, options: PeerOptions, bench: Bench) -> float:
    """Rate of one server in one window."""
    server = _started(peer, options, bench)

    def load(point: LoadPoint, requests: Iterator[Request]) -> LoadSession:
        return _load(peer, options, bench, server=server, point=point, requests=requests)

    try:
        # a server may build its cache or compile at its first request: that is no part of its speed
        warm_up = load(LoadPoint(name="warm-up", concurrency=1), bench.warm_up())
        warm_up.start()
        try:
            warm_up.wait(timeout_s=WARM_UP_TIMEOUT_S)
        finally:
            warm_up.stop()
        server.pause()
        with bench.exclusive(f"calibration of {peer.name} in {options.dtype}"):
            server.resume()
            session = load(bench.load, bench.requests())
            session.start()
            try:
                length_s = bench.ramp_s + bench.window_s
                _sleep_active(session, length_s, check=lambda: _check_alive(server.poll(), peer.name))
            finally:
                records = session.stop()
                # what comes next may have to wait, and others measure meanwhile
                server.pause()
    finally:
        server.stop()
    refuse_failures(records)
    return bench.speed(records, bench.ramp_s, bench.ramp_s + bench.window_s) or 0.0


def _started(peer: Peer, options: PeerOptions, bench: Bench) -> Server:
    from vibeserve.service import start_server

    launch = peer.launch(options)
    if bench.start is not None:
        named = replace(launch, name=f"{launch.name}-{options.dtype}")
        return bench.start(named, dialect=peer.dialect, model=peer.model_name(options))
    return start_server(
        launch, host=bench.host, tier=bench.tier, cpus=bench.engine_cpus, threads=bench.threads,
        run_dir=bench.run_dir / options.dtype, resources=bench.resources,
    )  # fmt: skip


def _load(
    peer: Peer, options: PeerOptions, bench: Bench, *, server: Server, point: LoadPoint, requests: Iterator[Request]
) -> LoadSession:
    from vibeserve.client import LoadSession

    name, model = f"calibrate-{peer.name}-{options.dtype}", peer.model_name(options)
    if bench.load_session is not None:
        return bench.load_session(
            server, bundle=bench.bundle, requests=requests, load=point, dialect=peer.dialect, model=model, name=name
        )
    return LoadSession(
        bundle=bench.bundle, base_url=server.base_url, dialect=peer.dialect, model=model, load=point,
        requests=requests, cpus=bench.client_cpus, name=name,
        join=lambda argv: bench.host.join_argv(server.process, argv),
    )  # fmt: skip


def _check_alive(status: int | None, name: str) -> None:
    if status is not None:
        raise InfraError(f"peer '{name}' ended with status {status} while it was calibrated")


def _sleep_active(session: LoadSession, seconds: float, *, check: Callable[[], None]) -> None:
    end_s = session.active_now_s() + seconds
    while session.active_now_s() < end_s:
        session.check()
        check()
        time.sleep(_NAP_S)


def refuse_failures(records: Sequence[Record]) -> None:
    """`InfraError` when a request failed: a server that refuses requests has no speed."""
    failed = next((record for record in records if record.error not in (None, CUT)), None)
    if failed is not None:
        raise InfraError(f"a request of the calibration failed: {failed.error}")
