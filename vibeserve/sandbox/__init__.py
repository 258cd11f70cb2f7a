"""Walls around processes: tier A (bubblewrap), tier B (Landlock and seccomp), tier C (none, by explicit opt-out)."""

from vibeserve.sandbox.launch import run, spawn
from vibeserve.sandbox.process import Finished, Process, join_argv
from vibeserve.sandbox.records import forget_process, record_process, sweep_orphans
from vibeserve.sandbox.tiers import probe_tiers, resolve_tier
from vibeserve.sandbox.wall import Wall

__all__ = [
    "Finished",
    "Process",
    "Wall",
    "forget_process",
    "join_argv",
    "probe_tiers",
    "record_process",
    "resolve_tier",
    "run",
    "spawn",
    "sweep_orphans",
]
