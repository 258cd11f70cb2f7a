"""Measurement and statistics: windows of active time, paired ratios, decisions, checks of the yardstick."""

from __future__ import annotations

from vibeserve.benchmark.clock import Clock, FakeClock, RealClock
from vibeserve.benchmark.decision import AGAIN_FACTOR, Guard, decide, is_undecided
from vibeserve.benchmark.disturbance import DisturbedPair
from vibeserve.benchmark.headroom import Headroom, headroom
from vibeserve.benchmark.hoarding import Span, held_back
from vibeserve.benchmark.interleaving import Contender, Devices, Discarding, Slice, interleave
from vibeserve.benchmark.metrics import pooled_metrics, window_metrics
from vibeserve.benchmark.statistics import noise_floor, paired_log_ratios, paired_ratio, self_log_ratios

__all__ = [
    "AGAIN_FACTOR",
    "Clock",
    "Contender",
    "Devices",
    "Discarding",
    "DisturbedPair",
    "FakeClock",
    "Guard",
    "Headroom",
    "RealClock",
    "Slice",
    "Span",
    "decide",
    "headroom",
    "held_back",
    "interleave",
    "is_undecided",
    "noise_floor",
    "paired_log_ratios",
    "paired_ratio",
    "pooled_metrics",
    "self_log_ratios",
    "window_metrics",
]
