"""Which walls this machine can build, found out by building one."""

from __future__ import annotations

import os
import secrets
import tempfile
from functools import lru_cache
from pathlib import Path

from vibeserve.core.environment import PROCESSES
from vibeserve.errors import InfraError
from vibeserve.sandbox import landlock, seccomp
from vibeserve.sandbox.bubblewrap import find_bwrap
from vibeserve.sandbox.guard import DISK_INTERVAL_S, INTERVAL_S
from vibeserve.sandbox.hierarchies import make_cgroup
from vibeserve.sandbox.launch import run
from vibeserve.sandbox.process import BOTH
from vibeserve.sandbox.resources import Resources
from vibeserve.sandbox.wall import Wall
from vibeserve.spec import Tier

AVAILABLE = "available"
FREEZER, MEMORY_COUNT = "freezer", "peak_memory"
_PROBE_TIMEOUT_S = 30.0


@lru_cache(maxsize=1)
def _probe() -> tuple[tuple[str, str], ...]:
    return (("A", _probe_a()), ("B", _probe_b()))


def probe_tiers() -> dict[str, str]:
    """Tier -> `available`, or why it is not. Tier A and B each run one command behind a real wall; once per process."""
    return {**dict(_probe()), "C": "no wall at all: only by sandbox.allow_none=true"}


def _probe_a() -> str:
    if find_bwrap() is None:
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    if not seccomp.is_supported():
        return "this CPU architecture has no syscall table (x86_64 and aarch64 have)"
    return _try(Tier.A)


def _probe_b() -> str:
    version = landlock.abi()
    if version < landlock.ABI_NETWORK:
        return (
            f"Landlock ABI {version} is too old or disabled; network rules need ABI {landlock.ABI_NETWORK} (Linux 6.7)"
        )
    if not seccomp.is_supported():
        return "this CPU architecture has no syscall table (x86_64 and aarch64 have)"
    return _try(Tier.B)


def _try(tier: Tier) -> str:
    """Run a command that must succeed, and one that must be refused, behind a wall of that tier."""
    with tempfile.TemporaryDirectory(prefix="vibeserve-probe-") as name:
        folder = Path(name)
        inside, outside = folder / "inside", folder / "outside"
        inside.mkdir()
        outside.mkdir()
        wall = Wall(tier=tier, workdir=inside, writable=(inside,))
        script = f"echo > {inside}/yes; ! echo 2> /dev/null > {outside}/no"
        try:
            done = run(["/bin/sh", "-c", script], wall=wall, log=folder / "log", timeout_s=_PROBE_TIMEOUT_S)
        except InfraError as error:
            return str(error)
        if (outside / "no").exists():
            return "the wall did not hold: a file outside it could be written"
        if done.returncode != 0 or not (inside / "yes").exists():
            return f"a probe command failed with status {done.returncode}: {done.log_tail}"
    return AVAILABLE


def probe_limits() -> dict[str, str]:
    """What holds a tree to its limits, stops it between windows and counts its memory here: what -> how. Found out by
    making control groups, and by freezing a process in one."""
    cgroup = make_cgroup(secrets.token_hex(8), Resources())
    freezer = cgroup.stopped_by
    cgroup.remove()
    return {
        "memory": "control group" if cgroup.memory is not None else f"sampled every {INTERVAL_S:g} s",
        "processes": "control group" if cgroup.pids is not None else "rlimit" if os.getuid() else "nothing (root)",
        "disk": f"sampled every {DISK_INTERVAL_S:g} s",
        FREEZER: freezer,
        MEMORY_COUNT: PROCESSES if cgroup.memory is None else BOTH,
    }


def resolve_tier(declared: Tier, *, allow_none: bool) -> Tier:
    """The tier to use: the declared one, or the strongest that works for `auto`. Never weaker than declared.

    Raises InfraError that says why each tier is unavailable. Tier C only with `allow_none`.
    """
    if declared is Tier.C:
        if not allow_none:
            raise InfraError("sandbox.tier=C is no wall at all\nnext: say sandbox.allow_none=true if that is meant")
        return Tier.C
    found = probe_tiers()
    wanted = (Tier.A, Tier.B) if declared is Tier.auto else (declared,)
    for tier in wanted:
        if found[tier.value] == AVAILABLE:
            return tier
    if declared is Tier.auto and allow_none:
        return Tier.C
    reasons = "\n".join(f"  tier {tier.value}: {found[tier.value]}" for tier in wanted)
    others = [name for name in ("A", "B") if found[name] == AVAILABLE]
    install = "install bubblewrap, or say sandbox.allow_none=true to run without any wall"
    hint = f"sandbox.tier={others[0]}, which works here" if others else install
    raise InfraError(f"no wall of tier {declared.value} can be built here\n{reasons}\nnext: {hint}")
