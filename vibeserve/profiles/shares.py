"""What a plan reckons with: shares of a request's time by span, from the framework's profile where that is timed."""

from __future__ import annotations

from collections.abc import Mapping

from vibeserve.profiles.documents import SPANS, Profile

DIRECT = {"sampler": "sampling", "constraints": "sampling", "tokenizer": "tokenize", "http": "http"}
"""seams that are a span of their own"""
SPLIT = {"linear": "decode.linear", "attention": "decode.attention"}
INNER = ("decode.linear", "decode.attention", "decode.other")
MIN_VISIBLE = 0.05
"""share of the forward pass that must be seen in modules of linear and attention for the profile to split it; where
one call into native code does all of it, the profiler sees one frame and the split stays the spans'"""


def planning_shares(profile: Profile | None, spans: Mapping[str, float]) -> dict[str, float]:
    """Shares by span; the spans as they are where there is no timed profile.

    What cannot be seen from outside stays the spans': how long a request waits in the queue, and how much of the
    forward pass is prefill. Everything else of a request's time in the server is split as the busiest thread was seen
    to spend it.
    """
    if profile is None or not profile.is_timed or profile.tool == SPANS or not profile.bottlenecks:
        return dict(spans)
    seen = _seen(profile)
    total = sum(seen.values())
    if total <= 0:
        return dict(spans)
    queue = spans.get("queue", 0.0)
    # beside the busiest thread the event loop does its work: its part is not in that thread's samples
    http = 0.0 if "http" in seen else min(spans.get("http", 0.0), 1 - queue)
    shares = {name: value / total * (1 - queue - http) for name, value in seen.items()}
    found = {name: shares.pop(name) for name in list(shares) if name in DIRECT.values()}
    beside = {"http": http} if http else {}
    return {"queue": queue} | beside | found | _forward(shares, spans=spans)


def _seen(profile: Profile) -> dict[str, float]:
    """Of the busiest thread, by span, the forward pass whole or by its inner spans without prefill."""
    thread = max(
        {row.thread for row in profile.bottlenecks},
        key=lambda name: (sum(row.share for row in profile.bottlenecks if row.thread == name), name),
    )
    seen: dict[str, float] = {}
    for row in profile.bottlenecks:
        if row.thread == thread:
            name = DIRECT.get(row.name) or SPLIT.get(row.name, "decode.other")
            seen[name] = seen.get(name, 0.0) + row.share
    return seen


def _forward(shares: Mapping[str, float], *, spans: Mapping[str, float]) -> dict[str, float]:
    """`shares` of the inner spans, prefill taken out of each by the spans' ratio."""
    total = sum(shares.values())
    visible = shares.get("decode.linear", 0.0) + shares.get("decode.attention", 0.0)
    decode = sum(spans.get(name, 0.0) for name in INNER)
    is_split = visible >= MIN_VISIBLE * total or decode <= 0
    split = dict(shares) if is_split else {name: total * spans.get(name, 0.0) / decode for name in INNER}
    prefill = spans.get("prefill", 0.0)
    part = prefill / (prefill + decode) if prefill + decode > 0 else 0.0
    found = {name: value * (1 - part) for name, value in split.items()}
    return {**found, "prefill": total * part} if part else found
