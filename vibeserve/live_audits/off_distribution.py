"""Beside the benchmark: other lengths, other counts, all at once. It must run, be right, and cost about as much
(class 8: a fast path for exactly the benchmark's shapes).

Lengths stay below the longest sequence that the workload declares: a runtime need not serve more. What may be expected
of a request of other lengths is what one of the usual ones takes, times the ratio of their lengths where it is longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vibeserve.contract import Record, Request
from vibeserve.live_audits.decisions import (
    after_first_s,
    block_s,
    failed_problem,
    first_output_s,
    interval_figures,
    shown,
    speed_up,
)
from vibeserve.live_audits.driving import drive
from vibeserve.live_audits.nouns import Audited, audited, confirmed, not_applicable
from vibeserve.live_audits.traffic import Lengths, alike, headline_bundle, is_text, lengths_of, prompts
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.workloads import longest_sequence_tokens

NAME = "off_distribution"
MAX_CLIFF = 2.0
"""most that a shape beside the benchmark's may cost over what its length explains: a factor, because kernels have
tiles and buckets. Ours; MLPerf forbids hard-coded counts and gives no number"""
NUM_PAIRS = 4
MIN_PROMPT_TOKENS = 16
SHORTER, LONGER = 0.75, 1.25
USUAL = 4
"""requests at once in the usual block; the unusual one has twice as many and one"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Lengths of a request of text, tokens."""

    name: str
    prompt: int
    output: int


def audit_off_distribution(bench: Workbench, server: Server, *, seed: int, num_pairs: int = NUM_PAIRS) -> Audited:
    """Refuses `off_distribution`. All replies are evidence."""
    return confirmed(
        lambda num, drawn: _measure(bench, server, num_pairs=num, seed=drawn),
        num_pairs=num_pairs, seed=seed,
    )  # fmt: skip


def shapes_of(lengths: Lengths, *, longest: int) -> tuple[Shape, ...]:
    """The usual shape first, then one with a longer and one with a shorter prompt than any of the workload's, the
    latter with a longer reply; none beyond `longest` tokens in all."""
    usual = Shape(name="usual", prompt=lengths.prompt_median, output=lengths.output_median)
    # what is longer in one respect must be shorter in the other: a context that holds the longest sequence is enough
    prompt = min(round(LONGER * lengths.prompt_max), longest - lengths.output_median // 2)
    longer = Shape(name="longer_prompt", prompt=prompt, output=max(2, min(lengths.output_median, longest - prompt)))
    short = max(MIN_PROMPT_TOKENS, round(SHORTER * lengths.prompt_min))
    output = min(round(LONGER * lengths.output_max), longest - short)
    return usual, longer, Shape(name="longer_reply", prompt=short, output=output)


def _measure(bench: Workbench, server: Server, *, num_pairs: int, seed: int) -> Audited:
    blocks, kinds = _bursts(bench, num_pairs=num_pairs, seed=seed)
    if not blocks:
        return not_applicable(NAME, "off-distribution audit: the workload has too few requests of one shape")
    bundle = headline_bundle(bench)
    shapes: tuple[Shape, ...] = ()
    if is_text(bundle):
        lengths = lengths_of(bundle, seed=seed)
        # a trace may hold longer requests than the declared ranges say
        longest = max(longest_sequence_tokens(bench.plan.spec.workload), lengths.prompt_max + lengths.output_max)
        shapes = shapes_of(lengths, longest=longest)
        more, named = _singles(bench, shapes, num_pairs=num_pairs, seed=seed)
        blocks, kinds = blocks + more, kinds + named
    found = drive(bench, server, blocks, name=NAME)
    return judge_shapes(found, kinds=kinds, shapes=shapes, num_sent=sum(map(len, blocks)), seed=seed)


def _bursts(bench: Workbench, *, num_pairs: int, seed: int) -> tuple[list[list[Request]], list[str]]:
    """Blocks of the usual number of requests and, in turns, of twice as many and one."""
    num_each = {"few": USUAL, "burst": 2 * USUAL + 1}
    num_needed = USUAL + num_pairs * sum(num_each.values())
    stock = alike(bench, num=num_needed, seed=seed)
    if len(stock) < num_needed:
        return [], []
    blocks, kinds = [stock[:USUAL]], ["warm"]
    del stock[:USUAL]
    for pair in range(num_pairs):
        for kind in ("few", "burst") if pair % 2 == 0 else ("burst", "few"):
            blocks.append([stock.pop() for _ in range(num_each[kind])])
            kinds.append(kind)
    return blocks, kinds


def _singles(
    bench: Workbench, shapes: Sequence[Shape], *, num_pairs: int, seed: int
) -> tuple[list[list[Request]], list[str]]:
    """Requests one by one, the shapes in turns; the first of each shape is a warm-up: it may choose kernels."""
    made = [
        prompts(bench, num=num_pairs + 1, seed=seed + 1 + n, prompt_tokens=shape.prompt, output_tokens=shape.output)
        for n, shape in enumerate(shapes)
    ]
    blocks = [[request] for row in zip(*made, strict=True) for request in row]
    return blocks, ["warm"] * len(shapes) + [shape.name for shape in shapes] * num_pairs


def judge_shapes(
    blocks: Sequence[Sequence[Record]], *, kinds: Sequence[str], shapes: Sequence[Shape], num_sent: int, seed: int
) -> Audited:
    """Pure: `kinds` says of each block what it was: `few`, `burst`, or the name of a shape (the usual one is first)."""
    records = [record for block in blocks for record in block]
    by_kind = {kind: [b for b, each in zip(blocks, kinds, strict=True) if each == kind] for kind in set(kinds)}
    problems = [failed_problem(records, num_sent=num_sent)]
    figures: dict[str, float] = {}
    told = []
    for what, expected_s, taken_s in _comparisons(by_kind, shapes):
        cost = speed_up(taken_s, expected_s, seed=seed)
        figures |= interval_figures(cost, prefix=f"{what}_")
        if cost is None:
            problems.append(f"{what}: the times could not be compared")
        elif cost.ci_low > MAX_CLIFF:
            problems.append(
                f"{what} takes {shown(cost)} times what its size explains, at most {MAX_CLIFF:g} is allowed"
            )
        told += [f"{what} {cost.ratio:.2f}"] if cost else []
    text = f"times what its size explains: {', '.join(told)}"
    found = "; ".join(problem for problem in problems if problem)
    return audited(NAME, text=text, figures=figures, refused={NAME: found} if found else {}, evidence=records)


def _comparisons(
    by_kind: dict[str, list[Sequence[Record]]], shapes: Sequence[Shape]
) -> list[tuple[str, list[float], list[float]]]:
    """(what, seconds that may be expected, seconds that it took), pair by pair."""
    few, burst = ([block_s(b) / max(1, len(b)) for b in by_kind.get(kind, [])] for kind in ("few", "burst"))
    rows = [("burst", few, burst)]
    for shape in shapes[1:]:
        usual = [block[0] for block in by_kind.get(shapes[0].name, []) if block]
        other = [block[0] for block in by_kind.get(shape.name, []) if block]
        longer = max(1.0, shape.prompt / shapes[0].prompt)
        rows.append((
            f"{shape.name}_first_output", [first_output_s(record) * longer for record in usual],
            [first_output_s(record) for record in other],
        ))  # fmt: skip
        rows.append((f"{shape.name}_decode", _per_token_s(usual, shapes[0]), _per_token_s(other, shape)))
    return rows


def _per_token_s(records: Sequence[Record], shape: Shape) -> list[float]:
    return [after_first_s(record) / max(1, shape.output - 1) for record in records]
