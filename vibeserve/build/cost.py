"""What a finished run cost on priced hardware, and after how many requests it has paid back, by what was certified."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vibeserve.build.stamps import read_stamp
from vibeserve.core.manifest import Manifest
from vibeserve.plan import Plan, break_even_requests, usd_per_request

RATE = "request_throughput"
"""the certified metric that prices a request"""


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """Of the steps that ran, whichever command ran them."""

    device_hours: float
    usd: float
    """devices and agents together"""
    against: str
    """baseline of the headline goal; empty where no price of its can be said"""
    break_even_requests: float | None
    """None where a request gets no cheaper, or nothing is there to compare with"""
    schema_version: int = 1

    def __str__(self) -> str:
        spent = f"{self.device_hours:.2f} device-hours, {self.usd:.2f} USD"
        if not self.against:
            return f"{spent}; no price of a request to compare with"
        if self.break_even_requests is None:
            return f"{spent}; a request is no cheaper than by {self.against}"
        return f"{spent}; pays back after {self.break_even_requests / 1e6:.3g} million requests against {self.against}"


def measured_cost(plan: Plan, manifest: Manifest, *, steps_dir: Path) -> RunCost | None:
    """None where the hardware has no price or no step left a stamp in `steps_dir`."""
    hourly = plan.spec.hardware.usd_per_hour * plan.spec.hardware.count
    stamps = [read_stamp(path) for path in sorted(steps_dir.glob("*/stamp.json"))]
    seconds = sum(stamp.seconds for stamp in stamps if stamp is not None)
    if not hourly or not seconds:
        return None
    usd = hourly * seconds / 3600 + manifest.usage.get("usd", 0.0)
    against, before, after = _rates(manifest)
    number = None
    if against:
        number = break_even_requests(
            usd,
            usd_per_request_before=usd_per_request(usd_per_hour=hourly, requests_per_s=before),
            usd_per_request_after=usd_per_request(usd_per_hour=hourly, requests_per_s=after),
        )
    hours = plan.spec.hardware.count * seconds / 3600
    return RunCost(device_hours=hours, usd=usd, against=against, break_even_requests=number)


def _rates(manifest: Manifest) -> tuple[str, float, float]:
    """(baseline, its requests per second, ours) at the headline's load; the baseline is empty without both."""
    headline = manifest.headline()
    goal = manifest.goals[0] if manifest.goals else None
    row = next(
        (item for item in manifest.metrics if headline and item.name == RATE and item.load == headline.load), None
    )
    if row is None or goal is None:
        return "", 0.0, 0.0
    values = [item for item in row.baselines if goal.against in (item.name, item.baseline_class) and item.value]
    fastest = max(values, key=lambda item: item.value or 0.0, default=None)
    if fastest is None or not fastest.value or not row.candidate:
        return "", 0.0, 0.0
    return fastest.name, fastest.value, row.candidate
