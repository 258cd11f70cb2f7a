"""SIGTERM as an interrupt: what Ctrl-C cleans up, a supervisor's polite end cleans up as well."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, the first SIGTERM raises KeyboardInterrupt in the main thread; later ones do not break into its clean-up.

    Does nothing outside the main thread, where Python installs no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
