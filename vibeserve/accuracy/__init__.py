"""Served-path accuracy: what the timed server returned, checked on its face, re-scored by the reference, probed."""

from __future__ import annotations

from vibeserve.accuracy.probing import (
    ProbeCheck,
    ProbeReport,
    probe_argv,
    probe_refusals,
    probe_server,
    read_probe_report,
)
from vibeserve.accuracy.replies import reply_refusals
from vibeserve.accuracy.rescore import rescore
from vibeserve.accuracy.scores import ReplyScores, Scores, accuracy_refusals

__all__ = [
    "ProbeCheck",
    "ProbeReport",
    "ReplyScores",
    "Scores",
    "accuracy_refusals",
    "probe_argv",
    "probe_refusals",
    "probe_server",
    "read_probe_report",
    "reply_refusals",
    "rescore",
]
