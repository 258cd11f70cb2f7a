"""Which tier is used, and what is said when none can be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import vibeserve
from vibeserve.errors import InfraError
from vibeserve.sandbox import Wall, landlock, probe_limits, probe_tiers, resolve_tier, run, seccomp, tiers
from vibeserve.sandbox.cgroups import Cgroup
from vibeserve.spec import Tier


def _found(monkeypatch: pytest.MonkeyPatch, a: str, b: str) -> None:
    monkeypatch.setattr(tiers, "probe_tiers", lambda: {"A": a, "B": b, "C": "no wall"})


@pytest.mark.parametrize(("a", "b", "expected"), [("available", "available", Tier.A), ("absent", "available", Tier.B)])
def test_auto_takes_the_strongest(monkeypatch: pytest.MonkeyPatch, a: str, b: str, expected: Tier) -> None:
    _found(monkeypatch, a, b)
    assert resolve_tier(Tier.auto, allow_none=False) is expected
    assert resolve_tier(Tier.auto, allow_none=True) is expected


def test_no_wall_needs_the_opt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _found(monkeypatch, "bubblewrap is not installed", "Landlock ABI 0 is too old")
    with pytest.raises(InfraError) as caught:
        resolve_tier(Tier.auto, allow_none=False)
    text = str(caught.value)
    assert "tier A: bubblewrap is not installed" in text
    assert "tier B: Landlock ABI 0 is too old" in text
    assert "next: install bubblewrap, or say sandbox.allow_none=true" in text
    assert resolve_tier(Tier.auto, allow_none=True) is Tier.C


def test_a_declared_tier_is_never_weakened(monkeypatch: pytest.MonkeyPatch) -> None:
    _found(monkeypatch, "bubblewrap is not installed", "available")
    with pytest.raises(
        InfraError, match=r"tier A: bubblewrap is not installed\nnext: sandbox.tier=B, which works here"
    ):
        resolve_tier(Tier.A, allow_none=True)


def test_tier_c_alone_is_refused() -> None:
    with pytest.raises(InfraError, match=r"sandbox.allow_none=true"):
        resolve_tier(Tier.C, allow_none=False)
    assert resolve_tier(Tier.C, allow_none=True) is Tier.C


def test_tier_c_still_holds_the_tree(tmp_path: Path) -> None:
    wall = Wall(tier=Tier.C, workdir=tmp_path)
    done = run(["/bin/sh", "-c", "sleep 60 & echo $TMPDIR; exit 4"], wall=wall, log=tmp_path / "log", timeout_s=20)
    assert done.returncode == 4
    assert not done.timed_out
    assert not Path(done.log_tail).exists()


def test_missing_bubblewrap_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "find_bwrap", lambda: None)
    tiers._probe.cache_clear()
    try:
        assert "bubblewrap is not installed" in probe_tiers()["A"]
    finally:
        tiers._probe.cache_clear()


def test_where_namespaces_are_forbidden_tier_b_is_found(tmp_path: Path) -> None:
    """Inside tier B no namespace can be made, as in a container: the probe there must say so and fall to B."""
    if probe_tiers()["B"] != "available":
        pytest.skip(probe_tiers()["B"])
    package = Path(vibeserve.__file__).parent
    code = f"""import sys; sys.path.insert(0, {str(package.parent)!r})
from vibeserve.sandbox import probe_tiers, resolve_tier
from vibeserve.spec import Tier
print(probe_tiers()["A"]); print(resolve_tier(Tier.auto, allow_none=False).value)"""
    wall = Wall(tier=Tier.B, workdir=tmp_path, read_only=(package, Path("/proc")), listable=(package.parent,))
    done = run([sys.executable, "-c", code], wall=wall, log=tmp_path / "log", timeout_s=60)
    assert done.returncode == 0, done.log_tail
    why, found = done.log_tail.splitlines()[-2:]
    assert why != "available"
    assert found == "B"


@pytest.mark.parametrize(("uid", "processes"), [(0, "nothing (root)"), (1000, "rlimit")])
def test_what_holds_the_limits_is_told(monkeypatch: pytest.MonkeyPatch, uid: int, processes: str) -> None:
    monkeypatch.setattr(tiers, "make_cgroup", lambda *_, **__: Cgroup(pids=None, memory=None))
    monkeypatch.setattr("os.getuid", lambda: uid)
    found = probe_limits()
    assert (found["memory"], found["processes"]) == ("sampled every 0.25 s", processes)


def test_control_groups_are_told_of_and_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Cgroup(pids=tmp_path / "a", memory=tmp_path / "b")
    for folder in made.folders:
        folder.mkdir()
    monkeypatch.setattr(tiers, "make_cgroup", lambda *_, **__: made)
    found = probe_limits()
    assert (found["memory"], found["processes"]) == ("control group", "control group")
    assert list(tmp_path.iterdir()) == []


def test_landlock_refuses_what_it_cannot_restrict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 3)
    with pytest.raises(OSError, match="ABI 3 cannot restrict"):
        landlock.restrict(read_only=(), list_only=(), writable=(), bind_ports=[8000])


def test_without_signal_scope_the_filter_denies_signals() -> None:
    code = """import os, signal
from vibeserve.sandbox import landlock, seccomp
landlock.restrict(read_only=["/"], list_only=[], writable=[], bind_ports=None)
seccomp.load(seccomp.program(own_namespaces=False, signals_scoped=False))
try:
    os.kill(os.getppid(), 0)
except PermissionError:
    print("denied")"""
    if landlock.abi() == 0:
        pytest.skip("no Landlock")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "denied\n", done.stderr


def test_the_filter_is_whole_instructions() -> None:
    for own_namespaces in (True, False):
        program = seccomp.program(own_namespaces=own_namespaces)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 4096
