"""What a load changes in its workload, and the lengths and rates that follow from both."""

from __future__ import annotations

import dataclasses

from vibeserve.spec import Load, Workload
from vibeserve.workloads.trace_file import mean_rate_per_s, read_trace


def at_load(workload: Workload, name: str) -> Workload:
    """`workload` as it is asked for under its load `name`: that load's own lengths, prefixes and prediction."""
    load = workload.loads[name]
    changes: dict[str, int | float | str] = {}
    if load.output_tokens:
        changes |= {"output_tokens_min": load.output_tokens, "output_tokens_max": load.output_tokens}
    if load.num_prefixes:
        changes["num_prefixes"] = load.num_prefixes
    if load.prediction:
        changes["prediction"] = load.prediction
    if load.audio_s:
        changes |= {"audio_s_min": load.audio_s, "audio_s_max": load.audio_s}
    return dataclasses.replace(workload, **changes)  # type: ignore[arg-type]


def longest_sequence_tokens(workload: Workload) -> int:
    """Most tokens of one sequence under any load, shared prefix, prompt and output together."""
    longest_output = max([workload.output_tokens_max, *(load.output_tokens for load in workload.loads.values())])
    return workload.shared_prefix_tokens + workload.prompt_tokens_max + longest_output


def arrival_rate_per_s(workload: Workload, load: Load) -> float:
    """Mean arrivals per second of an open loop; 0 for a closed one. Reads the file of a trace."""
    if load.trace_speed:
        return load.trace_speed * mean_rate_per_s(read_trace(workload))
    return load.rate_per_s
