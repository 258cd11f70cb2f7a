"""A pause gives the device back, and a run that nobody has can be held for a moment."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from lease_process import CPU, TIMING

from vibeserve.lease import DeviceLease, DeviceQueue, Mode, living_owner, own_free_run, own_run
from vibeserve.progress import QuietProgress


def lease_of(root: Path, run: str) -> DeviceLease:
    return DeviceLease([CPU], root=root, run=run, progress=QuietProgress(), timing=TIMING)


def held(root: Path) -> list[tuple[Mode, str]]:
    entries = DeviceQueue(root / CPU.name, expiry_s=60.0).entries()
    return [(entry.mode, entry.what) for entry in entries if entry.is_held]


def test_a_paused_run_holds_nothing_and_its_clock_stands_still(tmp_path: Path) -> None:
    mine, other = lease_of(tmp_path, "mine"), lease_of(tmp_path, "other")
    with mine.shared("synthesize"):
        before_s = mine.monotonic()
        with mine.aside():
            assert held(tmp_path) == []
            with other.exclusive("a window"):  # would wait for ever for a place that is not given back
                assert held(tmp_path) == [(Mode.EXCLUSIVE, "a window")]
            time.sleep(0.2)
        assert mine.monotonic() - before_s < 0.15
        assert held(tmp_path) == [(Mode.SHARED, "synthesize")], "it has its place again"
    assert held(tmp_path) == []


def test_an_interrupt_in_a_pause_lets_go(tmp_path: Path) -> None:
    mine = lease_of(tmp_path, "mine")
    with pytest.raises(KeyboardInterrupt), mine.shared("synthesize"), mine.aside():
        raise KeyboardInterrupt
    assert held(tmp_path) == []


def test_a_run_that_somebody_has_is_not_waited_for(tmp_path: Path) -> None:
    with own_free_run(tmp_path, run="r") as is_ours:
        assert is_ours and living_owner(tmp_path) is not None
    assert living_owner(tmp_path) is None
    with own_run(tmp_path, run="r", progress=QuietProgress()):
        with own_free_run(tmp_path, run="r") as is_ours:
            assert not is_ours
        assert living_owner(tmp_path) is not None, "the owner's document is not ours to remove"
