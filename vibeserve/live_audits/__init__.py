"""Audits of a running server that no scan can replace: what it reuses, defers, remembers or does not compute.

One module an audit: a part that drives a server through the bundle, and a pure one that judges what came back. Limits
are ratios of measurements taken in turns, and stand with their source in the module.
"""

from __future__ import annotations

from vibeserve.live_audits.auditor import Auditor, left_out
from vibeserve.live_audits.duplicates import audit_duplicates
from vibeserve.live_audits.idle import audit_idle
from vibeserve.live_audits.nouns import Audited
from vibeserve.live_audits.off_distribution import audit_off_distribution
from vibeserve.live_audits.other_seeds import audit_seeds
from vibeserve.live_audits.perturbed import audit_weights
from vibeserve.live_audits.possible import judge_possible
from vibeserve.live_audits.precision import audit_precision
from vibeserve.live_audits.predictions import audit_predictions
from vibeserve.live_audits.prefixes import audit_shared_prefix
from vibeserve.live_audits.repeats import audit_repeats
from vibeserve.live_audits.restart import audit_restart
from vibeserve.live_audits.soak import audit_soak
from vibeserve.live_audits.starts import Start, judge_starts

__all__ = [
    "Audited",
    "Auditor",
    "Start",
    "audit_duplicates",
    "audit_idle",
    "audit_off_distribution",
    "audit_precision",
    "audit_predictions",
    "audit_repeats",
    "audit_restart",
    "audit_seeds",
    "audit_shared_prefix",
    "audit_soak",
    "audit_weights",
    "judge_possible",
    "judge_starts",
    "left_out",
]
