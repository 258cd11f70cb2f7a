"""Journals of made-up runs, for the tests of status and report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from artifact_samples import sample_manifest

from vibeserve.agents.ledger import Spend
from vibeserve.agents.requests import AgentUsage
from vibeserve.core.documents import from_data, to_data
from vibeserve.core.manifest import Intervention, Manifest, RoundEntry
from vibeserve.core.nouns import Candidate, Decision, Outcome, Proposal, RatioInterval, Refusal, Round, Verdict
from vibeserve.journal import Journal, read_events
from vibeserve.planning import calibration_of
from vibeserve.status import checkpoint_graph, round_rows

IDEAS = (
    "batch requests at every step", "keep the KV cache in blocks", "fuse the gate and up projections",
    "pack the weights once at start", "share the prefix of a prompt", "sample without a sort",
)  # fmt: skip
FAILED = {
    Outcome.CRASHED: "start/died: the server died before it was ready",
    Outcome.TIMED_OUT: "start/timed_out: not ready within 120 s",
    Outcome.INFRA: "the machine was too busy: no steady pair of windows in 16",
    Outcome.REJECTED: "x1.01 [0.99, 1.03]: not above the noise floor of 2.0%",
}


def round_data(
    number: int, *, outcome: Outcome = Outcome.ACCEPTED, ratio: float | None = 1.5, spread: float = 0.05,
    seconds: float = 60.0, parent: str = "", beside_parent: float | None = None, refused: Refusal | None = None,
    forecast: float = 1.4,
) -> dict[str, Any]:  # fmt: skip
    """Data of a `round` event; the candidate of round 3 is `r03a1`, its commit `c3`. `parent` is where a search of
    several branches says that the round started, `beside_parent` its ratio there: it then left a checkpoint."""
    is_measured = ratio is not None and number > 0
    interval = RatioInterval(
        ratio=ratio or 1.0, ci_low=(ratio or 1.0) * math.exp(-spread), ci_high=(ratio or 1.0) * math.exp(spread),
        num_pairs=8,
    )  # fmt: skip
    title = f"{IDEAS[number % len(IDEAS)]} ({number})"
    proposal = Proposal(
        proposal_id=f"p{number:03d}", title=title, hypothesis=f"requests wait while {title}",
        mechanism="fewer bytes a token", activation_evidence="the span decode.linear shrinks by a third",
        falsification="the interval includes 1", forecast_ratio=forecast, components=("first",),
        parameters={"block": 8},
    )  # fmt: skip
    record = Round(
        number=number, proposal=proposal if number else None, outcome=outcome if number else Outcome.BASELINE,
        candidate=Candidate(candidate_id=f"r{number:02d}a1", commit=f"c{number}", workspace="w", origin="agent:m"),
        reason=FAILED.get(outcome, "faster") if number else "the seed passes the gates",
        decision=Decision(accepted=True, reason="", headline=interval if is_measured else None, noise_floor=0.02),
        verdict=Verdict(refusals=(refused,) if refused else (), checks=("accuracy",)), seconds=seconds,
        spans={"queue": 0.4 / (number + 1), "decode.linear": 0.6, "http": 0.1},
    )  # fmt: skip
    entry = {"record": to_data(record), "checkpoint": None, "measurements": None, "spent": {"windows": seconds / 2}}
    if not parent:
        return entry
    beside = None
    if beside_parent:
        beside = {"ratio": beside_parent, "ci_low": beside_parent * 0.9, "ci_high": beside_parent * 1.1}
    step = {"move": number, "parent": parent, "against_parent": beside}
    return {**entry, "step": step, "kept": {"candidate": {}} if beside else None}


def spend(key: str, *, tokens: int = 100, usd: float | None = 0.01, backend: str = "openai") -> Spend:
    role = key.rpartition("-")[2]
    usage = AgentUsage(input_tokens=tokens - 10, output_tokens=10)
    return Spend(role=role, key=key, backend=backend, model="m-1", usage=usage, usd=usd)


def long_run(folder: Path, *, num_rounds: int = 40) -> Path:
    """The journal of a search with every outcome, agents that spent, and people who stepped in; returns its path."""
    path = folder / "journal.jsonl"
    with Journal.open(path) as journal:
        budget = {"rounds": num_rounds + 5, "wall_s": 1e5}
        journal.append("opened", {"target": "long", "plan_id": "0123456789abcdef", "budget": budget,
                                  "headline": "output_throughput"})  # fmt: skip
        for number in range(num_rounds):
            if number:
                journal.append("spend", spend(f"p{number:02d}-planner", tokens=4000 + 100 * number))
                journal.append("spend", spend(f"r{number:02d}a1-implementer", tokens=20_000, usd=0.2))
            journal.append("round", round_of(number))
    return path


def round_of(number: int) -> dict[str, Any]:
    """The `number`th round of `long_run`."""
    outcomes = (
        Outcome.ACCEPTED, Outcome.REJECTED, Outcome.REJECTED, Outcome.CRASHED, Outcome.REJECTED, Outcome.INFRA,
        Outcome.TIMED_OUT,
    )  # fmt: skip
    outcome = outcomes[(number - 1) % len(outcomes)]
    refused = None
    if number % 7 == 3:
        refused = Refusal(
            gate="accuracy", reason_class="wrong_tokens", text="0.91 of the tokens agree, 0.97 are needed"
        )
    ratio = {Outcome.ACCEPTED: 1.3 + 0.05 * (number % 3), Outcome.REJECTED: 0.97 + 0.04 * (number % 2)}.get(outcome)
    return round_data(
        number, outcome=outcome, ratio=1.6 if refused else ratio, refused=refused, seconds=60.0 + number,
        forecast=1.2 + 0.1 * (number % 5), spread=0.02 + 0.01 * (number % 3),
    )  # fmt: skip


def long_manifest(path: Path, **changes: object) -> Manifest:
    """The manifest of `long_run`'s journal, at `path`."""
    records = [from_data(Round, event.data["record"]) for event in read_events(path) if event.kind == "round"]
    nodes = {node.round: node for node in checkpoint_graph(round_rows(read_events(path)))}
    rounds = tuple(
        RoundEntry(
            number=record.number, outcome=record.outcome, reason=record.reason, proposal=record.proposal,
            headline=record.decision.headline if record.decision else None, spans=record.spans,
            cumulative_ratio=nodes[record.number].ratio, seconds=record.seconds,
            refusals=record.verdict.refusals if record.verdict else (),
        )
        for record in records
    )  # fmt: skip
    asked = Intervention(
        number=1, command="constrain", text="constrain ban paged-kv", who="person ada", round=7, state="applied",
        at="2026-11-30T08:00:00+00:00", effect="from the next proposal on",
    )  # fmt: skip
    fields: dict[str, object] = {
        "target": "long", "rounds": rounds, "calibration": calibration_of(records), "interventions": (asked,),
        "candidates_tried": len(rounds),
    }  # fmt: skip
    return sample_manifest(**(fields | changes))
