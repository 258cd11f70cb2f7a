"""Served-path accuracy: what the timed server returned, inspected, compared with the reference, probed.

Nothing here knows a modality: a bundle's reference, check, faults and probes are reached through `modalities.Bundle`.
"""

from __future__ import annotations

from vibeserve.accuracy.documents import Scores
from vibeserve.accuracy.faults import FaultResult, refuse_unproven, try_faults
from vibeserve.accuracy.judging import Judged, judge_records
from vibeserve.accuracy.probing import not_probed, probe_refusals, probe_server, suite_of
from vibeserve.accuracy.rescore import reference_logprobs

__all__ = [
    "FaultResult",
    "Judged",
    "Scores",
    "judge_records",
    "not_probed",
    "probe_refusals",
    "probe_server",
    "reference_logprobs",
    "refuse_unproven",
    "suite_of",
    "try_faults",
]
