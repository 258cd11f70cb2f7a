"""The built-in contract of speech: recordings in real time over a WebSocket, every partial transcript judged."""

from __future__ import annotations

from vibeserve.modalities.probes import ProbeSuite

PROBES = ProbeSuite(
    program="vibeserve.modalities.speech.probes",
    checks=(
        "health",
        "live",
        "metrics",
        "models",
        "session_created",
        "partials",
        "a_b_a",
        "concurrent",
        "clear",
        "two_items",
        "odd_chunks",
        "silence",
        "clipping",
        "sample_rates",
        "bad_events",
        "disconnect",
        "transcription",
        "transcription_errors",
        "unknown_route",
        "request_id",
    ),
)
"""in the order in which they run"""
