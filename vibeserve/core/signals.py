"""How a run is ended from outside. SIGTERM is an interrupt: what Ctrl-C cleans up, a supervisor's polite end cleans up
as well. The first SIGINT asks the run to end behind the step under way, the second one ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

FINISHING = b"vibeserve: stopping behind the step or round under way; once more to stop now\n"
_asked = threading.Event()


def stop_if_asked() -> None:
    """To be called where nothing is under way: raises KeyboardInterrupt where a SIGINT asked for an end."""
    if _asked.is_set():
        raise KeyboardInterrupt


@contextmanager
def finishing() -> Iterator[None]:
    """Inside, the first SIGINT only asks for an end (`stop_if_asked`) and says so on stderr; the second raises
    KeyboardInterrupt in the main thread, and later ones do not break into its clean-up.

    Does nothing outside the main thread, and where SIGINT is ignored (`nohup`, a script's `&`).
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _asked.is_set():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        _asked.set()
        os.write(2, FINISHING)  # the streams may be in the middle of a write

    _asked.clear()
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _asked.clear()


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
