"""What a workload asks of a server under one load: sequences in flight and their lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vibeserve.spec import Spec, Workload
from vibeserve.workloads import arrival_rate_per_s, at_load

PREDICTABLE = ("edits", "pre_edit", "exact")
"""kinds of prediction that foretell most of the answer: one pass can verify many tokens"""

FORCED_KINDS = ("constrained_json",)
"""workloads whose grammar forces tokens: one pass can append many (jump-forward decoding)"""

SHARED_KIND = "shared_prefix"
"""the workload whose requests share prefixes by definition"""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """One load. Tokens of a text prompt; for speech `num_frames` of the encoder are attended to as well."""

    load: str
    num_prefix_tokens: int
    """shared by requests and kept: computed once, 0 without declared reuse"""
    num_prefixes: int
    """different ones in use; 0 without declared reuse"""
    prompt_min: int
    """of a request's own tokens, those of an unshared prefix included"""
    prompt_max: int
    output_min: int
    output_max: int
    num_frames: int
    """encoder frames of the longest recording"""
    num_sequences: int
    """in flight at once"""
    arrivals_per_s: float
    """of an open loop; 0 for a closed one"""
    is_one_token_a_pass: bool
    """decoding is step by step; else the answer is foretold or forced, and a pass may yield any number of tokens"""

    @property
    def context_min(self) -> int:
        """Shortest context of a decode step."""
        return self.num_prefix_tokens + self.prompt_min

    @property
    def longest_prompt(self) -> int:
        """Tokens of the largest prefill, the prefix's first one included."""
        return self.num_prefix_tokens + self.prompt_max

    @property
    def tokens_per_sequence(self) -> int:
        """Positions that one sequence keeps beside the shared prefix, at most."""
        return self.prompt_max + self.output_max + self.num_frames


def demand_of(spec: Spec, name: str) -> Demand:
    """The demand of the declared load `name`."""
    workload = at_load(spec.workload, name)
    is_declared = workload.kind == SHARED_KIND or workload.reuse == "prefix"
    is_shared = workload.shared_prefix_tokens > 0 and is_declared
    own_prefix = 0 if is_shared else workload.shared_prefix_tokens
    is_predictable = workload.kind in FORCED_KINDS or workload.prediction in PREDICTABLE
    return Demand(
        load=name,
        num_prefix_tokens=workload.shared_prefix_tokens if is_shared else 0,
        num_prefixes=workload.num_prefixes if is_shared else 0,
        prompt_min=workload.prompt_tokens_min + own_prefix,
        prompt_max=workload.prompt_tokens_max + own_prefix,
        output_min=workload.output_tokens_min,
        output_max=workload.output_tokens_max,
        num_frames=math.ceil(workload.audio_s_max * spec.model.speech_encoder.frames_per_s),
        num_sequences=num_in_flight(workload, name),
        arrivals_per_s=arrival_rate_per_s(workload, workload.loads[name]),
        is_one_token_a_pass=not is_predictable,
    )


def num_in_flight(workload: Workload, name: str) -> int:
    """Requests in flight at once: the concurrency, or Little's law with the slowest admissible latency of an SLO."""
    load = workload.loads[name]
    if load.concurrency:
        return load.concurrency
    latency_s = workload.slo.ttft_s + workload.slo.tpot_s * workload.output_tokens_max
    return max(1, math.ceil(arrival_rate_per_s(workload, load) * latency_s))
