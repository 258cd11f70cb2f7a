"""What `doctor` finds on another machine: the way there, the interpreter, the wall, what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.cli.doctor import Finding, State
from vibeserve.cli.host_needs import needs
from vibeserve.errors import InfraError, VibeServeError

if TYPE_CHECKING:
    from vibeserve.hardware import HardwareFacts
    from vibeserve.hosts.piped import PipedHost
    from vibeserve.spec import Host

MAX_OFFSET_S = 1.0
"""between the clocks; durations are measured by the host's own, so that it only shifts what logs say"""


def host_findings(declared: Host) -> tuple[HardwareFacts | None, list[Finding]]:
    """The host's hardware (None where it cannot be reached) and every check: what leads there, the connection, the
    rest."""
    from vibeserve.hosts import get_host
    from vibeserve.hosts.piped import PipedHost

    before = list(needs(declared))
    if any(finding.state is State.MISSING for finding in before):
        return None, before
    host = get_host(declared)
    assert isinstance(host, PipedHost)
    try:
        facts = host.probe()
    except VibeServeError as error:
        told = str(error).splitlines()
        lost = Finding(name="connection", state=State.MISSING, detail=told[0], next=_next(told))
        host.close()
        return None, [*before, lost]
    try:
        return facts, [*before, *_findings(host, facts)]
    finally:
        host.close()


def _findings(host: PipedHost, facts: HardwareFacts) -> Iterator[Finding]:
    sent_s = time.time()
    hello = host.call("hello")
    offset_s = hello["time_s"] - (sent_s + time.time()) / 2
    yield Finding(name="connection", state=State.OK, detail=f"{host.where}, our files below {host.root}")
    state = State.OK if abs(offset_s) < MAX_OFFSET_S else State.WARNING
    yield Finding(name="clock", state=state, detail=f"{offset_s:+.3f} s from this machine's")
    yield Finding(name="python", state=State.OK, detail=f"{hello['version']} at {hello['python']}")
    missing = host.call("lack")
    if missing:
        advice = "name an interpreter with them by host.python, or install them there"
        yield Finding(name="modules", state=State.MISSING, detail=f"missing: {', '.join(missing)}", next=advice)
    else:
        yield Finding(name="modules", state=State.OK, detail="what servers and the load generator import")
    yield _tier(host)
    yield Finding(name="cpu", state=State.OK, detail=f"{facts.cpu_model}, {facts.num_cpus} CPUs")
    yield Finding(name="memory", state=State.OK, detail=f"{facts.memory_gib:.1f} GiB")
    gpus = ", ".join(f"{gpu.name} (sm {gpu.sm}, {gpu.memory_gib:.0f} GiB)" for gpu in facts.gpus)
    yield Finding(name="gpu", state=State.OK, detail=gpus or f"none: {facts.gpu_note}")


def _tier(host: PipedHost) -> Finding:
    from vibeserve.spec import Tier

    try:
        tier = host.resolve_tier(Tier.auto, allow_none=False)
    except InfraError as error:
        told = str(error).splitlines()
        return Finding(name="wall", state=State.MISSING, detail=told[0], next=_next(told))
    return Finding(name="wall", state=State.OK, detail=f"tier {tier.value}")


def _next(lines: list[str]) -> str:
    return next((line.removeprefix("next: ") for line in lines if line.startswith("next: ")), "")
