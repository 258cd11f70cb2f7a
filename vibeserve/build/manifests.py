"""The manifest of a finished run, from its journal, its certification and its plan."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from vibeserve.artifact.provenance import slsa_predicate
from vibeserve.build.runs import Run
from vibeserve.build.selection import selection_of
from vibeserve.certification import Certification
from vibeserve.core.documents import from_data
from vibeserve.core.environment import Environment
from vibeserve.core.manifest import Authorship, Manifest, RoundEntry, RoundRecord
from vibeserve.core.nouns import Outcome, Refusal, Role
from vibeserve.core.spent import added, shares
from vibeserve.hardware import identity
from vibeserve.modalities import bundle_ref
from vibeserve.modalities.copies import judged_by
from vibeserve.results import goal_results
from vibeserve.skills.assembler import ASSEMBLY_PATH
from vibeserve.spec import ClockKind
from vibeserve.synthesis import Entry, Search

VERSIONED = ("vibeserve", "torch", "transformers", "hydra-core", "numpy")


def make_manifest(run: Run, search: Search, result: Certification, *, workspace: Path) -> Manifest:
    """What is claimed.

    `certified` only where every gate of the level ran and passed and every required baseline has a headline value.
    """
    spec = run.plan.spec
    reasons = (*result.verdict.refusals, *_missing_baselines(run, result))
    status = "certified" if result.verdict.passed and not reasons else "uncertified"
    bench_tier = next((str(event.data) for event in run.journal.events("tier")), "")
    return Manifest(
        target=run.plan.target, plan_id=run.plan.plan_id, status=status, level=spec.budget.level.value,
        created_at=_now(), sandbox_tier=bench_tier, hardware=identity(run.facts), not_run=not_run(run, result),
        reasons=reasons, goals=goal_results(result.metrics, spec=spec), authorship=authorship(search, workspace),
        metrics=result.metrics, accuracy=result.verdict.accuracy,
        judged_by=judged_by(bundle_ref(spec, model_dir=run.model().path)), candidates_tried=num_candidates(search),
        audits=result.audits, selection=selection_of(search, result, spec=spec),
        environment=_environment(run), usage=usage_of(search, result),
        digests=dict(run.plan.digests) | {"weights": run.model().digest},
        provenance=_provenance(run, search),
    )  # fmt: skip


def _environment(run: Run) -> Environment | None:
    """The machine as it was while the winner was certified; None where nothing was measured."""
    event = run.journal.last("certified")
    data = event.data.get("environment") if event is not None else None
    return from_data(Environment, data) if data else None


def not_run(run: Run, result: Certification) -> tuple[str, ...]:
    """What the level, the target, the clock or the scale left out."""
    spec = run.plan.spec
    found = list(result.not_run)
    if spec.evaluation.loads != "all":
        others = sorted(set(spec.workload.loads) - {spec.workload.headline_load})
        if others:
            found.append(f"loads {', '.join(others)} (evaluation.loads=all)")
    if spec.evaluation.clock is ClockKind.fake:
        found.append("search decisions on measured time: they came from a fake clock")
    if spec.evaluation.window_scale != 1.0:
        found.append(f"windows of the level's length: scaled by {spec.evaluation.window_scale:g}, not quotable")
    return tuple(found)


def _missing_baselines(run: Run, result: Certification) -> Iterator[Refusal]:
    """A required baseline without a ratio of the headline: the comparison did not happen."""
    if not result.metrics and not result.verdict.passed:
        return  # refused before anything was measured
    headline = next((metric for metric in result.metrics if metric.role is Role.HEADLINE), None)
    measured = {row.name for row in (headline.baselines if headline else ()) if row.ratio is not None}
    for name, declared in run.plan.spec.baseline.items():
        if declared.required and name not in measured:
            text = f"required baseline '{name}' has no value of the headline metric to compare with"
            yield Refusal(gate="baseline", reason_class="missing_baseline", text=text)


def round_records(run: Run, search: Search) -> list[RoundRecord]:
    """Every round for `rounds/NNNN/`, with the cumulative ratio over round 0 and the patch against the incumbent."""
    store = run.store()
    records = []
    total, parent = 1.0, None
    for entry in search.entries:
        record = entry.record
        headline = record.decision.headline if record.decision else None
        cumulative = total * headline.ratio if headline else total if record.number == 0 else None
        commit = record.candidate.commit if record.candidate else ""
        records.append(
            RoundRecord(
                entry=RoundEntry(
                    number=record.number, outcome=record.outcome, reason=record.reason, proposal=record.proposal,
                    commit=commit, headline=headline, cumulative_ratio=cumulative, spans=record.spans,
                    seconds=record.seconds, refusals=record.verdict.refusals if record.verdict else (),
                ),
                verdict=record.verdict, measurements=entry.measurements,
                patch=store.diff(parent, commit) if commit else "",
            )
        )  # fmt: skip
        if record.outcome in (Outcome.ACCEPTED, Outcome.BASELINE):
            total, parent = cumulative or total, commit
    return records


def authorship(search: Search, workspace: Path) -> tuple[Authorship, ...]:
    """Lines of the winner by origin, and the share of the search's log-gain by the round that brought it.

    The gain is over round 0: the scaffold's own share is 0 by definition. A tuning round's gain goes to `tuning`.
    """
    files = json.loads((workspace / ASSEMBLY_PATH).read_text(encoding="utf-8"))["files"]
    lines: dict[str, int] = {}
    for file in files:
        lines[file["origin"]] = lines.get(file["origin"], 0) + int(file["num_lines"])
    gains: dict[str, float] = {}
    for entry in search.entries:
        for origin, gain in _gain(entry):
            gains[origin] = gains.get(origin, 0.0) + gain
    total = sum(gains.values())
    shares = {origin: gain / total if total > 0 else 0.0 for origin, gain in gains.items()}
    origins = sorted({*lines, *shares})
    return tuple(
        Authorship(origin=origin, lines=lines.get(origin, 0), share_of_log_ratio=round(shares.get(origin, 0.0), 4))
        for origin in origins
    )


def _gain(entry: Entry) -> Iterator[tuple[str, float]]:
    record = entry.record
    headline = record.decision.headline if record.decision else None
    if record.outcome is Outcome.ACCEPTED and headline is not None and record.candidate is not None:
        yield record.candidate.origin, math.log(headline.ratio)


def num_candidates(search: Search) -> int:
    """Every candidate that was offered for judgement, tuning variants included: how often the search looked."""
    return sum(
        entry.record.attempts + (len(entry.record.proposal.variants) if entry.record.proposal else 0)
        for entry in search.entries
    )


def usage_of(search: Search, result: Certification) -> dict[str, float]:
    """Tokens and money, seconds of rounds and certification, and what of them went to measuring and to the gates."""
    wall_s = sum(entry.record.seconds for entry in search.entries) + result.seconds
    spent = added([*(entry.spent for entry in search.entries), result.spent])
    discarded = sum(entry.num_discarded for entry in search.entries) + result.num_discarded
    return {
        "tokens": 0.0, "usd": 0.0, "wall_s": round(wall_s, 1), "device_s": spent.get("windows", 0.0),
        **shares(spent, wall_s=wall_s), **{f"{name}_s": value for name, value in spent.items()},
        "num_discarded_pairs": float(discarded),
    }  # fmt: skip


def _provenance(run: Run, search: Search) -> dict[str, object]:
    versions = {name: metadata.version(name) for name in VERSIONED}
    first = run.journal.events()[0]
    started = datetime.fromtimestamp(first.time_s, UTC).isoformat(timespec="seconds")
    return slsa_predicate(
        target=run.plan.target, overrides={}, plan_id=run.plan.plan_id, versions=versions,
        materials=dict(run.plan.digests) | {"weights": run.model().digest}, started_at=started, finished_at=_now(),
    )  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
