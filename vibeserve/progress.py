"""What a run tells while it works: one line per event on a pipe, a live line on a terminal, JSON lines with --json."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO


class Progress(Protocol):
    """Receives the run's events, in order, from one thread."""

    def event(self, stage: str, text: str, **facts: Any) -> None:
        """Something happened: `stage` is a step's or round's name, `facts` are JSON data."""
        ...

    def busy(self, stage: str, text: str) -> Any:
        """Context manager around work that takes a while."""
        ...


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


class LineProgress:
    """Plain lines `mm:ss stage  text`, for pipes and logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._start_s = time.monotonic()

    def event(self, stage: str, text: str, **facts: Any) -> None:
        self._stream.write(f"{_clock(time.monotonic() - self._start_s)} {stage:<12} {text}\n")
        self._stream.flush()

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self.event(stage, text)
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

        with self._console.status(escape(f"{stage}  {text}")):
            yield


class JsonProgress:
    """One JSON object per line: `{"at_s", "stage", "text", ...facts}`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._start_s = time.monotonic()

    def event(self, stage: str, text: str, **facts: Any) -> None:
        record = {"at_s": round(time.monotonic() - self._start_s, 3), "stage": stage, "text": text, **facts}
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self.event(stage, text)
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
