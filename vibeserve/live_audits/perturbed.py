"""Damaged weights: the same runtime on them keeps its speed and loses its accuracy (class 19, rule 19).

MLPerf's perturbed-model audit. The damaged copy has the rows of every matrix in another order
(`vibeserve.weights.damaged`), so that nothing a kernel's speed depends on changes. A runtime that stays right does not
use the weights that it is given; one whose speed changes looks at which they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from vibeserve.accuracy import Scores, judge_records
from vibeserve.accuracy.limits import figure
from vibeserve.contract import Record
from vibeserve.core.nouns import RatioInterval
from vibeserve.errors import ServerError
from vibeserve.live_audits.decisions import block_s, failed_problem, interval_figures, shown, speed_up
from vibeserve.live_audits.driving import Block, drive
from vibeserve.live_audits.nouns import Audited, audited, confirmed, not_applicable
from vibeserve.live_audits.traffic import alike
from vibeserve.roles.workbench import Workbench
from vibeserve.service import candidate_launch
from vibeserve.weights.damaged import damage

NAME = "damaged_weights"
STAYS_RIGHT = "weights_do_not_matter"
CHANGES_SPEED = "speed_depends_on_weights"
MAX_CHANGE = 1.25
"""most that the time may differ, either way; rule 19 asks for the same speed, and two servers one after the other are
not one"""
NUM_BLOCKS = 4
"""of each start; there are two starts of each of the two"""
NUM_AT_ONCE = 4
MAX_OUTPUT_TOKENS = 32
MISSING = "missing"
"""how reason classes begin that tell of no wrong output, but of none"""


def audit_weights(bench: Workbench, workspace: Path, *, seed: int, num_blocks: int = NUM_BLOCKS) -> Audited:
    """Refuses `weights_do_not_matter` and `speed_depends_on_weights`. Four starts, never two servers at a time, and one
    re-scoring; the damaged copy is made below the bench's folder and removed."""
    damaged = bench.run_dir / "damaged" / "model"
    shutil.rmtree(damaged.parent, ignore_errors=True)
    damaged.parent.mkdir(parents=True)
    try:
        if not damage(bench.model.path, destination=damaged, seed=seed):
            return not_applicable(NAME, "perturbed-weights audit: the model has no weights in safetensors or GGUF")
        return confirmed(
            lambda num, drawn: _measure(bench, workspace, damaged, num_blocks=num, seed=drawn),
            num_pairs=num_blocks, seed=seed,
            is_timed=lambda found: {refusal.reason_class for refusal in found.refusals} == {CHANGES_SPEED},
        )  # fmt: skip
    finally:
        shutil.rmtree(damaged.parent, ignore_errors=True)


def _measure(bench: Workbench, workspace: Path, damaged: Path, *, num_blocks: int, seed: int) -> Audited:
    num_needed = 2 * (num_blocks + 1) * NUM_AT_ONCE
    stock = alike(bench, num=num_needed, seed=seed, max_output_tokens=MAX_OUTPUT_TOKENS)
    if len(stock) < num_needed:
        return not_applicable(NAME, "perturbed-weights audit: the workload has too few requests of one shape")
    half = len(stock) // 2
    parts = [[part[n : n + NUM_AT_ONCE] for n in range(0, half, NUM_AT_ONCE)] for part in (stock[:half], stock[half:])]
    try:
        # damaged, whole, whole, damaged: a linear drift falls on both alike
        first = _served(bench, workspace, damaged, parts[0])
        whole = [*_served(bench, workspace, bench.model.path, parts[0])[1:]]
        whole += _served(bench, workspace, bench.model.path, parts[1])[1:]
        last = _served(bench, workspace, damaged, parts[1])
    except ServerError as error:
        if error.name != NAME:
            raise
        text = f"it does not serve other weights of the same shapes ({error.outcome}: {str(error).splitlines()[0]})"
        return audited(NAME, text="", figures={}, refused={CHANGES_SPEED: text})
    wrong = [*first[1:], *last[1:]]
    judged = judge_records(
        [record for block in wrong for record in block], bundle=bench.bundle.ref, seed=seed, max_replies=0,
        num_threads=bench.host.probe().num_cpus, run_dir=bench.run_dir / "rescore" / NAME,
    )  # fmt: skip
    return judge_damaged(
        whole,
        wrong,
        lost=lost_accuracy(judged.scores),
        figures=judged.figures,
        num_sent=4 * num_blocks * NUM_AT_ONCE,
        seed=seed,
    )


def _served(bench: Workbench, workspace: Path, model_dir: Path, blocks: Sequence[Block]) -> list[list[Record]]:
    """The first block is a warm-up. A server on damaged weights is named after the audit."""
    server_name = "whole_weights" if model_dir == bench.model.path else NAME
    return served_on(bench, workspace, model_dir, blocks, server_name=server_name, name=NAME)


def served_on(
    bench: Workbench, workspace: Path, model_dir: Path, blocks: Sequence[Block], *, server_name: str, name: str
) -> list[list[Record]]:
    """The runtime's replies on the weights of `model_dir`, by a server of its own. Raises as `drive` does."""
    launch = candidate_launch(
        workspace, model_dir=model_dir, allow_engines=tuple(bench.plan.spec.allow_engines), name=server_name
    )  # fmt: skip
    server = bench.start(launch)
    try:
        return drive(bench, server, blocks, name=name)
    finally:
        server.stop(drain_s=0)


def lost_accuracy(scores: Scores) -> str:
    """By which rule the replies are wrong; empty where they keep every limit. What is only missing shows nothing."""
    for limit in scores.limits:
        value = figure(scores.replies, limit=limit)
        if value is not None and value > limit.bound:
            return f"{limit.statistic.value} of {limit.distance} {value:.3g}, at most {limit.bound:g} is right"
    told = (found.text for found in scores.judgement.findings if not found.reason_class.startswith(MISSING))
    return next(told, "")


def judge_damaged(
    whole: Sequence[Sequence[Record]], wrong: Sequence[Sequence[Record]], *, lost: str, figures: dict[str, float],
    num_sent: int, seed: int,
) -> Audited:  # fmt: skip
    """Pure: blocks on the model's weights and on damaged ones; `lost` is what `lost_accuracy` says of the latter."""
    records = [record for block in (*whole, *wrong) for record in block]
    change = speed_up([block_s(block) for block in whole], [block_s(block) for block in wrong], seed=seed)
    refused = {}
    if not lost:
        refused[STAYS_RIGHT] = "with damaged weights the replies are as right as before: it does not use them"
    problem = failed_problem(records, num_sent=num_sent) or _speed_problem(change)
    if problem:
        refused[CHANGES_SPEED] = problem
    text = "" if change is None else f"with damaged weights it is {shown(change)} times as fast, and wrong: {lost}"
    shown_figures = interval_figures(change) | {f"damaged_{name}": value for name, value in figures.items()}
    whole_replies = [record for block in whole for record in block]
    return audited(NAME, text=text, figures=shown_figures, refused=refused, evidence=whole_replies)


def _speed_problem(change: RatioInterval | None) -> str:
    if change is None:
        return "the times with damaged weights could not be compared"
    if change.ci_low > MAX_CHANGE or change.ci_high < 1 / MAX_CHANGE:
        return (
            f"with damaged weights it is {shown(change)} times as fast; {1 / MAX_CHANGE:g} to {MAX_CHANGE:g} is allowed"
        )
    return ""
