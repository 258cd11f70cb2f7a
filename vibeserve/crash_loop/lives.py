"""One life of a run: a process of the real command, from its start to its end or to a SIGKILL, and what it left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.core.paths import state_dir
from vibeserve.errors import InfraError
from vibeserve.journal import CRASH_VARIABLE, Event, read_events
from vibeserve.lease import DeviceQueue
from vibeserve.sandbox import tree

JOURNAL = "journal.jsonl"
KEPT = Path("steps", "certify", "work", "certified.json")
EXPIRY_S = 60.0
ORPHAN_GRACE_S = 10.0
"""what a killed run started ends by itself within that; what is left then is an orphan"""
LIFE_TIMEOUT_S = 3600.0
POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class State:
    """What of a run is on the disk at one moment."""

    events: tuple[Event, ...] = ()
    is_certification_kept: bool = False

    @property
    def rounds(self) -> set[int]:
        return {int(event.data["record"]["number"]) for event in self.events if event.kind == "round"}

    @property
    def is_certified(self) -> bool:
        return self.is_certification_kept or any(event.kind == "certified" for event in self.events)


@dataclass(frozen=True, kw_only=True)
class Life:
    """How one process of the command went."""

    code: int
    """exit status; negative: ended by that signal"""
    before: State
    after: State
    told: tuple[dict[str, Any], ...]
    """its progress, event by event"""
    orphans: tuple[str, ...]
    """command lines of processes that it left behind"""
    held: tuple[str, ...]
    """leases that are still taken for alive"""
    tail: str
    """the end of what it said on stderr"""
    seconds: float

    @property
    def is_killed(self) -> bool:
        return self.code == -signal.SIGKILL


@dataclass(kw_only=True)
class Project:
    """A folder in which one run lives again and again."""

    root: Path
    words: Sequence[str]
    """of the command line"""
    environment: Mapping[str, str]

    @property
    def run_folder(self) -> Path | None:
        runs = state_dir(self.root) / "runs"
        return next(iter(sorted(runs.iterdir())), None) if runs.is_dir() else None

    def state(self) -> State:
        folder = self.run_folder
        if folder is None or not (folder / JOURNAL).is_file():
            return State()
        return State(
            events=tuple(read_events(folder / JOURNAL)), is_certification_kept=(folder / KEPT).is_file()
        )

    def live(self, *, crash_at: str = "", kill_after_s: float = LIFE_TIMEOUT_S) -> Life:
        """Run the command until it ends, kills itself at `crash_at`, or has run for `kill_after_s`.

        This process must adopt orphans (`core.children`): whatever the run leaves behind is then found below it.
        """
        before, started_s = self.state(), time.monotonic()
        log, errors = self.root / "life.jsonl", self.root / "life.err"
        with log.open("wb") as output, errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "vibeserve.cli.main", *self.words, "--json"], cwd=self.root, stdout=output,
                stderr=stderr, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, **self.environment, CRASH_VARIABLE: crash_at},
            )  # fmt: skip
            try:
                code = process.wait(kill_after_s)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            except BaseException:
                process.kill()
                process.wait()
                raise
        return Life(
            code=code, before=before, after=self.state(), told=tuple(_told(log)), orphans=tuple(end_orphans()),
            held=tuple(self._held()), tail=errors.read_text(encoding="utf-8", errors="replace")[-1500:],
            seconds=time.monotonic() - started_s,
        )  # fmt: skip

    def _held(self) -> list[str]:
        folder, root = self.run_folder, Path(self.environment["VIBESERVE_LEASES"])
        queues = [each for each in root.rglob("*") if each.is_dir()] if root.is_dir() else []
        entries = [entry for each in queues for entry in DeviceQueue(each, expiry_s=EXPIRY_S).entries()]
        return [str(entry) for entry in entries if folder is not None and entry.owner.run == folder.name]


def _told(log: Path) -> list[dict[str, Any]]:
    """Whole lines only: a kill may cut the last one."""
    found = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            document = json.loads(line)
            if "stage" in document:
                found.append(document)
    return found


def end_orphans() -> list[str]:
    """Wait for what hangs below this process, then kill it; command lines of those that had to be killed."""
    deadline_s = time.monotonic() + ORPHAN_GRACE_S
    left = _living()
    while left and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        left = _living()
    lines = [_command_line(pid) for pid in left]
    if left:
        tree.kill_all(os.getpid())
        if _living():
            raise InfraError(f"processes of a killed run cannot be ended: {lines}")
    return lines


def _living() -> list[int]:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [stat.pid for stat in tree.descendants(os.getpid()) if stat.state not in "ZX"]


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return f"{pid} {words}"[:300]
    return str(pid)
