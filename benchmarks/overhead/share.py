"""The framework's share of a finished run: wall time of rounds and certification without measuring, judging, agents."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.errors import SpecError
from vibeserve.journal import read_events

ANSWERS = "agents/*/answer.json"
CERTIFIED = "steps/certify/stamp.json"


@dataclass(frozen=True, kw_only=True)
class Share:
    """Seconds, and what of them is nobody's but the framework's."""

    of_wall: float | None = None
    wall_s: float = 0.0
    """of every round and the certification, without waiting for devices"""
    measured_s: float = 0.0
    """windows, starts of servers, and every gate"""
    agents_s: float = 0.0
    why_not: str = ""

    def __str__(self) -> str:
        if self.of_wall is None:
            return f"not known: {self.why_not}"
        parts = f"{self.measured_s:.0f} s measured and judged, {self.agents_s:.0f} s agents"
        return f"{self.of_wall:.2%} of {self.wall_s:.0f} s ({parts})"


def share_of_wall(run: Path) -> Share:
    """Of the run whose state lies in `run`. SpecError where there is none."""
    journal = run / "journal.jsonl"
    if not journal.is_file():
        raise SpecError(f"bench-overhead: --run {run}: no run, it has no journal.jsonl", hint="ls .vibeserve/runs")
    rounds = [event.data for event in read_events(journal) if event.kind == "round"]
    if not rounds:
        return Share(why_not="the run has no finished round")
    wall_s = sum(float(entry["record"]["seconds"]) for entry in rounds)
    measured_s = sum(sum(entry["spent"].values()) for entry in rounds)
    if (run / CERTIFIED).is_file():
        certified: dict[str, Any] = json.loads((run / CERTIFIED).read_text(encoding="utf-8"))["document"]
        wall_s += float(certified["seconds"])
        measured_s += sum(certified["spent"].values())
    answers = [json.loads(path.read_text(encoding="utf-8")) for path in run.glob(ANSWERS)]
    agents_s = sum(float(answer["exit"]["seconds"]) for answer in answers if not answer["key"].startswith("p"))
    left_s = wall_s - measured_s - agents_s
    return Share(
        of_wall=round(left_s / wall_s, 5), wall_s=round(wall_s, 3), measured_s=round(measured_s, 3),
        agents_s=round(agents_s, 3),
    )  # fmt: skip
