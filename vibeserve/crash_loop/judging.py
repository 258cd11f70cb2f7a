"""What must be true of a run that was killed: nothing acknowledged is gone, nothing finished is done again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vibeserve.core.documents import canonical_json
from vibeserve.crash_loop.lives import Life, State
from vibeserve.journal import Event

MEASURES = "start "
"""of stage `certify`: `start 1 of 1, load c4: ...`"""


def lost_events(before: State, after: State) -> list[str]:
    """Events that were in the journal and are not any more, or say something else now."""
    later = {event.seq: event for event in after.events}
    return [f"event {event.seq} ({event.kind}) is gone" for event in before.events if later.get(event.seq) != event]


def repeated_work(life: Life, *, earlier: Iterable[Life]) -> list[str]:
    """Rounds and certifications that were finished before this life and are measured in it; steps that run again."""
    stages = [(str(event["stage"]), str(event["text"])) for event in life.told]
    found = [f"round {n} is measured again" for n in sorted(life.before.rounds) if (f"round {n}", n) in _rounds(stages)]
    if life.before.is_certified and any(stage == "certify" and text.startswith(MEASURES) for stage, text in stages):
        found.append("the certification is measured again")
    done = {step for each in earlier for step in _steps(each, "ran")}
    return found + [f"step {step} runs again" for step in sorted(done & set(_steps(life, "started")))]


def _rounds(stages: Sequence[tuple[str, str]]) -> set[tuple[str, int]]:
    return {(stage, int(stage[6:])) for stage, _ in stages if stage.startswith("round ") and stage[6:].isdecimal()}


def _steps(life: Life, state: str) -> Iterator[str]:
    return (str(event["stage"]) for event in life.told if event.get("state") == state)


def repeated_requests(asked: Iterable[str], *, reference: Iterable[str], num_in_flight: int = 0) -> list[str]:
    """Calls of agents (by key) for which more requests were sent than in a run that nobody killed. One that was in
    flight when the run was killed, and so was never answered, may come again."""
    allowed, sent = Counter(reference), Counter(asked)
    extra = {key: number - allowed[key] for key, number in sent.items() if number > allowed[key]}
    if sum(extra.values()) <= num_in_flight:
        return []
    return [f"{key}: {number} requests more than without a kill" for key, number in sorted(extra.items())]


def outcome_of(state: State) -> list[str]:
    """What a run came to, without times and measured numbers: rounds with their trees, ideas, the winner."""
    found: list[str] = []
    for event in state.events:
        essence = _essence(event)
        if essence is not None and essence not in found:
            found.append(essence)
    return sorted(found)


def _essence(event: Event) -> str | None:
    data = event.data
    if event.kind == "round":
        record, checkpoint = data["record"], data["checkpoint"]
        facts: dict[str, Any] = {
            "number": record["number"], "outcome": record["outcome"], "attempts": record["attempts"],
            "candidate": (record["candidate"] or {}).get("commit"), "checkpoint": (checkpoint or {}).get("candidate"),
        }  # fmt: skip
        if checkpoint:
            facts["checkpoint"] = checkpoint["candidate"]["commit"]
        return f"round {canonical_json(facts)}"
    if event.kind == "backlog":
        return f"backlog {data['item']} {data['state']} {data['title']}"
    return f"{event.kind} {canonical_json(data)}" if event.kind in ("synthesized", "tier", "steerable") else None


def other_outcome(reference: State, found: State) -> list[str]:
    """What differs between a run that was killed and one that was not."""
    wanted, got = outcome_of(reference), outcome_of(found)
    missing = [f"missing: {line[:200]}" for line in wanted if line not in got]
    return missing + [f"not in the reference: {line[:200]}" for line in got if line not in wanted]


def status_of(artifact: Path) -> str:
    """`certified` or `uncertified`; empty without an artifact."""
    path = artifact / "manifest.json"
    if not path.is_file():
        return ""
    manifest: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return str(manifest["status"])
