"""Where in a run requests are looked at, and what is known there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vibeserve.agents import PlanningState


class Phase(Enum):
    BUILD = "build"
    """before a step that comes ahead of the search"""
    PROPOSAL = "proposal"
    """before the next one"""
    ATTEMPT = "attempt"
    """between two attempts of a round"""
    CERTIFICATION = "certification"
    """the search has ended; nothing was certified yet, or nothing was packaged"""
    STOPPED = "stopped"
    """no process carries the run out; a verb holds it for one edit of the planning state"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One safe point."""

    phase: Phase
    round: int
    """the last finished one; between attempts the one under way"""
    state: PlanningState | None = None
    """of the search; None where there is none any more"""
    is_assembling: bool = False
    """the implementer writes nothing of its own"""
