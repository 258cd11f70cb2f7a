"""`invoke bench-cases`: per case every metric beside every peer, and what of it is reached."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.cases.declared import CASES, Case
from benchmarks.cases.reading import Found, read_target
from benchmarks.cases.rows import Answer, Row, answers_of, rows_of
from vibeserve.arguments import VerbParser
from vibeserve.config.targets import project_root
from vibeserve.core.tables import aligned
from vibeserve.errors import SpecError

Runner = Callable[[list[str]], int]
"""runs a command line of the product; returns its exit status"""


def main(argv: Sequence[str], *, run: Runner | None = None) -> int:
    """0, or with --run the first status that was none."""
    parser = VerbParser("bench-cases", is_task=True, description="The case studies beside their peers, as certified.")
    every = ",".join(dict.fromkeys(case.letter for case in CASES))
    parser.add_argument("--only", default=every, help="cases, such as A,B,E")
    parser.add_argument("--run", action="store_true", help="first run what has no certified artifact yet")
    parser.add_argument("--root", type=Path, help="folder of artifacts; default: artifacts of this repository")
    arguments = parser.parse_args(argv)
    cases, root = _cases(arguments.only), arguments.root or project_root() / "artifacts"
    status = _run_missing(cases, root=root, run=run or _run) if arguments.run else 0
    found = {case.target: read_target(root / case.target) for case in cases}
    rows = [row for case in cases for row in rows_of(case, found[case.target], root=root)]
    answers = [answer for case in cases for answer in answers_of(case, found[case.target], root=root)]
    if arguments.is_json:
        sys.stdout.write(json.dumps(_document(cases, rows, answers), indent=2) + "\n")
    else:
        for case in cases:
            sys.stdout.write("\n".join(_lines(case, found[case.target], rows, answers)) + "\n")
    return status


def _cases(text: str) -> list[Case]:
    wanted = [word.strip().upper() for word in text.split(",")]
    unknown = [word for word in wanted if word not in {case.letter for case in CASES}]
    if unknown:
        valid = ", ".join(f"{case.letter} ({case.title})" for case in CASES)
        raise SpecError(f"bench-cases: --only {text}: no case '{unknown[0]}'", problems=[f"valid: {valid}"])
    return [case for case in CASES if case.letter in wanted]


def _run_missing(cases: Sequence[Case], *, root: Path, run: Runner) -> int:
    """Run each missing command once; one that fails does not keep the others from running."""
    missing: dict[str, None] = {}
    for case in cases:
        for answer in answers_of(case, read_target(root / case.target), root=root):
            if answer.met is None:
                missing[answer.command] = None
    statuses = []
    for command in missing:
        sys.stderr.write(f"+ {command}\n")
        statuses.append(run(shlex.split(command)[1:]))
        if statuses[-1]:
            sys.stderr.write(f"  exit {statuses[-1]}\n")
    return next((status for status in statuses if status), 0)


def _run(argv: list[str]) -> int:
    # its progress goes to stderr: stdout is one document
    command = [sys.executable, "-m", "vibeserve.cli.main", *argv]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode


def _document(cases: Sequence[Case], rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, object]:
    absent = [answer for answer in answers if answer.met is None]
    return {
        "schema_version": 1,
        "cases": [asdict(row) for row in rows],
        "reaches": [asdict(answer) for answer in answers],
        "not_measured": [
            {"case": case.letter, "target": case.target, "command": command}
            for case in cases
            for command in dict.fromkeys(answer.command for answer in absent if answer.target == case.target)
        ],
    }


def _lines(case: Case, found: Found, rows: Sequence[Row], answers: Sequence[Answer]) -> Iterator[str]:
    yield f"{case.letter}  {case.title}: {case.target}"
    for certified in found.artifacts:
        manifest = certified.manifest
        bits = "" if certified.precision == "same_bytes" else ", any precision"
        yield f"   {manifest.plan_id}: {manifest.status}, level {manifest.level}, {manifest.heading}{bits}"
    yield from (f"   passed over: {text}" for text in found.passed_over)
    own = [row for row in rows if row.target == case.target]
    if own:
        yield from (f"   {line}" for line in aligned([_HEAD, *map(_cells, own)]))
        flags = dict.fromkeys((row.peer, " ".join(row.peer_flags)) for row in own if row.peer_flags)
        yield from (f"   flags of {peer}: {words}" for peer, words in flags)
    yield from (f"   {_told(answer)}" for answer in answers if answer.target == case.target)
    yield ""


_HEAD = ("metric", "load", "ours", "of roofline", "peer", "", "table", "value", "ratio", "interval")


def _cells(row: Row) -> tuple[str, ...]:
    value = row.state if row.peer_value is None else f"{row.peer_value:.4g}"
    interval = "" if row.ci_low is None or row.ci_high is None else f"[{row.ci_low:.2f}, {row.ci_high:.2f}]"
    return (
        row.metric,
        row.load,
        f"{row.ours:.4g} {row.unit}",
        "" if row.roofline_share is None else f"{row.roofline_share:.0%}",
        f"{row.peer} {row.peer_version}".rstrip(),
        row.baseline_class,
        row.precision.replace("_", " "),
        value if row.state != "screened" else f"{value} (screened)",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        interval,
    )


def _told(answer: Answer) -> str:
    what = f"{answer.metric} at {answer.load} against {answer.against}, {answer.precision.replace('_', ' ')}"
    bar = f"{what}: >= {answer.min_ratio:g}"
    if answer.met is None:
        return f"{bar}: not measured ({answer.why}); {answer.command}"
    verdict = "met" if answer.met else "missed"
    return f"{bar}: {answer.ratio:.2f} ({answer.peer}): {verdict}" + (f"; {answer.why}" if answer.why else "")
