"""What each certification level does, in seconds, pairs and starts. A target declares the level only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vibeserve.spec import Level


class AuditScope(Enum):
    """Which audits of the running server a certification holds (`vibeserve.live_audits`)."""

    none = "none"
    cheap = "cheap"
    """repeated prompts, duplicates in flight, shared prefixes; start-up and impossible numbers come without saying"""
    full = "full"
    """off-distribution, other seeds, idleness, restart, damaged weights and the soak as well"""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Windows of one certification level (`design` table: windows, pairs, starts)."""

    search_window_s: float
    search_warmup_s: float
    search_pairs: int
    certify_window_s: float
    certify_warmup_s: float
    certify_starts: int
    certify_pairs: int
    """per start"""
    certify_rescored: int = 0
    """timed replies that are re-scored at certification, drawn at random when all were served; 0 = all. A share of 1%
    that is wrong is among 384 with a probability of 98%"""
    screen_window_s: float = 15.0
    soak_s: float = 0.0
    audits: AuditScope = AuditScope.cheap
    audit_budget_s: float = 60.0
    """estimate of the audits' wall time without the soak, on two cores and a model of 135 M parameters"""
    is_fresh_per_window: bool = False
    """certification starts every server anew for every window"""


SCHEDULES: dict[Level, Schedule] = {
    Level.quick: Schedule(
        search_window_s=5.0,
        search_warmup_s=1.0,
        search_pairs=5,
        certify_window_s=10.0,
        certify_warmup_s=2.0,
        certify_starts=1,
        certify_pairs=5,
        certify_rescored=128,
        screen_window_s=10.0,
    ),
    Level.standard: Schedule(
        search_window_s=8.0,
        search_warmup_s=2.0,
        search_pairs=8,
        certify_window_s=20.0,
        certify_warmup_s=2.0,
        certify_starts=3,
        certify_pairs=3,
        certify_rescored=384,
    ),
    Level.full: Schedule(
        search_window_s=30.0,
        search_warmup_s=5.0,
        search_pairs=12,
        certify_window_s=60.0,
        certify_warmup_s=5.0,
        certify_starts=3,
        certify_pairs=8,
        soak_s=600.0,
        audits=AuditScope.full,
        audit_budget_s=480.0,
        is_fresh_per_window=True,
    ),
}
