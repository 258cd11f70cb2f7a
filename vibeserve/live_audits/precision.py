"""Bits of the weights: nudged within int8's cells, they must still change what is served (class 18).

The nudged copy (`vibeserve.weights.nudged`) differs from the model by less than symmetric int8 can hold, by row or by
groups of 32, 64 or 128. The reference says by how much every log-probability of a reply changes with it. What a server
says, on the model and on the copy, is held against that: the slope of its differences over the reference's is 1 for
weights of 16 bits or more, whatever precision it computes in, for rounding of sums is noise about the line; and 0 for a
server whose weights did not change.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vibeserve.accuracy import reference_logprobs
from vibeserve.contract import Record
from vibeserve.core.nouns import PromptRequest, Reply
from vibeserve.errors import ServerError
from vibeserve.live_audits.decisions import failed_problem
from vibeserve.live_audits.nouns import Audited, audited, not_applicable
from vibeserve.live_audits.perturbed import served_on
from vibeserve.live_audits.traffic import headline_bundle, is_text, lengths_of, prompts
from vibeserve.roles.workbench import Workbench
from vibeserve.spec import Precision
from vibeserve.weights.nudged import nudge

NAME = "weights_precision"
LOWER_PRECISION = "lower_precision"
NUM_BLOCKS = 5
"""of each start; the first is a warm-up"""
NUM_AT_ONCE = 4
PROMPT_TOKENS = 32
OUTPUT_TOKENS = 32
LEAST_SLOPE = 0.7
"""between 1, of weights that are used as they are, and 0; a server that rounds part of its matrices lies between"""
DEVIATIONS = 3.3
"""of a two-sided interval of 99.9%: one in 2,000 honest servers whose slope is as low as the bound would be refused,
none whose slope is 1"""
MAX_DEVIATION = 0.15
"""standard deviation of the slope beyond which nothing is said: rounding of sums hides the weights"""


@dataclass(frozen=True, kw_only=True)
class Slope:
    """Of served differences over the reference's, through the origin, with its deviation by replies."""

    value: float
    deviation: float
    num_tokens: int

    @property
    def shown(self) -> str:
        low, high = (self.value + sign * DEVIATIONS * self.deviation for sign in (-1, 1))
        return f"{self.value:.2f} [{low:.2f}, {high:.2f}]"


def audit_precision(bench: Workbench, workspace: Path, *, seed: int, num_blocks: int = NUM_BLOCKS) -> Audited:
    """Refuses `lower_precision`. Two starts, never two servers at a time, and two runs of the reference; the nudged
    copy is made below the bench's folder and removed."""
    spec = bench.plan.spec
    if spec.evaluation.precision is not Precision.same_bytes:
        return not_applicable(NAME, "weights-precision audit: the target admits any precision")
    if not is_text(headline_bundle(bench)) or not spec.evaluation.tolerances.logprob_share:
        return not_applicable(NAME, "weights-precision audit: the workload has no log-probabilities")
    copy = bench.run_dir / "nudged" / "model"
    shutil.rmtree(copy.parent, ignore_errors=True)
    copy.parent.mkdir(parents=True)
    try:
        if not nudge(bench.model.path, destination=copy):
            return not_applicable(NAME, "weights-precision audit: the model has no safetensors of 16 or 32 bits")
        return _measure(bench, workspace, copy, seed=seed, num_blocks=num_blocks)
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)


def _measure(bench: Workbench, workspace: Path, copy: Path, *, seed: int, num_blocks: int) -> Audited:
    bundle = headline_bundle(bench)
    lengths = lengths_of(bundle, seed=seed)
    stock = [
        replace(request, logprobs=1)
        for request in prompts(
            bench, num=num_blocks * NUM_AT_ONCE, seed=seed, prompt_tokens=min(PROMPT_TOKENS, lengths.prompt_max),
            output_tokens=min(OUTPUT_TOKENS, lengths.output_max),
        )
        if isinstance(request, PromptRequest)
    ]  # fmt: skip
    blocks = [stock[n : n + NUM_AT_ONCE] for n in range(0, len(stock), NUM_AT_ONCE)]
    try:
        whole = _replies(served_on(bench, workspace, bench.model.path, blocks, server_name="whole_weights", name=NAME))
        moved = _replies(served_on(bench, workspace, copy, blocks, server_name=NAME, name=NAME))
    except ServerError as error:
        if error.name != NAME:
            raise
        text = f"it does not serve other weights of the same shapes ({error.outcome}: {str(error).splitlines()[0]})"
        return audited(NAME, text="", figures={}, refused={LOWER_PRECISION: text})
    problem = failed_problem([*whole, *moved], num_sent=2 * len(stock))
    if problem:
        return audited(NAME, text="", figures={}, refused={LOWER_PRECISION: problem})
    ref = bundle.ref
    expected = [
        reference_logprobs(
            whole, bundle=replace(ref, context=replace(ref.context, model_dir=str(folder))),
            num_threads=bench.host.probe().num_cpus, run_dir=bench.run_dir / "rescore" / NAME,
        )
        for folder in (bench.model.path, copy)
    ]  # fmt: skip
    slope = slope_of(differences(whole, moved, expected=expected[0], expected_moved=expected[1]))
    return judge_slope(slope, evidence=whole)


def _replies(blocks: Sequence[Sequence[Record]]) -> list[Reply]:
    return [record for block in blocks for record in block if isinstance(record, Reply)]


def differences(
    whole: Sequence[Reply], moved: Sequence[Reply], *, expected: Sequence[Sequence[float]],
    expected_moved: Sequence[Sequence[float]],
) -> list[list[tuple[float, float]]]:  # fmt: skip
    """Pure: by reply, (the reference's difference, the server's) of every token up to where the two texts part.

    `expected` and `expected_moved` are the reference's log-probabilities of the ids of `whole` under either weights. A
    reply whose log-probabilities are missing gives nothing.
    """
    found = []
    for first, second, ours, theirs in zip(whole, moved, expected, expected_moved, strict=True):
        num = min(len(first.token_ids), len(second.token_ids), len(ours), len(theirs))
        num = min(num, len(first.token_logprobs), len(second.token_logprobs))
        same = next((n for n in range(num) if first.token_ids[n] != second.token_ids[n]), num)
        said = [(theirs[n] - ours[n], second.token_logprobs[n] - first.token_logprobs[n]) for n in range(same)]
        found.append([pair for pair in said if all(map(math.isfinite, pair))])
    return found


def slope_of(replies: Sequence[Sequence[tuple[float, float]]]) -> Slope | None:
    """Least squares through the origin; the deviation is robust and takes tokens of one reply for one. None without
    any difference."""
    squares = sum(x * x for reply in replies for x, _ in reply)
    if squares <= 0:
        return None
    value = sum(x * y for reply in replies for x, y in reply) / squares
    spread = sum(sum(x * (y - value * x) for x, y in reply) ** 2 for reply in replies)
    return Slope(value=value, deviation=math.sqrt(spread) / squares, num_tokens=sum(map(len, replies)))


def judge_slope(slope: Slope | None, *, evidence: Sequence[Record] = ()) -> Audited:
    """Pure."""
    if slope is None:
        text = "no log-probability could be compared on nudged weights"
        return audited(NAME, text="", figures={}, refused={LOWER_PRECISION: text}, evidence=evidence)
    figures = {"slope": slope.value, "deviation": slope.deviation, "num_tokens": slope.num_tokens}
    high = slope.value + DEVIATIONS * slope.deviation
    if high < LEAST_SLOPE:
        text = f"weights that move within the cells of int8 change {slope.shown} of what they must, at least "
        text += f"{LEAST_SLOPE:g} is required ({slope.num_tokens} tokens)"
        return audited(NAME, text="", figures=figures, refused={LOWER_PRECISION: text}, evidence=evidence)
    if slope.deviation > MAX_DEVIATION:
        why = f"weights-precision audit: the server's noise hides them (slope {slope.shown})"
        return replace(not_applicable(NAME, why), evidence=tuple(evidence))
    text = f"weights that move within the cells of int8 change {slope.shown} of what they must"
    return audited(NAME, text=text, figures=figures, refused={}, evidence=evidence)
