"""What a run tells while it works: one line per event on a pipe, a live line on a terminal, JSON lines with --json."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

BEAT_S = 60.0
"""between two lines that say that work goes on"""
LIVE_BEAT_S = 5.0
"""between two updates of a terminal's live line"""


class Progress(Protocol):
    """Receives the run's events, in order, from one thread. While that one is busy, a second one says that it is."""

    def event(self, stage: str, text: str, **facts: Any) -> None:
        """Something happened: `stage` is a step's or round's name, `facts` are JSON data."""
        ...

    def busy(self, stage: str, text: str) -> Any:
        """Context manager around work that takes a while."""
        ...


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


@contextmanager
def _beating(tell: Callable[[float], None], *, every_s: float) -> Iterator[None]:
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


class LineProgress:
    """Plain lines `mm:ss stage  text`, for pipes and logs."""

    def __init__(self, stream: TextIO | None = None, *, beat_s: float = BEAT_S) -> None:
        self._stream = stream or sys.stdout
        self._start_s = time.monotonic()
        self._beat_s = beat_s

    def event(self, stage: str, text: str, **facts: Any) -> None:
        # one write: a line of the second thread never lies inside another
        self._stream.write(f"{_clock(time.monotonic() - self._start_s)} {stage:<12} {text}\n")
        self._stream.flush()

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self.event(stage, text)
        with _beating(lambda age_s: self.event(stage, f"still {text}, {_age(age_s)}"), every_s=self._beat_s):
            yield


class LiveProgress:
    """The same lines on a terminal, with a spinner and the elapsed time under them."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._start_s = time.monotonic()

    def event(self, stage: str, text: str, **facts: Any) -> None:
        from rich.text import Text

        line = Text(f"{_clock(time.monotonic() - self._start_s)} ", style="dim")
        line.append(f"{stage:<12} ", style="bold")
        line.append(text)
        self._console.print(line, soft_wrap=True)

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        from rich.markup import escape

        line = escape(f"{stage}  {text}")
        with self._console.status(line) as status:
            with _beating(lambda age_s: status.update(f"{line}, {_age(age_s)}"), every_s=LIVE_BEAT_S):
                yield


class JsonProgress:
    """One JSON object per line: `{"at_s", "stage", "text", ...facts}`."""

    def __init__(self, stream: TextIO | None = None, *, beat_s: float = BEAT_S) -> None:
        self._stream = stream or sys.stdout
        self._start_s = time.monotonic()
        self._beat_s = beat_s

    def event(self, stage: str, text: str, **facts: Any) -> None:
        record = {"at_s": round(time.monotonic() - self._start_s, 3), "stage": stage, "text": text, **facts}
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self.event(stage, text)

        def tell(age_s: float) -> None:
            self.event(stage, f"still {text}, {_age(age_s)}", busy_s=round(age_s, 1))

        with _beating(tell, every_s=self._beat_s):
            yield


class QuietProgress:
    """Keeps events in `events`, prints nothing: for tests and library use."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, stage: str, text: str, **facts: Any) -> None:
        self.events.append((stage, text))

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self.event(stage, text)
        yield


def make_progress(*, is_json: bool) -> Progress:
    """JSON lines when asked for; else live on a terminal and plain lines elsewhere."""
    if is_json:
        return JsonProgress()
    return LiveProgress() if sys.stdout.isatty() else LineProgress()
