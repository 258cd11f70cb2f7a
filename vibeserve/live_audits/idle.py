"""Nothing is left to do: soon after the last reply the server must rest, and the next request must not wait
(class 15: work that is deferred past the timer).

The rest is told from the CPU time of the server's whole tree, above what it used before any request came, against what
it used for the block. Next-request latency is that of a request that follows a block at once against one that comes
after a rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from vibeserve.contract import Record, Request
from vibeserve.live_audits.decisions import (
    failed_problem,
    first_output_s,
    gain_problem,
    interval_figures,
    saved_s,
    shown,
    speed_up,
)
from vibeserve.live_audits.driving import drive
from vibeserve.live_audits.nouns import Audited, audited, confirmed, not_applicable
from vibeserve.live_audits.traffic import alike
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server

NAME = "idle_after_replies"
REASON = "deferred_work"
NUM_PAIRS = 4
NUM_AT_ONCE = 4
GRACE_S = 0.5
"""threads that spin before they sleep (OpenMP: 0.2 s) and the freeing of caches are over by then"""
WATCH_S = 3.0
"""work that waits for a second or two of silence must show, also where other processes have most of the machine"""
MAX_LATE_SHARE = 0.1
"""of a block's own CPU time, spent after its last reply and the grace: ours"""
MIN_LATE_S = 0.1
"""ten ticks of the kernel's clock; less cannot be told from none"""
MAX_REST_SHARE = 0.05
"""of one core, that counts as a server's rest (polling, heartbeats): it has served its first request when that is read,
and what goes on since then is no rest"""
MAX_WAIT = 1.25
"""most that the first output at once after a block may take, against after a rest: ours; closed-loop next-request
latency, with room for caches that are being freed"""
MIN_WAIT_S = 0.02
"""less than a frame of a screen is no work that was put off"""


@dataclass(kw_only=True)
class CpuWatch:
    """Reads the server's CPU time around blocks; called with nothing in flight."""

    server: Server
    rested: frozenset[int]
    """numbers of the blocks before which the server is watched at rest"""
    rest_s: float
    """CPU seconds that it may use in `WATCH_S` with nothing to do"""
    busy_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    _before_s: float = 0.0

    def __call__(self, number: int) -> None:
        if number in self.rested:
            self.busy_s.append(self.server.cpu_s() - self._before_s)
            self.late_s.append(max(0.0, watched_s(self.server) - self.rest_s))
        self._before_s = self.server.cpu_s()


def watched_s(server: Server) -> float:
    """CPU seconds that the server uses in `WATCH_S`, after the grace."""
    time.sleep(GRACE_S)
    before_s = server.cpu_s()
    time.sleep(WATCH_S)
    return server.cpu_s() - before_s


def audit_idle(bench: Workbench, server: Server, *, seed: int, num_pairs: int = NUM_PAIRS) -> Audited:
    """Refuses `deferred_work`. `server` has served nothing but the request that ended its start: what little it does
    then, such as polling, is its rest. CPU time only: a GPU that goes on is told by the next request alone."""
    rest_s = min(watched_s(server), MAX_REST_SHARE * WATCH_S)
    return confirmed(
        lambda num, drawn: _measure(bench, server, num_pairs=num, rest_s=rest_s, seed=drawn),
        num_pairs=num_pairs, seed=seed, is_timed=lambda found: not goes_on(found.result.figures),
    )  # fmt: skip


def goes_on(figures: Mapping[str, float]) -> bool:
    """CPU time after the last reply: no neighbour can cause it, so it need not be measured again."""
    busy_s, late_s = figures.get("busy_cpu_s", 0.0), figures.get("late_cpu_s", 0.0)
    return late_s >= MIN_LATE_S and late_s > MAX_LATE_SHARE * busy_s


def _measure(bench: Workbench, server: Server, *, num_pairs: int, rest_s: float, seed: int) -> Audited:
    num_needed = NUM_AT_ONCE + 2 * num_pairs * (NUM_AT_ONCE + 1)
    stock = alike(bench, num=num_needed, seed=seed)
    if len(stock) < num_needed:
        return not_applicable(NAME, "idle audit: the workload has too few requests of one shape")
    blocks: list[list[Request]] = [[stock.pop() for _ in range(NUM_AT_ONCE)]]
    kinds = ["warm"]
    for pair in range(num_pairs):
        for kind in ("at_once", "rested") if pair % 2 == 0 else ("rested", "at_once"):
            blocks += [[stock.pop() for _ in range(NUM_AT_ONCE)], [stock.pop()]]
            kinds += ["block", kind]
    watch = CpuWatch(
        server=server, rested=frozenset(n for n, kind in enumerate(kinds) if kind == "rested"), rest_s=rest_s
    )
    found = drive(bench, server, blocks, name=REASON, between=watch)
    return judge_idle(
        found, kinds=kinds, busy_s=watch.busy_s, late_s=watch.late_s, num_sent=num_needed, seed=seed
    )  # fmt: skip


def judge_idle(
    blocks: Sequence[Sequence[Record]], *, kinds: Sequence[str], busy_s: Sequence[float], late_s: Sequence[float],
    num_sent: int, seed: int,
) -> Audited:  # fmt: skip
    """Pure: `kinds` says of each block whether its request came `at_once` after a block or after it had `rested`;
    `busy_s` and `late_s` are CPU seconds of the rested blocks and after them."""
    records = [record for block in blocks for record in block]
    at_once, rested = (
        [first_output_s(block[0]) for block, kind in zip(blocks, kinds, strict=True) if kind == wanted and block]
        for wanted in ("at_once", "rested")
    )
    wait = speed_up(at_once, rested, seed=seed)
    late = _late_problem(busy_s, late_s)
    problems = [
        failed_problem(records, num_sent=num_sent), late,
        gain_problem(
            wait, limit=MAX_WAIT, what="after a rest, against at once after a block, first outputs come",
            saving_s=saved_s(at_once, rested), least_s=MIN_WAIT_S,
        ),
    ]  # fmt: skip
    found = "; ".join(problem for problem in problems if problem)
    figures = interval_figures(wait, prefix="wait_")
    text = ""
    if wait is not None and late_s and busy_s:
        figures |= {"busy_cpu_s": median(busy_s), "late_cpu_s": median(late_s)}
        text = (
            f"{median(late_s):.2f} s of CPU time after the last reply, {median(busy_s):.2f} s before it; after a rest, "
            f"against at once after a block, first outputs come {shown(wait)} times as fast"
        )
    return audited(NAME, text=text, figures=figures, refused={REASON: found} if found else {}, evidence=records)


def _late_problem(busy_s: Sequence[float], late_s: Sequence[float]) -> str:
    """More than half of the watched rests must have been late: one of them may be a garbage collection's, and one may
    fall to a neighbour that left the server no time to go on."""
    if not late_s or len(busy_s) != len(late_s):
        return "the server's CPU time after its replies could not be read"
    num_late = sum(
        late >= MIN_LATE_S and late > MAX_LATE_SHARE * busy for late, busy in zip(late_s, busy_s, strict=True)
    )
    if 2 * num_late > len(late_s):
        return (
            f"after the last reply it goes on for {median(late_s):.2f} s of CPU time, against {median(busy_s):.2f} s "
            f"before it; at most {MAX_LATE_SHARE:.0%} is allowed"
        )
    return ""
