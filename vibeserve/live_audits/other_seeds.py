"""Other seeds: prompts that anybody may see must not be served faster than hidden ones (classes 7 and 36, rule 8).

MLPerf Inference's TEST05, with three new seeds of the certification's pool beside one of the visible pool, in turns on
one server and at one length; its gap of 5%.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from vibeserve.contract import Pool, Record, Request
from vibeserve.live_audits.decisions import (
    block_s,
    failed_problem,
    gain_problem,
    interval_figures,
    saved_s,
    shown,
    speed_up,
)
from vibeserve.live_audits.driving import drive
from vibeserve.live_audits.nouns import Audited, audited, confirmed, not_applicable
from vibeserve.live_audits.traffic import NUM_DRAWN, drawn, headline_bundle, is_text, lengths_of, prompts, shape_of
from vibeserve.roles.workbench import WARM_UP_SEED, Workbench
from vibeserve.service import Server

NAME = "other_seeds"
REASON = "seed_gap"
MAX_GAP = 1.05
"""TEST05: within 5%"""
NUM_SEEDS = 3
NUM_PAIRS = 6
"""blocks of each seed"""
NUM_AT_ONCE = 4
KNOWN = "known"
MAX_OUTPUT_TOKENS = 32


def audit_seeds(bench: Workbench, server: Server, *, seed: int, num_pairs: int = NUM_PAIRS) -> Audited:
    """Refuses `seed_gap`. The new seeds are `seed` and the two after it."""
    return confirmed(
        lambda num, first: _measure(bench, server, num_pairs=num, seed=first),
        num_pairs=num_pairs, seed=seed,
    )  # fmt: skip


def _measure(bench: Workbench, server: Server, *, num_pairs: int, seed: int) -> Audited:
    names = [KNOWN, *(f"seed{number}" for number in range(NUM_SEEDS))]
    pools = [(Pool.visible, WARM_UP_SEED), *((Pool.certification, seed + number) for number in range(NUM_SEEDS))]
    num_each = (num_pairs + 1) * NUM_AT_ONCE
    stocks = _stocks(bench, pools, num=num_each)
    if min(map(len, stocks)) < num_each:
        return not_applicable(NAME, "other-seeds audit: the workload has too few requests of one shape")
    blocks, kinds = [], []
    for turn in range(num_pairs + 1):
        order = list(range(len(names)))
        # each seed follows each other one about as often
        for index in order[turn % len(order) :] + order[: turn % len(order)]:
            blocks.append([stocks[index].pop() for _ in range(NUM_AT_ONCE)])
            kinds.append(names[index] if turn else "warm")
    found = drive(bench, server, blocks, name=REASON)
    return judge_seeds(found, kinds=kinds, num_sent=sum(map(len, blocks)), seed=seed)


def _stocks(bench: Workbench, pools: Sequence[tuple[Pool, int]], *, num: int) -> list[list[Request]]:
    """Requests of every pool and seed, all of one shape."""
    bundle = headline_bundle(bench)
    if is_text(bundle):
        lengths = lengths_of(bundle, seed=pools[1][1])
        return [
            prompts(
                bench, num=num, seed=seed, pool=pool, prompt_tokens=lengths.prompt_median,
                output_tokens=min(MAX_OUTPUT_TOKENS, lengths.output_median),
            )
            for pool, seed in pools
        ]  # fmt: skip
    stocks = [drawn(bundle, pool=pool, seed=seed, num=NUM_DRAWN) for pool, seed in pools]
    shapes = {shape_of(request.payload) for request in stocks[0]}
    kept = [
        [[request for request in stock if shape_of(request.payload) == shape] for stock in stocks] for shape in shapes
    ]
    return max(kept, key=lambda each: min(map(len, each)), default=[[] for _ in pools])


def judge_seeds(blocks: Sequence[Sequence[Record]], *, kinds: Sequence[str], num_sent: int, seed: int) -> Audited:
    """Pure: `kinds` names the seed of each block, `known` is the one that anybody may see."""
    records = [record for block in blocks for record in block]
    seconds = {
        kind: [block_s(block) for block, each in zip(blocks, kinds, strict=True) if each == kind]
        for kind in dict.fromkeys(kinds)
        if kind != "warm"
    }
    known = seconds.pop(KNOWN, [])
    figures: dict[str, float] = {}
    problems, told = [failed_problem(records, num_sent=num_sent)], []
    for name, hidden in seconds.items():
        gain = speed_up(hidden, known, seed=seed)
        problems.append(
            gain_problem(
                gain,
                limit=MAX_GAP,
                what=f"prompts that anybody may see, against {name}, are served",
                saving_s=saved_s(hidden, known),
            )
        )
        figures |= interval_figures(gain, prefix=f"{name}_")
        told += [shown(gain)] if gain else []
    if not problems[0] and seconds:
        medians = [median(values) for values in seconds.values()]
        figures["largest_gap"] = max(medians) / min(medians)
    found = "; ".join(problem for problem in problems if problem)
    text = f"prompts that anybody may see are served {', '.join(told)} times as fast as those of {len(told)} new seeds"
    return audited(NAME, text=text, figures=figures, refused={REASON: found} if found else {}, evidence=records)
