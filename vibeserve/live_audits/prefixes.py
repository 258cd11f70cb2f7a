"""Prefixes that nobody declared to be shared: a prompt behind a known prefix must take as long to its first output as
any other (class 5, rule 6). What the workload declares is exempt."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from vibeserve.contract import Record
from vibeserve.live_audits.decisions import (
    MAX_GAIN,
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
from vibeserve.live_audits.traffic import (
    declares_reuse,
    headline_bundle,
    is_text,
    lengths_of,
    prompts,
    prompts_behind_prefix,
)
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server

NAME = "shared_prefix"
REASON = "undeclared_reuse"
NUM_PAIRS = 12
OUTPUT_TOKENS = 2


def audit_shared_prefix(bench: Workbench, server: Server, *, seed: int, num_pairs: int = NUM_PAIRS) -> Audited:
    """Refuses `undeclared_reuse`. Of text only: other modalities have no prefix."""
    if not is_text(headline_bundle(bench)):
        return not_applicable(NAME, "shared-prefix audit: requests of this workload are no prompts")
    if declares_reuse(bench):
        return not_applicable(NAME, "shared-prefix audit: the workload declares that prefixes are shared")
    return confirmed(
        lambda num, drawn: _measure(bench, server, num_pairs=num, seed=drawn),
        num_pairs=num_pairs, seed=seed,
    )  # fmt: skip


def _measure(bench: Workbench, server: Server, *, num_pairs: int, seed: int) -> Audited:
    """The longest prompts that the workload has: there a kept prefix is worth most."""
    longest = lengths_of(headline_bundle(bench), seed=seed).prompt_max
    shared = prompts_behind_prefix(
        bench, num=num_pairs + 1, seed=seed, prompt_tokens=longest, output_tokens=OUTPUT_TOKENS
    )
    if not shared:
        return not_applicable(NAME, "shared-prefix audit: the tokenizer ends no prefix at a token's border")
    fresh = prompts(bench, num=num_pairs + 2, seed=seed + 1, prompt_tokens=longest, output_tokens=OUTPUT_TOKENS)
    items = [(request, "warm") for request in fresh[:2]] + [(shared[0], "first")]
    for number, (one, other) in enumerate(zip(fresh[2:], shared[1:], strict=True)):
        pair = [(one, "fresh"), (other, "shared")]
        items += pair if number % 2 == 0 else pair[::-1]
    blocks = [[request] for request, _ in items]
    records = [record for block in drive(bench, server, blocks, name=REASON) for record in block]
    problem = failed_problem(records, num_sent=len(items))
    if problem:
        return audited(NAME, text="", figures={}, refused={REASON: problem}, evidence=records)
    return judge_prefixes(records, kinds=[kind for _, kind in items], seed=seed)


def judge_prefixes(records: Sequence[Record], *, kinds: Sequence[str], seed: int) -> Audited:
    """Pure: `kinds` says of each record whether its prompt was `fresh` or stood behind the `shared` prefix."""
    fresh, shared = (
        [first_output_s(record) for record, kind in zip(records, kinds, strict=True) if kind == wanted]
        for wanted in ("fresh", "shared")
    )
    gain = speed_up(fresh, shared, seed=seed)
    problem = gain_problem(
        gain,
        limit=MAX_GAIN,
        what="behind a prefix that came before, first outputs come",
        saving_s=saved_s(fresh, shared),
    )
    text = "" if gain is None else f"first outputs behind a shared prefix come {shown(gain)} times as fast as others"
    figures = interval_figures(gain) | {"ttft_fresh_s": median(fresh), "ttft_shared_s": median(shared)}
    return audited(NAME, text=text, figures=figures, refused={REASON: problem} if problem else {}, evidence=records)
