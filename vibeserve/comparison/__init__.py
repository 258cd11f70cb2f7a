"""Artifacts side by side: each beside its own baselines, never one run's number over another's."""

from __future__ import annotations

from vibeserve.comparison.artifacts import Compared, find_artifact, read_artifacts
from vibeserve.comparison.tables import Comparison, Group, compare

__all__ = ["Compared", "Comparison", "Group", "compare", "find_artifact", "read_artifacts"]
