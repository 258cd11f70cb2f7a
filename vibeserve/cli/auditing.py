"""`vibeserve audit`: the exploit suite, or one runtime under the tiny target."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.errors import RefusedError, SpecError

if TYPE_CHECKING:
    from vibeserve.exploits.served import Judgement
    from vibeserve.exploits.suite import SuiteResult
    from vibeserve.progress import Progress

MAX_RUNS = 100
SUITE_OPTIONS = ("exploits", "only", "runs")
"""that mean nothing for one runtime"""


def main(argv: list[str]) -> int:
    """Returns 0 when every cheat is refused and every honest runtime accepted, or the one runtime; else 3."""
    arguments = _parser().parse_args(argv)
    _refuse_mixture(arguments)
    with tempfile.TemporaryDirectory(prefix="vibeserve-audit-") as scratch:
        if arguments.is_suite:
            return _audit_suite(arguments, run_dir=Path(scratch))
        return _audit_runtime(arguments, run_dir=Path(scratch))


def _parser() -> VerbParser:
    parser = VerbParser(
        "audit",
        description="Try the gates on target tiny_cpu: the whole exploit suite (--suite), or one runtime's folder.",
    )
    parser.add_argument("runtime", nargs="?", type=Path, metavar="RUNTIME_DIR", help="a folder with service.yaml")
    parser.add_argument("--suite", action="store_true", dest="is_suite", help="every cheat and every honest runtime")
    parser.add_argument("--exploits", type=Path, metavar="DIR", help="the suite's folder (default: the one that ships)")
    parser.add_argument("--only", metavar="NAME,..", help="of the suite: these alone")
    parser.add_argument("--runs", type=_num_runs, metavar="N", help="runs of each honest runtime (default 1)")
    parser.add_argument("--tier", choices=("A", "B"), help="wall (default: the strongest that this machine has)")
    return parser


def _num_runs(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if not 1 <= value <= MAX_RUNS:
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 to {MAX_RUNS}")
    return value


def _refuse_mixture(arguments: argparse.Namespace) -> None:
    if arguments.is_suite == (arguments.runtime is not None):
        what = "both were given" if arguments.is_suite else "neither was given"
        hint = "vibeserve audit --suite, or vibeserve audit RUNTIME_DIR"
        raise SpecError(f"audit: takes RUNTIME_DIR or --suite, {what}", hint=hint)
    unused = [f"--{name}" for name in SUITE_OPTIONS if getattr(arguments, name) is not None]
    if unused and not arguments.is_suite:
        raise SpecError(f"audit: {', '.join(unused)} is for --suite", hint="vibeserve audit --suite")
    if arguments.runtime is not None and not (arguments.runtime / "service.yaml").is_file():
        hint = "name a workspace such as artifacts/<target>/latest/runtime"
        raise SpecError(f"{arguments.runtime}: no runtime, it holds no service.yaml", hint=hint)


def _progress() -> Progress:
    from vibeserve.progress import LineProgress

    # the answer is on stdout, what happens meanwhile on stderr
    return LineProgress(sys.stderr)


def _audit_suite(arguments: argparse.Namespace, *, run_dir: Path) -> int:
    from vibeserve.exploits.documents import load_suite, suite_folder
    from vibeserve.exploits.judging import Court
    from vibeserve.exploits.suite import run_suite, suite_data

    only = [name for name in (arguments.only or "").split(",") if name]
    if arguments.only is not None and not only:
        raise SpecError("audit: --only names nothing", hint="vibeserve audit --suite --only NAME,NAME")
    suite = load_suite(suite_folder(arguments.exploits), only=only)
    with Court(run_dir=run_dir, tier=arguments.tier or "auto") as court:
        result = run_suite(suite, court, num_runs=arguments.runs or 1, progress=_progress())
    if arguments.is_json:
        write_json(suite_data(result))
    else:
        _write_suite(result)
    return 0 if result.passed else RefusedError.exit_code


def _write_suite(result: SuiteResult) -> None:
    rows = [("exploit", "class", "kind", "refused by", "for", "tier", "seconds")]
    for row in sorted(result.exploits, key=lambda each: (each.number, each.name)):
        gate = row.gate or "GOT THROUGH"
        rows.append((row.name, str(row.number), row.kind, gate, row.reason, row.tier, f"{row.seconds:.1f}"))
    write_table(rows)
    write("")
    write_table(_honest_rows(result))
    write("")
    for missing in result.not_simulated:
        write(f"class {missing.number} is not simulated: {missing.why}")
    write(
        f"{result.num_refused} of {len(result.exploits)} cheats of {result.num_classes} classes refused: "
        f"recall {_share(result.recall)}, precision {_share(result.precision)} ({result.seconds:.0f} s)"
    )


def _honest_rows(result: SuiteResult) -> list[tuple[str, ...]]:
    rows = [("honest", "accepted", "runs", "tier", "seconds", "why not")]
    for each in result.honest:
        accepted = ("yes" if each.accepted else "REFUSED") if each.runs else "not run"
        runs = f"{each.accepted_runs} of {each.runs}"
        rows.append((each.name, accepted, runs, each.tier, f"{each.seconds:.1f}", each.why))
    return list(rows)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _audit_runtime(arguments: argparse.Namespace, *, run_dir: Path) -> int:
    from vibeserve.exploits.judging import Court

    with Court(run_dir=run_dir, tier=arguments.tier or "auto") as court:
        judgement = court.judge_folder(arguments.runtime)
    not_run, not_held = _left_out(judgement)
    if arguments.is_json:
        write_json(_judgement_data(judgement) | {"not_run": not_run, "not_held": not_held})
    else:
        for refusal in judgement.refusals:
            write(f"{refusal.gate}/{refusal.reason_class}: {refusal.text}")
        write(f"{'refused' if judgement.refusals else 'accepted'}: {judgement.num_replies} replies judged")
        write(f"ran: {', '.join(judgement.stages)}")
        if not_run:
            write(f"not run, for it was refused before: {', '.join(not_run)}")
        write(f"not held by this command: {', '.join(not_held)}")
    return RefusedError.exit_code if judgement.refusals else 0


def _left_out(judgement: Judgement) -> tuple[list[str], list[str]]:
    """(stages that were not reached, what only a run or a certification holds)."""
    from vibeserve.exploits.audits import CHEAP
    from vibeserve.exploits.documents import AUDITS
    from vibeserve.exploits.served import stages_not_run

    others = [f"audit {name}" for name in AUDITS if name not in CHEAP]
    return stages_not_run(judgement, CHEAP), [*others, "the runtime's own tests", "any measurement beside a baseline"]


def _judgement_data(judgement: Judgement) -> dict[str, object]:
    return {
        "schema_version": 1, "accepted": not judgement.refusals, "refusals": judgement.refusals,
        "stages": judgement.stages, "num_replies": judgement.num_replies,
    }  # fmt: skip
