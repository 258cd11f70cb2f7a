"""A long steady run of the winner: the second half as fast as the first, memory that does not grow (class 48, rule 9).

600 s at level full (`vibeserve.schedules`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vibeserve.benchmark.drift import MAX_DECAY, MemorySlope, decays, half_ratio, memory_slope
from vibeserve.contract import CUT, Pool, Record
from vibeserve.core.nouns import RatioInterval, Reply
from vibeserve.errors import RefusedError, ServerError
from vibeserve.live_audits.decisions import failed_problem, interval_figures, shown
from vibeserve.live_audits.nouns import Audited, audited
from vibeserve.live_audits.processes import resident_gib
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server

NAME = "soak"
DECAY, GROWTH = "decay", "memory_growth"
WARM_SHARE = 0.1
"""of the run, before anything counts: caches and pools fill"""
NUM_SAMPLES = 40
"""of memory"""
MAX_GROWTH = 0.10
"""of the median over the run: ours. Allocators and logs grow a little, a leak of a cache entry per request much"""
MIN_GROWTH_GIB = 0.05
"""less, over the run, is no leak: of a small server it is soon a tenth"""
NUM_EVIDENCE = 64
"""replies that are judged: a sample over the whole run"""
POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What a soak left: records of the whole run, (seconds, GiB) samples, and the part that counts."""

    records: tuple[Record, ...]
    memory: tuple[tuple[float, float], ...]
    start_s: float
    end_s: float


def audit_soak(bench: Workbench, server: Server, *, seed: int, soak_s: float) -> Audited:
    """Refuses `decay` and `memory_growth`, after `soak_s` seconds at the headline load. It is not repeated."""
    load = bench.plan.spec.workload.headline_load
    session = bench.session(server, load=load, pool=Pool.certification, seed=seed)
    session.start()
    samples: list[tuple[float, float]] = []
    try:
        _watch(session.active_now_s, samples, server=server, check=session.check, soak_s=soak_s)
    finally:
        records = session.stop()
    soaked = Soaked(
        records=tuple(records), start_s=WARM_SHARE * soak_s, end_s=soak_s,
        memory=tuple(sample for sample in samples if sample[0] >= WARM_SHARE * soak_s),
    )  # fmt: skip
    return judge_soak(soaked, seed=seed)


def _watch(
    now_s: Callable[[], float], samples: list[tuple[float, float]], *, server: Server, check: Callable[[], None],
    soak_s: float,
) -> None:  # fmt: skip
    while (at_s := now_s()) < soak_s:
        status = server.poll()
        if status is not None:
            detail = f"exit status {status} in the soak, after {at_s:.0f} s"
            raise ServerError(server.name, outcome=server.outcome, detail=detail, log_tail=server.log_tail())
        check()
        if at_s >= len(samples) * soak_s / NUM_SAMPLES:
            samples.append((at_s, resident_gib(server.process.descendants())))
        time.sleep(min(POLL_S, soak_s / NUM_SAMPLES))


def judge_soak(soaked: Soaked, *, seed: int) -> Audited:
    """Pure. A stretch without a token, a failed request, or memory that could not be read is not steady."""
    ended = [record for record in soaked.records if record.error != CUT]
    halves, standstill = _halves(soaked, seed=seed)
    slope = _slope(soaked.memory)
    decayed = "; ".join(filter(None, [failed_problem(ended, num_sent=len(ended)), standstill, _decay_problem(halves)]))
    refused = {DECAY: decayed} if decayed else {}
    growth = _growth_problem(slope, hours=(soaked.end_s - soaked.start_s) / 3600)
    if growth:
        refused[GROWTH] = growth
    figures = interval_figures(halves, prefix="second_half_") | {"seconds": soaked.end_s, "num_requests": len(ended)}
    if slope is not None:
        figures |= {"memory_gib_per_h": slope.gib_per_h, "memory_growth_share": slope.growth_share}
    text = ""
    if halves is not None and slope is not None:
        text = (
            f"{soaked.end_s:.0f} s: the second half has {shown(halves)} of the first one's throughput, memory grew by "
            f"{slope.growth_share:.1%}"
        )
    return audited(NAME, text=text, figures=figures, refused=refused, evidence=_sample(soaked.records, seed=seed))


def output_times(records: Sequence[Record]) -> list[float]:
    """When each token came; of what is no text, when each mark or else each reply came."""
    times: list[float] = []
    for record in records:
        if isinstance(record, Reply):
            times += [chunk.at_s for chunk in record.chunks for _ in range(max(1, len(chunk.token_ids)))]
        elif record.marks:
            times += [at_s for at_s, _ in record.marks]
        elif record.error is None:
            times.append(record.end_s)
    return times


def _halves(soaked: Soaked, *, seed: int) -> tuple[RatioInterval | None, str]:
    """(ratio of the halves, why there is none)"""
    try:
        return half_ratio(output_times(soaked.records), start_s=soaked.start_s, end_s=soaked.end_s, seed=seed), ""
    except RefusedError as error:
        return None, str(error)


def _decay_problem(halves: RatioInterval | None) -> str:
    if halves is None or not decays(halves):
        return ""
    return f"the second half has {shown(halves)} of the first one's throughput, {1 - MAX_DECAY:g} is required"


def _slope(memory: Sequence[tuple[float, float]]) -> MemorySlope | None:
    usable = [(at_s, gib) for at_s, gib in memory if gib > 0]
    return memory_slope(usable) if len(usable) >= 3 else None


def _growth_problem(slope: MemorySlope | None, *, hours: float) -> str:
    if slope is None:
        return "the server's memory could not be read"
    if slope.growth_share <= MAX_GROWTH or slope.gib_per_h * hours < MIN_GROWTH_GIB:
        return ""
    grown = f"memory grew by {slope.growth_share:.1%} ({slope.gib_per_h:.2f} GiB an hour)"
    return f"{grown}, at most {MAX_GROWTH:.0%} over the run is allowed"


def _sample(records: Sequence[Record], *, seed: int) -> list[Record]:
    finished = [record for record in records if record.error is None]
    return random.Random(f"soak-{seed}").sample(finished, min(NUM_EVIDENCE, len(finished)))
