"""What a walled process may see and do. One description for every tier; how each tier builds it is the tier's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.sandbox.resources import Resources
from vibeserve.spec import Tier


@dataclass(frozen=True, kw_only=True)
class Wall:
    """The wall around one process tree.

    Paths are absolute and look the same inside and outside. What is not named is not there (tier A) or cannot be
    opened (tier B). The system (`/usr`, the loader's files in `/etc`, CPU topology in `/sys`) and the prefixes of
    `python` are readable always.
    """

    tier: Tier
    workdir: Path
    """readable"""
    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    """must exist; beside them only a private temporary folder ($TMPDIR) is writable"""
    listable: tuple[Path, ...] = ()
    """tier B: folders whose names may be listed with everything below (tier A shows only what is mounted anyway)"""
    python: Path | None = None
    """interpreter that runs inside; None = this one. Its prefix and its base prefix are readable"""
    hidden_modules: tuple[str, ...] = ()
    """importable top-level names that site-packages must not offer, with their metadata"""
    isolate_network: bool = True
    """tier A: a network namespace with a loopback and nothing else. False: the host's network, for `serve`, of which
    only TCP is left. Tier B has the host's network always: it binds `bind_port` and `loopback_ports` only, and connects
    to nothing but `loopback_ports` and `sockets`"""
    bind_port: int = 0
    """tier B: the one TCP port that may be bound; 0 = none"""
    local_sockets: bool = False
    """tier B: unix sockets and loopback connects stay open, for stock engines that talk to their own processes"""
    loopback_ports: tuple[int, ...] = ()
    """tier B: TCP ports that may be bound, and connected to on 127.0.0.1 (tier A has a loopback of its own)"""
    sockets: tuple[Path, ...] = ()
    """unix stream sockets of the controller's that may be connected to"""
    is_measured: bool = True
    """what serves. False: a build step or an agent's client, which may watch files and set timers as it likes"""
    cpus: tuple[int, ...] = ()
    """affinity, which the inside cannot widen; empty = as the caller's"""
    env: Mapping[str, str] = field(default_factory=dict)
    """the whole environment beside PATH, HOME, TMPDIR, LANG and a user name"""
    resources: Resources = field(default_factory=Resources)

    def __post_init__(self) -> None:
        for path in (self.workdir, *self.read_only, *self.writable, *self.sockets, *self.resources.devices):
            assert path.is_absolute(), f"a wall takes absolute paths, not {path}"
        is_named = bool(self.loopback_ports or self.sockets)
        assert not (self.local_sockets and is_named), "local_sockets leaves every destination open: name none"


def wall_environment(wall: Wall, *, tmp: Path, tree_id: str) -> dict[str, str]:
    """The clean environment of the inside. `tree_id` lets a resumed run find orphans (records.sweep_orphans)."""
    from vibeserve.sandbox.layout import wall_python

    path = f"{wall_python(wall).parent}:/usr/local/bin:/usr/bin:/bin"
    # torch.compile asks for the user's name; inside there are no accounts to look it up in
    user = {"USER": "vibeserve", "LOGNAME": "vibeserve"}
    base = {"PATH": path, "HOME": str(tmp), "TMPDIR": str(tmp), "LANG": "C.UTF-8", "VIBESERVE_TREE": tree_id}
    return {**user, **base, **wall.env}


def host_cpus() -> tuple[int, ...]:
    """CPUs this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))
