"""Sweeps: many runs by one command, each in a process of its own, content-keyed, restartable, summed up at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["run_sweep"]


def run_sweep(overrides: Sequence[str], *, is_json: bool, say: Callable[[str], None]) -> int:
    """See `vibeserve.sweeps.driver.run_sweep`; imported when it is called."""
    from vibeserve.sweeps import driver

    return driver.run_sweep(overrides, is_json=is_json, say=say)
