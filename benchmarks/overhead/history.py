"""A journal of many rounds: two recorded ones (`rounds.json`, of tiny_cpu), repeated under other names and words."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

from vibeserve.core.nouns import Proposal
from vibeserve.journal import Journal
from vibeserve.planning import BACKLOG, FRAMEWORK, NOTE, PLANNER, Change, ItemState, NoteChange

RECORDED = Path(__file__).with_name("rounds.json")
SEED_WORKSPACE = "r00a1"
EVERY_ACCEPTED, EVERY_NOTE, NUM_SPENDS = 10, 5, 6
"""one round in so many is accepted, or leaves a note; requests of agents a round"""
WORDS = (
    "batch", "fuse", "cache", "prefill", "decode", "attention", "linear", "weights", "queue", "slot", "chunk", "prefix",
    "kernel", "thread", "pack", "quantise", "sampling", "tokenize", "stream", "page", "block", "reuse", "schedule",
    "gather", "scatter", "rope", "norm", "residual", "layout", "tile", "unroll", "vector", "overlap", "copy", "lock",
)  # fmt: skip


class Recorded:
    """The recorded rounds, as data."""

    def __init__(self) -> None:
        document = json.loads(RECORDED.read_text(encoding="utf-8"))
        self.seed: dict[str, Any] = document["seed"]
        self.later: dict[str, Any] = document["later"]


def idea(number: int) -> tuple[str, str]:
    """Title and mechanism of the `number`-th idea, in words of its own: none is like another."""
    words = [f"{word}{number}" for word in random.Random(number).sample(WORDS, 20)]
    return " ".join(words[:6]), " ".join(words)


def proposal(number: int) -> Proposal:
    """Code to be written: likeness goes by its words, which is the dear kind."""
    title, mechanism = idea(number)
    return Proposal(
        proposal_id=f"p{number}", title=title, hypothesis=f"{mechanism}, and so it is faster", mechanism=mechanism,
        activation_evidence="a span shrinks", falsification="the paired ratio includes 1", forecast_ratio=1.1,
        components=(), parameters={},
    )  # fmt: skip


def seed_entry(recorded: Recorded, *, run_dir: Path, commit: str) -> dict[str, Any]:
    """Round 0, its workspace and commit those of this run."""
    entry = copy.deepcopy(recorded.seed)
    _place(entry, run_dir=run_dir, commit=commit, name=SEED_WORKSPACE)
    return entry


def _place(entry: dict[str, Any], *, run_dir: Path, commit: str, name: str) -> None:
    workspace = str(run_dir / "workspaces" / name)
    for holder in (entry["record"], entry["checkpoint"]):
        holder["candidate"] |= {"candidate_id": name, "commit": commit, "workspace": workspace}
    entry["checkpoint"] |= {"workspace": workspace, "assembled": {"components": [], "parameters": {}}}


def add_round(journal: Journal, recorded: Recorded, number: int, *, run_dir: Path, commit: str) -> None:
    """The events that one round leaves: an idea taken up, requests of agents, the round, what became of the idea."""
    title, mechanism = idea(number)
    is_accepted = number % EVERY_ACCEPTED == 0
    change: dict[str, Any] = {"item": f"b{number}", "title": title, "mechanism": mechanism, "round": number}
    journal.append(BACKLOG, Change(state=ItemState.IN_PROGRESS, who=PLANNER, **change), durable=False)
    for _ in range(NUM_SPENDS):
        journal.append("spend", _spend(number), durable=False)
    entry = copy.deepcopy(recorded.later)
    _place(entry, run_dir=run_dir, commit=commit, name=f"r{number:02d}a1")
    entry["record"]["proposal"] |= {
        "proposal_id": f"p{number}", "title": title, "mechanism": mechanism, "components": [], "parameters": {},
        "card": "",
    }  # fmt: skip
    entry["record"] |= {"number": number, "outcome": "accepted" if is_accepted else "rejected"}
    if not is_accepted:
        entry["checkpoint"] = None
    journal.append("round", entry, durable=False)
    state = ItemState.DONE if is_accepted else (ItemState.ABANDONED if number % 2 else ItemState.PARKED)
    journal.append(BACKLOG, Change(state=state, who=FRAMEWORK, why="as measured", **change), durable=False)
    if number % EVERY_NOTE == 0:
        note = NoteChange(note=f"n{number // EVERY_NOTE}", action="add", text=mechanism, who=PLANNER, round=number)
        journal.append(NOTE, note, durable=False)


def _spend(number: int) -> dict[str, Any]:
    usage = {
        "input_tokens": 9000, "output_tokens": 700, "cached_input_tokens": 4000, "reasoning_tokens": 0,
        "num_requests": 1,
    }  # fmt: skip
    return {
        "role": "implementer", "key": f"r{number:02d}a1-implementer", "backend": "openai", "model": "scripted",
        "usage": usage, "usd": 0.01, "is_estimate": False,
    }  # fmt: skip
