"""Plain lines for pipes and logs, JSON lines for programs, silence for tests."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from vibeserve.progress.events import event_data, event_of
from vibeserve.progress.port import age, beating, clock

BEAT_S = 60.0
"""between two lines that say that work goes on"""


class LineProgress:
    """Plain lines `mm:ss stage  text`, for pipes and logs."""

    def __init__(self, stream: TextIO | None = None, *, beat_s: float = BEAT_S) -> None:
        self._stream = stream or sys.stdout
        self._start_s = time.monotonic()
        self._beat_s = beat_s

    def event(self, stage: str, text: str, **facts: Any) -> None:
        event = event_of(stage, text, facts, at_s=time.monotonic() - self._start_s)
        # one write: a line of the second thread never lies inside another
        self._stream.write(f"{clock(event.at_s)} {event.stage:<12} {event.text}\n")
        self._stream.flush()

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self.event(stage, text)
        with beating(lambda age_s: self.event(stage, f"still {text}, {age(age_s)}"), every_s=self._beat_s):
            yield


class JsonProgress:
    """One JSON document per line: an event (`docs/events.md`)."""

    def __init__(self, stream: TextIO | None = None, *, beat_s: float = BEAT_S) -> None:
        self._stream = stream or sys.stdout
        self._start_s = time.monotonic()
        self._beat_s = beat_s

    def event(self, stage: str, text: str, **facts: Any) -> None:
        event = event_of(stage, text, facts, at_s=time.monotonic() - self._start_s)
        self._stream.write(json.dumps(event_data(event)) + "\n")
        self._stream.flush()

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self.event(stage, text)

        def tell(age_s: float) -> None:
            self.event(stage, f"still {text}, {age(age_s)}", busy_s=round(age_s, 1))

        with beating(tell, every_s=self._beat_s):
            yield


class QuietProgress:
    """Keeps events in `events`, prints nothing: for tests and library use."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.documents: list[dict[str, Any]] = []
        """the same as `--json` would print them"""

    def event(self, stage: str, text: str, **facts: Any) -> None:
        self.documents.append(event_data(event_of(stage, text, facts, at_s=0.0)))
        self.events.append((stage, text))

    @contextmanager
    def busy(self, stage: str, text: str) -> Iterator[None]:
        self.event(stage, text)
        yield
