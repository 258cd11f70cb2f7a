"""State across restarts: prompts that an earlier process has served must be as slow as new ones (class 4).

Every server starts with an empty temporary folder and shared memory behind its wall; whatever it remembers, it has
found a place that the wall does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vibeserve.contract import Record
from vibeserve.live_audits.decisions import (
    MAX_GAIN,
    failed_problem,
    gain_problem,
    interval_figures,
    reply_s,
    saved_s,
    shown,
    speed_up,
)
from vibeserve.live_audits.driving import Block, drive
from vibeserve.live_audits.nouns import Audited, audited, confirmed, not_applicable
from vibeserve.live_audits.traffic import alike
from vibeserve.roles.workbench import Workbench

NAME = "restarted"
REASON = "state_across_restart"
NUM_PAIRS = 10
NUM_WARM = 2
MAX_OUTPUT_TOKENS = 32


def audit_restart(bench: Workbench, workspace: Path, *, seed: int, num_pairs: int = NUM_PAIRS) -> Audited:
    """Refuses `state_across_restart`. Starts and stops two servers, one after the other."""
    return confirmed(
        lambda num, drawn: _measure(bench, workspace, num_pairs=num, seed=drawn),
        num_pairs=num_pairs, seed=seed,
    )  # fmt: skip


def _measure(bench: Workbench, workspace: Path, *, num_pairs: int, seed: int) -> Audited:
    num_needed = 2 * (num_pairs + NUM_WARM)
    stock = alike(bench, num=num_needed, seed=seed, max_output_tokens=MAX_OUTPUT_TOKENS)
    if len(stock) < num_needed:
        return not_applicable(NAME, "restart audit: the workload has too few requests of one shape")
    warm, known, fresh = stock[: 2 * NUM_WARM], stock[2 * NUM_WARM :: 2], stock[2 * NUM_WARM + 1 :: 2]
    before = _on_fresh_server(bench, workspace, [[request] for request in (*warm[:NUM_WARM], *known)])
    items = [(request, "warm") for request in warm[NUM_WARM:]]
    for number, (one, other) in enumerate(zip(fresh, known, strict=True)):
        pair = [(one, "fresh"), (other, "known")]
        items += pair if number % 2 == 0 else pair[::-1]
    after = _on_fresh_server(bench, workspace, [[request] for request, _ in items])
    num_sent = NUM_WARM + len(known) + len(items)
    problem = failed_problem([*before, *after], num_sent=num_sent)
    if problem:
        return audited(NAME, text="", figures={}, refused={REASON: problem}, evidence=[*before, *after])
    return judge_restart(after, kinds=[kind for _, kind in items], seed=seed)


def _on_fresh_server(bench: Workbench, workspace: Path, blocks: Sequence[Block]) -> list[Record]:
    server = bench.serve(workspace, name=NAME)
    try:
        return [record for block in drive(bench, server, blocks, name=REASON) for record in block]
    finally:
        server.stop(drain_s=0)


def judge_restart(records: Sequence[Record], *, kinds: Sequence[str], seed: int) -> Audited:
    """Pure: `kinds` says of each record whether its prompt was `fresh`, or `known` to the process before."""
    fresh, known = (
        [reply_s(record) for record, kind in zip(records, kinds, strict=True) if kind == wanted]
        for wanted in ("fresh", "known")
    )
    gain = speed_up(fresh, known, seed=seed)
    problem = gain_problem(
        gain,
        limit=MAX_GAIN,
        what="prompts that the process before has served are answered",
        saving_s=saved_s(fresh, known),
    )
    text = "" if gain is None else f"prompts of the process before are answered {shown(gain)} times as fast as new ones"
    refused = {REASON: problem} if problem else {}
    return audited(NAME, text=text, figures=interval_figures(gain), refused=refused, evidence=records)
