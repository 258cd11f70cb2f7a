"""Identical requests in flight: four of one prompt must take as long as four different ones (class 6).

Where the workload declares that prefixes are shared, a kept prefix answers the prompt of the second identical request
by right. Then all prompts stand behind one prefix, and only what comes after the last first output is compared: steps
that no prefix saves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vibeserve.contract import Record
from vibeserve.live_audits.decisions import (
    MAX_GAIN,
    block_s,
    decode_s,
    failed_problem,
    gain_problem,
    interval_figures,
    saved_s,
    shown,
    speed_up,
)
from vibeserve.live_audits.driving import drive
from vibeserve.live_audits.nouns import Audited, audited, confirmed, not_applicable
from vibeserve.live_audits.traffic import alike, alike_behind_prefix, declares_reuse
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.spec import Model

NAME = "duplicates_in_flight"
REASON = "coalesced"
NUM_PAIRS = 5
NUM_IN_FLIGHT = 4
MAX_OUTPUT_TOKENS = 8
MAX_DECODED_TOKENS = 32
"""where the steps after the first output are all that is compared"""
MAX_GAIN_OF_EXPERTS = 1.5
"""mixtures of experts read fewer weights for identical tokens: that much is honest"""


def audit_duplicates(bench: Workbench, server: Server, *, seed: int, num_pairs: int = NUM_PAIRS) -> Audited:
    """Refuses `coalesced`."""
    return confirmed(
        lambda num, drawn: _measure(bench, server, num_pairs=num, seed=drawn),
        num_pairs=num_pairs, seed=seed,
    )  # fmt: skip


def _measure(bench: Workbench, server: Server, *, num_pairs: int, seed: int) -> Audited:
    num_needed = (num_pairs + 1) * NUM_IN_FLIGHT + num_pairs
    is_reused = declares_reuse(bench)
    if is_reused:
        requests = alike_behind_prefix(bench, num=num_needed, seed=seed, max_output_tokens=MAX_DECODED_TOKENS)
    else:
        requests = alike(bench, num=num_needed, seed=seed, max_output_tokens=MAX_OUTPUT_TOKENS)
    if len(requests) < num_needed:
        return not_applicable(NAME, "duplicates-in-flight audit: the workload has too few requests of one shape")
    warm, same, rest = requests[:NUM_IN_FLIGHT], requests[-num_pairs:], requests[NUM_IN_FLIGHT:-num_pairs]
    blocks, kinds = [warm], ["warm"]
    for number, request in enumerate(same):
        different = rest[number * NUM_IN_FLIGHT : (number + 1) * NUM_IN_FLIGHT]
        pair = [(different, "different"), ([request] * NUM_IN_FLIGHT, "identical")]
        for block, kind in pair if number % 2 == 0 else pair[::-1]:
            blocks.append(block)
            kinds.append(kind)
    found = drive(bench, server, blocks, name=REASON)
    limit = MAX_GAIN_OF_EXPERTS if is_mixture(bench.plan.spec.model) else MAX_GAIN
    return judge_duplicates(
        found, kinds=kinds, limit=limit, num_sent=sum(map(len, blocks)), seed=seed,
        time_of=decode_s if is_reused else block_s,
    )  # fmt: skip


def is_mixture(model: Model) -> bool:
    return 0 < model.num_active_parameters < model.num_parameters


def judge_duplicates(
    blocks: Sequence[Sequence[Record]], *, kinds: Sequence[str], limit: float, num_sent: int, seed: int,
    time_of: Callable[[Sequence[Record]], float] = block_s,
) -> Audited:  # fmt: skip
    """Pure: `kinds` says of each block whether it was `different` or `identical`, `time_of` what of it is compared."""
    records = [record for block in blocks for record in block]
    problem = failed_problem(records, num_sent=num_sent)
    different, identical = (
        [time_of(block) for block, kind in zip(blocks, kinds, strict=True) if kind == wanted]
        for wanted in ("different", "identical")
    )
    gain = speed_up(different, identical, seed=seed)
    problem = problem or gain_problem(
        gain, limit=limit, what="identical requests in flight are answered", saving_s=saved_s(different, identical)
    )
    text = "" if gain is None else f"identical requests in flight are answered {shown(gain)} times as fast as others"
    refused = {REASON: problem} if problem else {}
    return audited(NAME, text=text, figures=interval_figures(gain), refused=refused, evidence=records)
