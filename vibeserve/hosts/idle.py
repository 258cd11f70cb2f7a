"""Giving back what costs others while it is held: an allocation is for measurements, not for the agents' thinking."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

SERVES, STOPS = "serve", "stop"
"""calls that begin and end a server's life; while one lives, what is held is used"""
LOOK_S = 5.0


class Idle:
    """Calls `give_back` once nothing has been used for `after_s` seconds; 0 = never."""

    def __init__(self, after_s: float, give_back: Callable[[], None]) -> None:
        self._after_s, self._give_back = after_s, give_back
        self._lock = threading.Lock()
        self._num_used = 0
        """calls that are under way and servers that live"""
        self._last_s = time.monotonic()
        self._watcher: threading.Thread | None = None

    @contextlib.contextmanager
    def busy(self, method: str) -> Iterator[None]:
        """A call under way. A server that has started stays in use until it is stopped."""
        self._use(1)
        try:
            yield
            if method == SERVES:
                self._use(1)
        finally:
            self._use(-2 if method == STOPS else -1)

    def _use(self, change: int) -> None:
        with self._lock:
            self._num_used = max(0, self._num_used + change)
            self._last_s = time.monotonic()
            if self._after_s and (self._watcher is None or not self._watcher.is_alive()):
                self._watcher = threading.Thread(target=self._watch, name="host-idle", daemon=True)
                self._watcher.start()

    def _watch(self) -> None:
        while True:
            time.sleep(min(LOOK_S, self._after_s / 4))
            with self._lock:
                is_idle = not self._num_used and time.monotonic() - self._last_s >= self._after_s
                if is_idle:
                    self._watcher = None
            if is_idle:
                self._give_back()
                return
