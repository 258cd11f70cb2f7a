"""Where the requests' wall time goes, as counters that cost next to nothing. The unit is request-seconds."""

from __future__ import annotations

import threading

NAMES = ("queue", "prefill", "decode.other", "tokenize", "http")
"""waiting for the model; the encoder; the decoder; ids to text; events in and out"""


class Spans:
    """Request-seconds by span, added to by the engine's thread and the event loop's."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(NAMES, 0.0)
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` for span `name`, one of `NAMES`."""
        with self._lock:
            self.seconds[name] += seconds
