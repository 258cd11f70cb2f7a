"""The benchmark of the framework's own cost: its rows, its share of a run, what it refuses. No time is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "benchmarks.overhead", *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


def run_with(folder: Path, *, is_certified: bool = True) -> Path:
    """A finished run of two rounds and a certification, whose journal is written by hand."""
    from vibeserve.journal import Journal

    with Journal.open(folder / "journal.jsonl") as journal:
        for number, spent in enumerate(({"windows": 6.0, "probe": 3.0}, {"windows": 9.0})):
            journal.append("round", {"record": {"number": number, "seconds": 10.0}, "spent": spent})
    documents: dict[str, Any] = {
        "agents/r01a1-implementer/answer.json": {"key": "r01a1-implementer", "exit": {"seconds": 0.5}},
        "agents/p01-planner/answer.json": {"key": "p01-planner", "exit": {"seconds": 100.0}},
    }
    if is_certified:
        documents["steps/certify/stamp.json"] = {"document": {"seconds": 20.0, "spent": {"windows": 19.5}}}
    for name, document in documents.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(json.dumps(document))
    return folder


def test_a_row_for_every_history_and_the_share_of_a_run(tmp_path: Path) -> None:
    done = bench("--rounds", "1,4", "--json", "--run", str(run_with(tmp_path)))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row["history_rounds"] for row in document["rows"]] == [1, 4]
    assert all(row["seconds_per_round"] > 0 and row["resume_s"] > 0 for row in document["rows"])
    assert document["rows"][1]["journal_mib"] > document["rows"][0]["journal_mib"]
    # 40 s of rounds and certification, 37.5 s measured and judged, 0.5 s of an agent inside a round
    assert document["share_of_wall"] == pytest.approx(2.0 / 40.0)
    assert document["share"]["agents_s"] == 0.5, "a round's seconds begin behind the proposal"


def test_without_a_run_the_share_says_why_it_is_missing(tmp_path: Path) -> None:
    from benchmarks.overhead.share import share_of_wall
    from vibeserve.journal import Journal

    Journal.open(tmp_path / "journal.jsonl").close()
    assert str(share_of_wall(tmp_path)) == "not known: the run has no finished round"
    assert share_of_wall(run_with(tmp_path / "run", is_certified=False)).of_wall == pytest.approx(1.5 / 20.0)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--rounds", "10,1"), "bench-overhead: --rounds 10,1: rising numbers from 1 on, such as 1,10,100"),
        (("--rounds", "0"), "bench-overhead: --rounds 0: rising numbers"),
        (("--rounds", "1,x"), "bench-overhead: --rounds 1,x: rising numbers"),
        (("--run", "nowhere"), "bench-overhead: --run nowhere: no run, it has no journal.jsonl"),
    ],
)
def test_what_it_cannot_do_is_refused(words: tuple[str, ...], problem: str) -> None:
    done = bench(*words)
    assert done.returncode == 2 and problem in done.stderr
