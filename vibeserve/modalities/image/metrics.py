"""From images to the metrics of windows.

An image takes seconds, a window may hold few of them or none that ends. So images count by the time that they take of a
window, not by where they end; a server that stands still between two windows takes no time.

- Latency: from when the image was due to its answer. Of every image that was in work within the windows; where none
  of them was ever answered, what the oldest has lasted so far. A failed one is infinitely late.
- Image throughput: images per second, each by the share of its time that lies within the windows. What was cut off
  counts as one that takes as long as the median of those that were answered; where none was, it counts as nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from vibeserve.contract import CUT, Direction, Metric, Window, percentile
from vibeserve.core.nouns import METRICS
from vibeserve.modalities.image.wire import ImageRecord

MEASURED: tuple[Metric, ...] = (
    METRICS["e2el_p50"],
    METRICS["e2el_p99"],
    METRICS["request_throughput"],
    Metric(name="image_throughput", unit="images/s", direction=Direction.MAX),
)
"""e2el_p50 and request_throughput are images' own; every request is one image"""


def measure_images(records: Sequence[ImageRecord], windows: Sequence[Window]) -> dict[str, float]:
    """`MEASURED` over the union of disjoint windows.

    image_throughput is always there; e2el_p50 where an image was in work and has ended, or has taken a whole window;
    e2el_p99 with the samples that it needs.
    """
    shares = [(record, _within_s(record, windows)) for record in records]
    worked = [(record, within_s) for record, within_s in shares if within_s > 0]
    ended = [_latency_s(record) for record, _ in worked if record.error != CUT]
    finished = [latency_s for latency_s in ended if math.isfinite(latency_s)]
    usual_s = median(finished) if finished else math.inf
    total_s = sum(window.end_s - window.start_s for window in windows)
    rate = sum(_num_images(record, within_s, usual_s=usual_s) for record, within_s in worked) / total_s
    found = {"image_throughput": rate, "request_throughput": rate, "num_images": float(len(finished))}
    latency_s = _median_s(ended) if ended else _least_s(worked, windows)
    if math.isfinite(latency_s):
        found["e2el_p50"] = latency_s
    slowest_s = percentile(ended, 99)
    return found if slowest_s is None else found | {"e2el_p99": slowest_s}


def _within_s(record: ImageRecord, windows: Sequence[Window]) -> float:
    """Seconds of the windows in which the server worked on it."""
    return sum(max(0.0, min(record.end_s, each.end_s) - max(record.sent_s, each.start_s)) for each in windows)


def _latency_s(record: ImageRecord) -> float:
    return record.end_s - record.scheduled_s if record.error is None else math.inf


def _num_images(record: ImageRecord, within_s: float, *, usual_s: float) -> float:
    if record.error == CUT:
        return within_s / max(usual_s, record.end_s - record.sent_s)
    return within_s / max(record.end_s - record.sent_s, within_s) if record.error is None else 0.0


def _median_s(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(len(values) / 2) - 1]


def _least_s(worked: Sequence[tuple[ImageRecord, float]], windows: Sequence[Window]) -> float:
    """Of images that were cut off and took a window from end to end: at least so long."""
    longest_s = max((window.end_s - window.start_s for window in windows), default=0.0)
    ages = [record.end_s - record.scheduled_s for record, within_s in worked if within_s >= longest_s]
    return max(ages, default=math.inf)
