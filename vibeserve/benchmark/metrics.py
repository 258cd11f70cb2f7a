"""From the records of a load to the metrics of windows of its active time, whatever the workload.

The framework's own, of every workload: a request counts in the window in which it ended; one with an error (but `cut`)
failed, and has infinite latency. Latencies count from the scheduled time. Goodput counts the requests whose whole reply
came within `slo.e2el_s`, or `slo.ttft_s` where there is none: without tokens the first output may be the whole one.

The workload's `measure` adds its own, and may replace these; a value that is none is nobody's but the target's: the
run ends with ContractError. Absent never means good: whoever decides on a missing value refuses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vibeserve.contract import CUT, MIN_SAMPLES, Record, Window, percentile
from vibeserve.core.documents import from_data
from vibeserve.modalities import Bundle, measured_values
from vibeserve.spec import Slo


def window_metrics(records: Sequence[Record], *, start_s: float, end_s: float, bundle: Bundle) -> dict[str, float]:
    """Metrics of the window [start_s, end_s) of active seconds: `modalities.metrics_of`, but for peak_memory and
    startup, and diagnostics.

    Always there: request_throughput, goodput, num_finished, num_failed, num_in_flight, oldest_in_flight_s,
    sent_lag_max_s. There only with enough samples: e2el_{p50,p99}. What else there is, is the workload's.
    """
    return pooled_metrics(records, windows=[(start_s, end_s)], bundle=bundle)


def pooled_metrics(
    records: Sequence[Record], *, windows: Sequence[tuple[float, float]], bundle: Bundle
) -> dict[str, float]:
    """The same over the union of several disjoint windows: more samples for the percentiles.

    Raises ContractError where the workload's `measure` fails, or returns what is no value of its METRICS.
    """
    if not windows or not all(start_s < end_s for start_s, end_s in windows):
        raise ValueError(f"windows must be non-empty intervals, not {list(windows)}")
    spans = [Window(start_s=start_s, end_s=end_s) for start_s, end_s in windows]
    near = [
        record
        for record in records
        if any(record.scheduled_s < span.end_s and record.end_s >= span.start_s for span in spans)
    ]
    slo = from_data(Slo, dict(bundle.ref.context.workload.get("slo", {})))
    own = measured_values(bundle, near, spans)
    return _common(near, spans, slo=slo) | _in_flight(near, end_s=spans[-1].end_s) | own


def _common(records: Sequence[Record], windows: Sequence[Window], *, slo: Slo) -> dict[str, float]:
    duration_s = sum(window.end_s - window.start_s for window in windows)
    ended = [
        record for record in records if record.error != CUT and any(window.holds(record.end_s) for window in windows)
    ]
    latencies_s = [record.end_s - record.scheduled_s if record.error is None else math.inf for record in ended]
    num_finished = sum(record.error is None for record in ended)
    limit_s = slo.e2el_s or slo.ttft_s
    percentiles = {f"e2el_p{percent}": percentile(latencies_s, percent) for percent in MIN_SAMPLES}
    return {
        "request_throughput": num_finished / duration_s,
        "goodput": sum(latency_s <= limit_s for latency_s in latencies_s) / duration_s,
        "num_finished": float(num_finished),
        "num_failed": float(len(ended) - num_finished),
    } | {name: value for name, value in percentiles.items() if value is not None}


def _in_flight(records: Sequence[Record], *, end_s: float) -> dict[str, float]:
    """What a server that never answers hides: requests without an end at the window's end, and the oldest one's age."""
    ages_s = [
        end_s - record.scheduled_s
        for record in records
        if record.scheduled_s < end_s and (record.end_s >= end_s or record.error == CUT)
    ]
    lag_s = max((record.sent_s - record.scheduled_s for record in records), default=0.0)
    return {
        "num_in_flight": float(len(ages_s)),
        "oldest_in_flight_s": max(ages_s, default=0.0),
        "sent_lag_max_s": lag_s,
    }
