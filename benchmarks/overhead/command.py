"""Rounds without agents and measurement on top of longer and longer histories; and the framework's share of a run."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.overhead.history import Recorded, add_round, seed_entry
from benchmarks.overhead.nothing import NullPlanner, null_team
from benchmarks.overhead.share import Share, share_of_wall
from vibeserve.arguments import VerbParser
from vibeserve.checkpoint import CheckpointStore
from vibeserve.config import compose_spec
from vibeserve.core.paths import data_dir, state_dir
from vibeserve.errors import SpecError
from vibeserve.hardware import probe
from vibeserve.journal import Journal
from vibeserve.plan import Plan
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.seeds import get_seed, scaffold_settings
from vibeserve.skills import target_facts
from vibeserve.status import run_statuses
from vibeserve.synthesis import synthesize

HISTORIES = (1, 10, 100, 1_000, 10_000)
NUM_ROUNDS = 7
"""that are timed at each history; their median counts"""
RUN_ID = "overhead"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The framework at one length of history. Seconds."""

    history_rounds: int
    seconds_per_round: float
    """of a process that goes on: from one question to the planner to the next"""
    resume_s: float
    """once a process: the journal opened, the search restored, up to the first question"""
    status_s: float
    """`vibeserve status`, by a process of its own"""
    journal_mib: float


def main(argv: Sequence[str]) -> int:
    parser = VerbParser(
        "bench-overhead", is_task=True, description="What the framework itself costs a round, by history."
    )
    parser.add_argument("--rounds", default=",".join(map(str, HISTORIES)), help="lengths of history, rising")
    parser.add_argument("--run", metavar="DIR", help="folder of a finished run in .vibeserve/runs, for the share")
    arguments = parser.parse_args(argv)
    share = share_of_wall(Path(arguments.run)) if arguments.run else Share(why_not="no --run was given")
    rows = list(measured(_lengths(arguments.rounds)))
    if arguments.is_json:
        document = {
            "schema_version": 1, "rows": [asdict(row) for row in rows], "share_of_wall": share.of_wall,
            "share": asdict(share),
        }  # fmt: skip
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join([*map(_line, rows), f"share of the wall time: {share}"]) + "\n")
    return 0


def _lengths(text: str) -> list[int]:
    parts = text.split(",")
    lengths = [int(part) for part in parts if part.isdecimal() and int(part) > 0]
    if len(lengths) != len(parts) or lengths != sorted(set(lengths)):
        raise SpecError(f"bench-overhead: --rounds {text}: rising numbers from 1 on, such as 1,10,100")
    return lengths


def measured(lengths: Sequence[int]) -> Iterator[Row]:
    """One row a length, from one journal that grows."""
    spec = compose_spec(["+target=tiny_cpu"], cwd=data_dir("targets").parent)
    spec.budget.attempts, spec.search.patience, spec.budget.rounds = 1, 10**9, 10**9
    plan = compile_unmeasured(spec, facts=probe())
    recorded = Recorded()
    with TemporaryDirectory(prefix="vibeserve-overhead-") as scratch:
        project = Path(scratch)
        run_dir = state_dir(project) / "runs" / RUN_ID
        commit = _begin(run_dir, plan, recorded)
        number = 0
        for length in lengths:
            with Journal.open(run_dir / "journal.jsonl") as journal:
                number = len(journal.events("round"))
                for each in range(number, length):
                    add_round(journal, recorded, each, run_dir=run_dir, commit=commit)
            yield _row(run_dir, plan, project=project, length=length)


def _begin(run_dir: Path, plan: Plan, recorded: Recorded) -> str:
    """Round 0 on the disk: its workspace, its commit, its events."""
    team = null_team(plan, run_dir=run_dir, store=CheckpointStore(run_dir / "checkpoints.git"), run_id=RUN_ID)
    workspace = run_dir / "workspaces" / "r00a1"
    scaffold = data_dir("templates") / "runtime" / "text"
    settings = scaffold_settings(plan.spec, scaffold=scaffold)
    seed = get_seed(plan.spec.seed, scaffold=scaffold, settings=settings, pins=plan.spec.search.pins)
    seed.materialise(workspace)
    commit = team.store.commit(workspace, parent=None, message="round 0", ref=f"{RUN_ID}/r00a1")
    with Journal.open(run_dir / "journal.jsonl") as journal:
        journal.append("opened", {"target": plan.target, "plan_id": plan.plan_id, "bandwidth_gb_s": 10.0})
        journal.append("round", seed_entry(recorded, run_dir=run_dir, commit=commit))
    return commit


def _row(run_dir: Path, plan: Plan, *, project: Path, length: int) -> Row:
    started_s, planner = time.perf_counter(), NullPlanner(num_rounds=NUM_ROUNDS)
    path = run_dir / "journal.jsonl"
    size, scaffold = path.stat().st_size, data_dir("templates") / "runtime" / "text"
    with Journal.open(path) as journal:
        team = null_team(plan, run_dir=run_dir, store=CheckpointStore(run_dir / "checkpoints.git"), run_id=RUN_ID)
        seed = get_seed(plan.spec.seed, scaffold=scaffold, settings={}, pins={})
        synthesize(
            team, seed=seed, planner=planner, facts=target_facts(plan.spec, cpu_flags=frozenset()), journal=journal,
            deadline_s=math.inf,
        )  # fmt: skip
    rounds_s = [later - before for before, later in zip(planner.asked_at_s, planner.asked_at_s[1:], strict=False)]
    _take_back(run_dir, size=size)
    status_started_s = time.perf_counter()
    statuses = run_statuses(state_dir(project))
    assert statuses
    return Row(
        history_rounds=length, seconds_per_round=round(statistics.median(rounds_s), 4),
        resume_s=round(planner.asked_at_s[0] - started_s, 3),
        status_s=round(time.perf_counter() - status_started_s, 3), journal_mib=round(size / 2**20, 2),
    )  # fmt: skip


def _take_back(run_dir: Path, *, size: int) -> None:
    """The timed rounds are no part of the next history."""
    with (run_dir / "journal.jsonl").open("r+b") as stream:
        stream.truncate(size)
    for workspace in (run_dir / "workspaces").iterdir():
        if workspace.name != "r00a1":
            shutil.rmtree(workspace)


def _line(row: Row) -> str:
    once = f"resume {row.resume_s:7.2f} s, status {row.status_s:6.2f} s, journal {row.journal_mib:8.2f} MiB"
    return f"{row.history_rounds:6d} rounds: {row.seconds_per_round * 1000:7.1f} ms a round, {once}"
