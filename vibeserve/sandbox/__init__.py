"""Walls around processes: tier A (bubblewrap), tier B (Landlock and seccomp), tier C (none, by explicit opt-out).

Names are loaded when they are first used: the child programs in this package start in a few milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibeserve.sandbox.cleanliness import Leftover
    from vibeserve.sandbox.launch import run, spawn
    from vibeserve.sandbox.process import Finished, Process, join_argv
    from vibeserve.sandbox.records import forget_process, record_process, sweep_orphans
    from vibeserve.sandbox.resources import Exceeded, Resources, resources_of
    from vibeserve.sandbox.tiers import probe_limits, probe_tiers, resolve_tier
    from vibeserve.sandbox.wall import Wall

__all__ = [
    "Exceeded",
    "Finished",
    "Leftover",
    "Process",
    "Resources",
    "Wall",
    "forget_process",
    "join_argv",
    "probe_limits",
    "probe_tiers",
    "record_process",
    "resolve_tier",
    "resources_of",
    "run",
    "spawn",
    "sweep_orphans",
]

_MODULES = {
    "launch": ("run", "spawn"),
    "process": ("Finished", "Process", "join_argv"),
    "records": ("forget_process", "record_process", "sweep_orphans"),
    "resources": ("Exceeded", "Resources", "resources_of"),
    "cleanliness": ("Leftover",),
    "tiers": ("probe_limits", "probe_tiers", "resolve_tier"),
    "wall": ("Wall",),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
