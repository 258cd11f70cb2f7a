"""A child process's ties to its parent (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int, *, number: signal.Signals = signal.SIGTERM) -> None:
    """Get signal `number` when the parent (its thread that forked) ends; end at once where it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(128 + number)


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process: none gets out of its tree."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
