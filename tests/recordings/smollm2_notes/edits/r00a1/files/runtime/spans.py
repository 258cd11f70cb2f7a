"""Where the requests' wall time goes, as counters that cost next to nothing.

The unit is request-seconds: a step of `t` seconds counts `t` for every sequence that holds a slot, because each of them
waits for it; `queue` is the time before a sequence's first step. So the spans of a window add up to the requests' time
in the server.
"""

from __future__ import annotations

import threading
from time import perf_counter
from types import TracebackType

NAMES = ("queue", "prefill", "decode.linear", "decode.attention", "decode.other", "sampling", "tokenize", "http")


class Stopwatch:
    """Accumulates the seconds of `with` blocks. One thread at a time; not reentrant."""

    __slots__ = ("_started", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += perf_counter() - self._started

    def take(self) -> float:
        """Seconds since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class ForwardSpans:
    """What `Model.forward` reports: seconds in linears and in attention of the current step."""

    def __init__(self) -> None:
        self.linear = Stopwatch()
        self.attention = Stopwatch()


class Spans:
    """Request-seconds by span, added to by the engine's thread and the event loop's."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(NAMES, 0.0)
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` for span `name`, one of `NAMES`."""
        with self._lock:
            self.seconds[name] += seconds

    def add_forward(self, seconds: float, *, num_rows: int, num_decode_rows: int, num_requests: int) -> None:
        """Split a step's forward time between prefill and decode by their rows, for every request in flight."""
        weight = num_requests * num_decode_rows / num_rows
        linear_s, attention_s = forward.linear.take(), forward.attention.take()
        self.add("prefill", seconds * (num_requests - weight))
        self.add("decode.linear", linear_s * weight)
        self.add("decode.attention", attention_s * weight)
        self.add("decode.other", max(0.0, seconds - linear_s - attention_s) * weight)


forward = ForwardSpans()
"""of the engine thread; here because the model seams are called without the engine's objects"""
