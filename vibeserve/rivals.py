"""Baselines as contenders: what a certification needs of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vibeserve.contract import Direction, Metric
from vibeserve.service import Launch
from vibeserve.spec import Spec

SCREEN_SHARE = 0.7
"""an optional baseline below this share of the best one's rate is screened out: measured once, not interleaved"""


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A baseline that can be started here."""

    name: str
    baseline_class: str
    """naive or competent"""
    precision: str
    """table of its rows: same_bytes or any"""
    version: str
    flags: tuple[str, ...]
    is_required: bool
    launch: Launch
    dialect: str
    model: str
    """name to send in requests; empty = the one that the server lists"""
    note: str = ""
    """what a calibration chose"""
    calibrated_per_s: float = 0.0
    """rate (`screened_by`) of its calibration at the headline load; 0 = not calibrated"""
    weight_bits: float | None = None
    kv_bits: float | None = None
    is_ours: bool = False
    """an earlier runtime of the same search: its requests hold what the check asks for, like the winner's"""


def screened_by(spec: Spec, metrics: Mapping[str, Metric]) -> Metric:
    """The rate that tells slow baselines from fast ones: the headline metric, or where that is no rate
    partial_throughput (speech) or request_throughput, since a median latency says little about a server that is too
    slow for the load."""
    headline = metrics[spec.goals[0].metric] if spec.goals else metrics["request_throughput"]
    is_rate = headline.unit.endswith("/s") and headline.direction is Direction.MAX
    return headline if is_rate else metrics.get("partial_throughput") or metrics["request_throughput"]
