"""Counters for the operator, in Prometheus' text format and under vLLM's names where vLLM has one."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from .spans import Spans

LATENCY_BUCKETS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
    120.0,
    240.0,
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
    """Written and read on the event loop's thread, but for `num_running`."""

    num_running: int = 0
    """requests in the model; written by the engine's thread"""
    num_unfinished: int = 0
    """requests in the model or waiting for it"""
    finished: dict[str, int] = field(default_factory=dict)
    """by finish reason: stop, error, abort"""
    latency: Histogram = field(default_factory=lambda: Histogram(LATENCY_BUCKETS_S))
    """of whole requests that were answered"""

    @property
    def num_waiting(self) -> int:
        return max(0, self.num_unfinished - self.num_running)

    def count_finished(self, reason: str) -> None:
        self.finished[reason] = self.finished.get(reason, 0) + 1

    def render(self, *, model_name: str, spans: Spans) -> str:
        labels = f'model_name="{model_name}"'
        lines: list[str] = []
        for name, value in (
            ("vllm:num_requests_running", self.num_running),
            ("vllm:num_requests_waiting", self.num_waiting),
        ):
            lines += [f"# TYPE {name} gauge", f"{name}{{{labels}}} {value}"]
        lines.append("# TYPE vllm:request_success_total counter")
        lines += [
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {count}'
            for reason, count in sorted(self.finished.items())
        ]
        lines += self.latency.render("vllm:e2e_request_latency_seconds", labels)
        lines.append("# TYPE vibeserve_span_seconds_total counter")
        lines += [f'vibeserve_span_seconds_total{{span="{name}"}} {s}' for name, s in spans.seconds.items()]
        return "\n".join(lines) + "\n"
