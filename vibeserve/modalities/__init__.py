"""What is right, what is asked and how far a reply may be off: the built-in modalities, and target folders' own.

Both are written to `vibeserve.contract`, and everything else in the framework reaches them through `Bundle`.
"""

from __future__ import annotations

from vibeserve.modalities.bundle import Bundle, open_bundle
from vibeserve.modalities.metrics import known_metrics, measured_values, metrics_of
from vibeserve.modalities.sources import BundleRef, bundle_ref, contract_files, target_folder, target_folders

__all__ = [
    "Bundle",
    "BundleRef",
    "bundle_ref",
    "contract_files",
    "known_metrics",
    "measured_values",
    "metrics_of",
    "open_bundle",
    "target_folder",
    "target_folders",
]
