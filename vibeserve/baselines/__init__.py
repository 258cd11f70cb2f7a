"""The servers a user would otherwise run, as services: how to start each one fairly, and how to install it."""

from __future__ import annotations

from vibeserve.baselines.calibration import RAMP_S, WINDOW_S, Bench, Calibration, calibrate
from vibeserve.baselines.installs import install
from vibeserve.baselines.port import Peer, PeerOptions, PrecisionFacts
from vibeserve.baselines.registry import NO_LAUNCHER, PEERS, Availability, check_available, get_peer, installed_version

__all__ = [
    "NO_LAUNCHER",
    "PEERS",
    "RAMP_S",
    "WINDOW_S",
    "Availability",
    "Bench",
    "Calibration",
    "Peer",
    "PeerOptions",
    "PrecisionFacts",
    "calibrate",
    "check_available",
    "get_peer",
    "install",
    "installed_version",
]
