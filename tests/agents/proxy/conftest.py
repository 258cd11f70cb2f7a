"""A scripted API on the loopback and proxies in front of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from proxy_rig import KEY, PATHS, PRICES, ScriptedApi, Setup

from vibeserve.agents.ledger import Cap, Ledger
from vibeserve.agents.proxy import Proxy, upstream_of


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    scripted = ScriptedApi()
    yield scripted
    scripted.close()


@pytest.fixture
def start(api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Setup]]:
    """Start proxies before the scripted API; the key is sent by the name `TEST_KEY`."""
    monkeypatch.setenv("TEST_KEY", KEY)
    running: list[Proxy] = []

    def begin(*, run_cap: Cap | None = None, dialects: Sequence[str] = tuple(PATHS), **changes: Any) -> Setup:
        record_dir = tmp_path / f"call{len(running)}"
        record_dir.mkdir()
        ledger = changes.pop("ledger", None) or Ledger(run_cap=run_cap or Cap(), role_caps={}, prices=PRICES)
        url = changes.pop("url", api.url)
        base = {name: f"{url}/v1" if name in ("responses", "chat") else url for name in dialects}
        upstreams = [upstream_of(name, base_url=base[name], api_key_env="TEST_KEY") for name in dialects]
        arguments = {
            "role": "implementer", "key": "r01a1-implementer", "backend": "codex", "model": "big", "ledger": ledger,
            "upstreams": upstreams, "record_dir": record_dir, "max_turns": 50, **changes,
        }  # fmt: skip
        proxy = Proxy(**arguments)
        proxy.start()
        running.append(proxy)
        return Setup(proxy=proxy, ledger=ledger, record_dir=record_dir, api=api)

    yield begin
    for proxy in running:
        proxy.stop()


@pytest.fixture
def gate() -> Iterator[Callable[[], threading.Event]]:
    """Events that let scripts and tests wait for each other; all are set at the end."""
    made: list[threading.Event] = []

    def make() -> threading.Event:
        made.append(threading.Event())
        return made[-1]

    yield make
    for one in made:
        one.set()


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait until a condition holds, at most a minute."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "the condition never came true"
            time.sleep(0.01)

    return wait
