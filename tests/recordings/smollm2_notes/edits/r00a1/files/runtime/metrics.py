"""Counters for the operator, in Prometheus' text format and under vLLM's names where vLLM has one."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from .spans import Spans

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
)
ITL_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)


class Histogram:
    """Prometheus histogram; `buckets_s` are the inclusive upper bounds."""

    def __init__(self, buckets_s: tuple[float, ...]) -> None:
        self.buckets_s = buckets_s
        self.counts = [0] * (len(buckets_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.buckets_s, seconds)] += 1
        self.sum_s += seconds

    def render(self, name: str, labels: str) -> list[str]:
        lines, total = [f"# TYPE {name} histogram"], 0
        for bound, count in zip((*self.buckets_s, "+Inf"), self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {total}')
        return [*lines, f"{name}_count{{{labels}}} {total}", f"{name}_sum{{{labels}}} {self.sum_s}"]


@dataclass(kw_only=True)
class Metrics:
    """Written by the engine thread, read by the event loop's."""

    num_running: int = 0
    num_waiting: int = 0
    kv_cache_usage: float = 0.0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = field(default_factory=dict)
    """by finish reason"""
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS_S))
    itl: Histogram = field(default_factory=lambda: Histogram(ITL_BUCKETS_S))

    def count_finished(self, reason: str) -> None:
        self.finished[reason] = self.finished.get(reason, 0) + 1

    def render(self, *, model_name: str, spans: Spans) -> str:
        labels = f'model_name="{model_name}"'
        lines: list[str] = []
        for name, kind, value in (
            ("vllm:num_requests_running", "gauge", self.num_running),
            ("vllm:num_requests_waiting", "gauge", self.num_waiting),
            ("vllm:kv_cache_usage_perc", "gauge", self.kv_cache_usage),
            ("vllm:prompt_tokens_total", "counter", self.prompt_tokens),
            ("vllm:generation_tokens_total", "counter", self.generation_tokens),
        ):
            lines += [f"# TYPE {name} {kind}", f"{name}{{{labels}}} {value}"]
        lines.append("# TYPE vllm:request_success_total counter")
        lines += [
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {count}'
            for reason, count in sorted(self.finished.items())
        ]
        lines += self.ttft.render("vllm:time_to_first_token_seconds", labels)
        lines += self.itl.render("vllm:inter_token_latency_seconds", labels)
        lines.append("# TYPE vibeserve_span_seconds_total counter")
        lines += [f'vibeserve_span_seconds_total{{span="{name}"}} {s}' for name, s in spans.seconds.items()]
        return "\n".join(lines) + "\n"
