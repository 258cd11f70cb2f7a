"""What a run tells its events to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Progress(Protocol):
    """Receives the run's events, in order, from one thread. While that one is busy, a second one says that it is."""

    def event(self, stage: str, text: str, **facts: Any) -> None:
        """Something happened: `stage` is a step's or round's name, `facts` are fields of its kind (`events`)."""
        ...

    def busy(self, stage: str, text: str) -> Any:
        """Context manager around work that takes a while."""
        ...


def clock(seconds: float) -> str:
    """`mm:ss`"""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


@contextmanager
def beating(tell: Callable[[float], None], *, every_s: float) -> Iterator[None]:
    """Calls `tell(seconds since the start)` from a thread, every `every_s` until the block ends."""
    done, started_s = threading.Event(), time.monotonic()

    def beat() -> None:
        while not done.wait(every_s):
            tell(time.monotonic() - started_s)

    thread = threading.Thread(target=beat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
