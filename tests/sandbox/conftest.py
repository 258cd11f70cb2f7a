"""Walls of both tiers around small standard-library scripts."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vibeserve.hosts import LocalHost
from vibeserve.sandbox import Process, Wall, probe_tiers, run, spawn
from vibeserve.spec import Tier


@pytest.fixture(params=["A", "B"])
def tier(request: pytest.FixtureRequest) -> Tier:
    """Each tier that this machine can build."""
    state = probe_tiers()[request.param]
    if state != "available":
        pytest.skip(f"tier {request.param}: {state}")
    return Tier(request.param)


@pytest.fixture
def make_wall(tier: Tier, tmp_path: Path) -> Callable[..., Wall]:
    """A wall around `tmp_path/inside`, which is writable."""
    inside = tmp_path / "inside"
    inside.mkdir()

    def make(**changes: Any) -> Wall:
        return Wall(**{"tier": tier, "workdir": inside, "writable": (inside,), **changes})

    return make


@pytest.fixture
def answer(tmp_path: Path) -> Callable[..., Any]:
    """Run a Python script behind a wall; the JSON value of its last output line."""

    def ask(script: str, *, wall: Wall) -> Any:
        log = tmp_path / "answer.log"
        done = run([sys.executable, "-c", textwrap.dedent(script)], wall=wall, log=log, timeout_s=60)
        assert done.returncode == 0, done.log_tail
        return json.loads(done.log_tail.splitlines()[-1])

    return ask


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Start Python scripts behind walls; whatever still runs at the end of the test is killed."""
    started: list[Process] = []

    def begin(script: str, *, wall: Wall) -> Process:
        argv = [sys.executable, "-c", textwrap.dedent(script)]
        started.append(spawn(argv, wall=wall, log=tmp_path / f"{len(started)}.log"))
        return started[-1]

    yield begin
    for process in started:
        process.kill_tree()


@pytest.fixture
def free_port() -> int:
    return LocalHost().lease_port()


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait until a condition holds, at most a minute."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "the condition never came true"
            time.sleep(0.01)

    return wait
