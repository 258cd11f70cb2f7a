"""Baselines as contenders: what a certification needs of each."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.service import Launch

SCREEN_SHARE = 0.7
"""an optional baseline below this share of the best one's throughput is screened out: measured once, not interleaved"""


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
    adapter: str
    model: str
    """name to send in requests; empty = the one that the server lists"""
    note: str = ""
    """what a calibration chose"""
    calibrated_tokens_per_s: float = 0.0
    """output throughput of its calibration at the headline load; 0 = not calibrated"""
    weight_bits: float | None = None
    kv_bits: float | None = None
