"""Repeated prompts: one that comes again must cost what a fresh one costs (classes 1, 2, 3, 6; rule 7).

MLPerf Inference's TEST04 with lengths pinned: the same prompt again and again beside fresh ones, on a restarted server,
at most 10% faster. Twins that differ from it in one late token are sent in between and are the accuracy gate's to
judge: a server that answers by length, identity or a hash of the beginning sends them another prompt's reply. Where
the workload declares reuse of prefixes only the time after the first output counts.
"""

from __future__ import annotations

from vibeserve.contract import Record, Request
from vibeserve.live_audits.decisions import (
    MAX_GAIN,
    after_first_s,
    failed_problem,
    gain_problem,
    interval_figures,
    reply_s,
    saved_s,
    shown,
    speed_up,
)
from vibeserve.live_audits.driving import drive
from vibeserve.live_audits.nouns import Audited, audited, confirmed, not_applicable
from vibeserve.live_audits.traffic import alike, declares_reuse, headline_bundle, late_twin
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server

NAME = "repeated_prompt"
REASON = "repeat_prompt"
NUM_PAIRS = 10
NUM_WARM = 2
MAX_OUTPUT_TOKENS = 24
"""enough to tell decoding that was skipped; longer replies only take longer"""


def audit_repeats(bench: Workbench, server: Server, *, seed: int, num_pairs: int = NUM_PAIRS) -> Audited:
    """Refuses `repeat_prompt`. The replies, late-token twins among them, are evidence. `server` was started afresh."""
    return confirmed(
        lambda num, drawn: _measure(bench, server, num_pairs=num, seed=drawn),
        num_pairs=num_pairs, seed=seed,
    )  # fmt: skip


def _measure(bench: Workbench, server: Server, *, num_pairs: int, seed: int) -> Audited:
    requests = alike(bench, num=num_pairs + NUM_WARM + 1, seed=seed, max_output_tokens=MAX_OUTPUT_TOKENS)
    if len(requests) < num_pairs + NUM_WARM + 1:
        return not_applicable(NAME, "repeated-prompt audit: the workload has too few requests of one shape")
    warm, (star, *fresh) = requests[:NUM_WARM], requests[NUM_WARM:]
    twin = late_twin(headline_bundle(bench), star, other=fresh[0])
    blocks, order = ordered(star, fresh, warm=warm, twin=twin)
    records = [record for block in drive(bench, server, blocks, name=REASON) for record in block]
    problem = failed_problem(records, num_sent=len(blocks))
    if problem:
        return audited(NAME, text="", figures={}, refused={REASON: problem}, evidence=records)
    return judge_repeats(records, order=order, is_reuse_declared=declares_reuse(bench), seed=seed)


def ordered(
    star: Request, fresh: list[Request], *, warm: list[Request], twin: Request | None
) -> tuple[list[list[Request]], list[str]]:
    """Blocks of one request, and what each is: `warm`, `star` (its first time), `fresh`, `again` or `twin`. Which of a
    pair comes first alternates, so that a linear drift cancels."""
    items = [(request, "warm") for request in warm] + [(star, "star")]
    for number, request in enumerate(fresh):
        pair = [(request, "fresh"), (star, "again")]
        items += pair if number % 2 == 0 else pair[::-1]
        if twin is not None and number % (len(fresh) // 2) == 0:
            items.append((twin, "twin"))
    return [[request] for request, _ in items], [kind for _, kind in items]


def judge_repeats(records: list[Record], *, order: list[str], is_reuse_declared: bool, seed: int) -> Audited:
    """Pure: `order` says of each record what it was."""
    seconds = after_first_s if is_reuse_declared else reply_s
    fresh, again = (
        [seconds(record) for record, kind in zip(records, order, strict=True) if kind == wanted]
        for wanted in ("fresh", "again")
    )
    gain = speed_up(fresh, again, seed=seed)
    problem = gain_problem(
        gain, limit=MAX_GAIN, what="a prompt that comes again is answered", saving_s=saved_s(fresh, again)
    )
    text = "" if gain is None else f"a prompt that comes again is answered {shown(gain)} times as fast as fresh ones"
    figures = interval_figures(gain) | {"num_twins": order.count("twin")}
    return audited(NAME, text=text, figures=figures, refused={REASON: problem} if problem else {}, evidence=records)
