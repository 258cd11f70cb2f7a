"""Active seconds: CLOCK_MONOTONIC since the session's start, minus the intervals in which it was paused.

The parent owns the clock. The load generator, a process that SIGSTOP freezes, reads the same clock through one shared
page: the paused total is written there *before* the process is continued, so overdue timers that fire right after a
resume already see the corrected time and go back to sleep. Hence no burst of arrivals, and no messages.
"""

from __future__ import annotations

import mmap
import struct
import tempfile
import time
from collections.abc import Callable

_LAYOUT = struct.Struct("dd")  # origin_s, paused_s; CLOCK_MONOTONIC is the same in every process of a boot


class ClockPage:
    """One page of shared memory behind an inheritable, unlinked file. Holds two numbers and nothing of any request."""

    def __init__(self, fd: int | None = None) -> None:
        self._file = None
        if fd is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the page)
            self._file.truncate(mmap.PAGESIZE)
            fd = self._file.fileno()
        self.fd = fd
        self._page = mmap.mmap(fd, mmap.PAGESIZE)

    def write(self, *, origin_s: float, paused_s: float) -> None:
        _LAYOUT.pack_into(self._page, 0, origin_s, paused_s)

    def now_s(self) -> float:
        """Active seconds, as a running process sees them."""
        origin_s: float
        paused_s: float
        origin_s, paused_s = _LAYOUT.unpack_from(self._page, 0)
        return time.monotonic() - origin_s - paused_s

    def close(self) -> None:
        self._page.close()
        if self._file is not None:
            self._file.close()


class ActiveClock:
    """The parent's side: starts, pauses and resumes the time. `monotonic` is replaced in tests."""

    def __init__(self, page: ClockPage, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._page = page
        self._monotonic = monotonic
        self._origin_s = 0.0
        self._paused_s = 0.0
        self._paused_at_s: float | None = None

    @property
    def is_paused(self) -> bool:
        return self._paused_at_s is not None

    def start(self) -> None:
        self._origin_s = self._monotonic()
        self._publish()

    def pause(self) -> None:
        """Call once the process is stopped."""
        if self._paused_at_s is None:
            self._paused_at_s = self._monotonic()

    def resume(self) -> None:
        """Call before the process is continued."""
        if self._paused_at_s is not None:
            self._paused_s += self._monotonic() - self._paused_at_s
            self._paused_at_s = None
            self._publish()

    def now_s(self) -> float:
        """Active seconds since `start`; stands still while paused."""
        at_s = self._monotonic() if self._paused_at_s is None else self._paused_at_s
        return at_s - self._origin_s - self._paused_s

    def _publish(self) -> None:
        self._page.write(origin_s=self._origin_s, paused_s=self._paused_s)
