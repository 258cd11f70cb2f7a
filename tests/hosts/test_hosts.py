"""The port to machines, and this machine as its first implementation."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from vibeserve import spec
from vibeserve.errors import SpecError
from vibeserve.hosts import Host, LocalHost, get_host
from vibeserve.sandbox import Wall
from vibeserve.spec import Tier


def test_local_is_the_default() -> None:
    host: Host = get_host(spec.Host())
    assert isinstance(host, LocalHost)
    assert host.kind == "local"


def test_an_unknown_kind_lists_the_valid_ones() -> None:
    with pytest.raises(SpecError, match=r"host.kind: unknown host 'moon'\n  valid kinds: local, ssh, slurm, docker"):
        get_host(spec.Host(kind="moon"))


def test_a_leased_port_can_be_bound() -> None:
    port = LocalHost().lease_port()
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port


def test_it_runs_bounded_commands(tmp_path: Path) -> None:
    host = LocalHost()
    tier = host.resolve_tier(Tier.auto, allow_none=True)
    wall = Wall(tier=tier, workdir=tmp_path)
    done = host.run([sys.executable, "-c", "print('here')"], wall=wall, log=tmp_path / "log", timeout_s=60)
    assert (done.returncode, done.timed_out, done.log_tail) == (0, False, "here")
