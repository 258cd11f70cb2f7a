"""Where the requests' wall time goes, as counters that cost next to nothing. The unit is request-seconds."""

from __future__ import annotations

import threading

NAMES = ("queue", "prefill", "decode.linear", "decode.other", "tokenize", "http")
"""waiting for the model; (none of its own); all steps; pixels and PNG; text to ids; parsing and rendering"""


class Spans:
    """Request-seconds by span, added to by the engine's thread and the event loop's."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(NAMES, 0.0)
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` for span `name`, one of `NAMES`."""
        with self._lock:
            self.seconds[name] += seconds
