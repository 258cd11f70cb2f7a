"""One check of a probe program: held to the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable

from vibeserve.modalities.probe_http import ProbeNotRun
from vibeserve.modalities.probes import ProbeCheck

MALFORMED = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""what reading an answer of another shape raises"""


def run_check(name: str, look: Callable[[], str], *, deadline_s: float) -> ProbeCheck:
    """`look` says what is wrong, empty where the check holds. After `deadline_s` (`time.monotonic`) the check has
    failed without being looked at."""
    started_s = time.monotonic()
    if started_s >= deadline_s:
        return ProbeCheck(name=name, ok=False, detail="not run: the probes' time was over")
    detail = not_run = ""
    try:
        detail = look()
    except ProbeNotRun as reason:
        not_run = str(reason)
    wall_s = round(time.monotonic() - started_s, 3)
    return ProbeCheck(name=name, ok=not detail, detail=detail, wall_s=wall_s, not_run=not_run)


def shape_text(error: Exception) -> str:
    """One of MALFORMED, told."""
    return f"answer of another shape: {type(error).__name__}: {str(error)[:200]}"
