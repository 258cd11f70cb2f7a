"""This machine: what it is, what it can at most, and which cores serve and which measure."""

from __future__ import annotations

from vibeserve.hardware.bandwidth import measure_bandwidth_gb_s
from vibeserve.hardware.cores import resolve_cpus
from vibeserve.hardware.facts import GpuFacts, HardwareFacts, TorchFacts, identity
from vibeserve.hardware.match import mismatch
from vibeserve.hardware.probe import probe, probe_torch
from vibeserve.hardware.roofline import decode_step_floor_s, kv_bytes_per_token, prefill_floor_s

__all__ = [
    "GpuFacts",
    "HardwareFacts",
    "TorchFacts",
    "decode_step_floor_s",
    "identity",
    "kv_bytes_per_token",
    "measure_bandwidth_gb_s",
    "mismatch",
    "prefill_floor_s",
    "probe",
    "probe_torch",
    "resolve_cpus",
]
