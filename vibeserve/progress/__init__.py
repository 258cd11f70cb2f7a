"""What a run tells while it works: one line per event on a pipe, a live view on a terminal, JSON lines with --json."""

from __future__ import annotations

import sys

from vibeserve.progress.events import EVENTS, RunEvent, event_data, event_of
from vibeserve.progress.lines import JsonProgress, LineProgress, QuietProgress
from vibeserve.progress.live import LiveProgress
from vibeserve.progress.port import Progress

__all__ = [
    "EVENTS",
    "JsonProgress",
    "LineProgress",
    "LiveProgress",
    "Progress",
    "QuietProgress",
    "RunEvent",
    "event_data",
    "event_of",
    "make_progress",
]


def make_progress(*, is_json: bool) -> Progress:
    """JSON lines when asked for; else live on a terminal and plain lines elsewhere."""
    if is_json:
        return JsonProgress()
    return LiveProgress() if sys.stdout.isatty() else LineProgress()
