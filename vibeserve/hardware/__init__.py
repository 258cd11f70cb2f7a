"""This machine: what it is, what it can at most, and which cores serve and which measure."""

from __future__ import annotations

from vibeserve.hardware.bandwidth import measure_bandwidth_gb_s
from vibeserve.hardware.cores import resolve_cpus
from vibeserve.hardware.facts import GpuFacts, HardwareFacts, TorchFacts, identity
from vibeserve.hardware.footprint import Sharding, kv_bytes_per_token, state_bytes_per_sequence, weight_bytes
from vibeserve.hardware.match import describe, lack, mismatch
from vibeserve.hardware.probe import probe, probe_torch
from vibeserve.hardware.roofline import all_reduce_floor_s, attention_flops, decode_step_floor_s

__all__ = [
    "GpuFacts",
    "HardwareFacts",
    "Sharding",
    "TorchFacts",
    "all_reduce_floor_s",
    "attention_flops",
    "decode_step_floor_s",
    "describe",
    "identity",
    "kv_bytes_per_token",
    "lack",
    "measure_bandwidth_gb_s",
    "mismatch",
    "probe",
    "probe_torch",
    "resolve_cpus",
    "state_bytes_per_sequence",
    "weight_bytes",
]
