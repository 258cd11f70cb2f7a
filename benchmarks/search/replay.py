"""Does the search earn its cost? `invoke bench-search`: greedy, beam and the control arm at equal measurement budget.

Policies, playbook and decision are the product's; what a candidate's measurement gives comes from a landscape and from
noise that was measured (`rehearsal.py` says what is left out). The control arm has no patience: it uses its whole
budget, while greedy and beam may stop early, so the comparison leans against them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search.grid import Setting
from benchmarks.search.landscapes import Landscape, Measured, Synthetic, shipped_table
from benchmarks.search.rehearsal import Rehearsal, Rules
from benchmarks.search.table import Table
from vibeserve.agents.team import make_planner
from vibeserve.arguments import VerbParser
from vibeserve.benchmark.simulation import Noise
from vibeserve.cli.boundary import within_boundary
from vibeserve.core.documents import read_document, to_data
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.policies import make_policy
from vibeserve.schedules import SCHEDULES
from vibeserve.skills import load_scaffold, load_skills, target_facts
from vibeserve.spec import Evaluation, Level, Search

FOLDER = Path(__file__).parent
NOISE = FOLDER.parent / "noise" / "cpu.json"
TARGET = "smollm2_cpu"
LANDSCAPES = (TARGET, "synthetic_additive", "synthetic_deceptive")
POLICIES = ("greedy", "beam", "random")
BUDGETS = (12,)
NUM_SEEDS = 1000
NUM_RESAMPLES = 2000
CONFIDENCE = 0.95
CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni")
"""of the machine that the synthetic landscapes pretend to be"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Document: one policy on one landscape."""

    landscape: str
    policy: str
    seeds: int
    budget: int
    """comparisons after round 0"""
    best_mean: float | None
    """mean over the seeds of the true headline ratio, over the seed runtime, of what the search ends with; None where
    nothing was measured"""
    ci_low: float | None
    ci_high: float | None
    """95% bootstrap interval of that mean over the seeds"""
    spent_mean: float | None = None
    """comparisons used"""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Document: what `invoke bench-search` found."""

    rows: tuple[Row, ...]
    verdicts: tuple[str, ...]
    """in words, per landscape and budget"""
    machine: str
    """where the noise was measured"""
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One policy on one landscape at one budget, over a range of seeds: the unit of work of a process."""

    landscape: str
    table: str
    policy: str
    budget: int
    seeds: range


def setting_of(target: str) -> Setting:
    """What a search on `target` chooses from."""
    from vibeserve.config import compose_spec

    spec = compose_spec([f"+target={target}"], cwd=data_dir("targets").parent)
    scaffold = load_scaffold(data_dir("templates") / "runtime" / "text")
    facts = target_facts(spec, cpu_flags=CPU_FLAGS)
    return Setting(facts=facts, scaffold=scaffold, skills=load_skills(data_dir("skills")))


def landscape_of(name: str, *, table: str, setting: Setting) -> Landscape:
    """By name, one of `LANDSCAPES`."""
    if name == TARGET:
        return Measured(name=name, setting=setting, table=_read_table(Path(table)))
    return Synthetic(name=name, setting=setting, is_deceptive=name == "synthetic_deceptive")


def run_arm(arm: Arm) -> list[tuple[float, float]]:
    """(true ratio, comparisons used) of every seed. The same seed is the same landscape for every policy."""
    import numpy as np

    setting = setting_of(TARGET)
    landscape = landscape_of(arm.landscape, table=arm.table, setting=setting)
    noise = read_document(NOISE, Noise).check().starts
    if isinstance(landscape, Measured):
        noise = tuple(twin.log_ratios for twin in landscape.table.twins)
    rules = Rules(
        setting=setting, noise=noise, num_pairs=SCHEDULES[Level.standard].search_pairs,
        min_effect=Evaluation.min_effect, budget=arm.budget,
    )  # fmt: skip
    found = []
    for seed in arm.seeds:
        search = Search(policy=arm.policy, seed=seed)
        search.patience = 10**6 if arm.policy == "random" else search.patience
        rehearsal = Rehearsal(
            rules=rules, surface=landscape.surface(np.random.default_rng([seed, 0])), policy=make_policy(search),
            planner=make_planner(search), draw=np.random.default_rng([seed, 1]),
        )  # fmt: skip
        ratio = rehearsal.run()
        found.append((ratio, rehearsal.spent))
    return found


def study(*, landscapes: Sequence[str], budgets: Sequence[int], num_seeds: int, jobs: int, table: Path) -> Study:
    """Every policy on every landscape at every budget. Deterministic, whatever the number of processes."""
    missing = _why_no_table(table)
    keys = [(name, budget, policy) for name in landscapes for budget in budgets for policy in POLICIES]
    able = [key for key in keys if key[0] != TARGET or not missing]
    size = max(1, -(-num_seeds // jobs))
    arms = [
        Arm(
            landscape=name, table=str(table), policy=policy, budget=budget,
            seeds=range(first, min(first + size, num_seeds)),
        )
        for name, budget, policy in able
        for first in range(0, num_seeds, size)
    ]  # fmt: skip
    with ProcessPoolExecutor(jobs) as pool:
        parts = list(pool.map(run_arm, arms))
    found: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for arm, part in zip(arms, parts, strict=True):
        found.setdefault((arm.landscape, arm.budget, arm.policy), []).extend(part)
    rows = tuple(_row(key, found.get(key), num_seeds=num_seeds, missing=missing) for key in keys)
    ratios = {key: [ratio for ratio, _ in pairs] for key, pairs in found.items()}
    machine = read_document(NOISE, Noise).machine
    return Study(rows=rows, verdicts=tuple(_verdicts(ratios)), machine=machine)


def _read_table(path: Path) -> Table:
    """SpecError for what is no measured grid."""
    from dacite import DaciteError

    try:
        return read_document(path, Table)
    except (ValueError, DaciteError) as error:
        told = " ".join(str(error).split())
        raise SpecError(f"{path}: is no measured grid: {told}", hint="invoke bench-grid writes one") from None


def _given_table(text: str) -> str:
    """Type of --table: a file that is there."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text}: no such file; invoke bench-grid writes one")
    return text


def _why_no_table(path: Path) -> str:
    """Empty where a whole table is there."""
    if not path.is_file():
        return "not measured yet: invoke bench-grid"
    table = _read_table(path)
    if any(not each.components and each.error for each in table.points):
        return "not measured yet: the seed itself could not be served"
    if table.num_missing:
        return f"not measured yet: {table.num_missing} points are missing; invoke bench-grid goes on"
    return ""


def _row(key: tuple[str, int, str], found: list[tuple[float, float]] | None, *, num_seeds: int, missing: str) -> Row:
    name, budget, policy = key
    if found is None:
        return Row(
            landscape=name, policy=policy, seeds=0, budget=budget, best_mean=None, ci_low=None, ci_high=None,
            note=missing,
        )  # fmt: skip
    mean, low, high = mean_interval([ratio for ratio, _ in found])
    spent = sum(spent for _, spent in found) / len(found)
    return Row(
        landscape=name, policy=policy, seeds=num_seeds, budget=budget, best_mean=round(mean, 4), ci_low=round(low, 4),
        ci_high=round(high, 4), spent_mean=round(spent, 2),
    )  # fmt: skip


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean with its percentile bootstrap interval (Efron and Tibshirani 1993, chapter 13)."""
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(0).integers(0, len(array), size=(NUM_RESAMPLES, len(array)))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(array[draws].mean(axis=1), [tail, 100 - tail])
    return float(array.mean()), float(low), float(high)


def _verdicts(ratios: dict[tuple[str, int, str], list[float]]) -> list[str]:
    """Paired by seed: every policy met the same landscapes."""
    told = []
    for name, budget in dict.fromkeys((name, budget) for name, budget, _ in ratios):
        for policy, other in (("greedy", "random"), ("beam", "random"), ("beam", "greedy")):
            pairs = zip(ratios[name, budget, policy], ratios[name, budget, other], strict=True)
            mean, low, high = mean_interval([one - two for one, two in pairs])
            word = "beats" if low > 0 else "loses to" if high < 0 else "does not differ from"
            told.append(f"{name}, {budget}: {policy} {word} {other} by {mean:+.3f} [{low:+.3f}, {high:+.3f}]")
    return told


def table_lines(result: Study) -> list[str]:
    """Markdown for docs/search.md."""
    lines = [
        "| landscape | budget | policy | best, mean over seeds | 95% interval | used |",
        "|---|---|---|---|---|---|",
    ]
    for row in result.rows:
        value = row.note if row.best_mean is None else f"x{row.best_mean:.3f}"
        interval = "" if row.ci_low is None else f"{row.ci_low:.3f} to {row.ci_high:.3f}"
        used = "" if row.spent_mean is None else f"{row.spent_mean:.1f}"
        lines.append(f"| {row.landscape} | {row.budget} | {row.policy} | {value} | {interval} | {used} |")
    return [*lines, "", *(f"- {verdict}" for verdict in result.verdicts)]


def main(argv: Sequence[str]) -> int:
    """Command line of the study. Returns 0; SpecError for bad options or a table that is none."""
    options = _parser().parse_args(argv)
    landscapes = options.landscape or LANDSCAPES
    unknown = [name for name in landscapes if name not in LANDSCAPES]
    if unknown:
        raise SpecError(f"--landscape: '{unknown[0]}' is not valid", problems=[f"valid: {', '.join(LANDSCAPES)}"])
    result = study(
        landscapes=landscapes,
        budgets=options.budget or BUDGETS, num_seeds=options.seeds, jobs=options.jobs,
        table=Path(options.table or shipped_table(TARGET, FOLDER)),
    )  # fmt: skip
    text = json.dumps(to_data(result), indent=2) if options.is_json else "\n".join(table_lines(result))
    sys.stdout.write(text + "\n")
    return 0


def _parser() -> VerbParser:
    parser = VerbParser(
        "bench-search", is_task=True, description="Greedy, beam and random at equal measurement budget."
    )
    shipped = str(shipped_table(TARGET, FOLDER))
    parser.add_argument("--table", type=_given_table, metavar="FILE", default=None, help=f"measured grid ({shipped})")
    parser.add_argument("--landscape", action="append", metavar="NAME", help="only this one; may be repeated")
    of_budget = f"comparisons (default {BUDGETS[0]})"
    parser.add_argument("--budget", action="append", type=_count, metavar="N", help=of_budget)
    parser.add_argument("--seeds", type=_count, default=NUM_SEEDS, help=f"searches a row (default {NUM_SEEDS})")
    parser.add_argument("--jobs", type=_count, default=os.cpu_count() or 1, help="processes")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(within_boundary(lambda argv: main(argv), sys.argv[1:]))
