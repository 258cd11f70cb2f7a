"""The manifest of a finished run, from its journal, its certification and its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata

from vibeserve.agents.ledger import Spend
from vibeserve.artifact.provenance import slsa_predicate
from vibeserve.build.authorship import authorship
from vibeserve.build.runs import Run, spends_of
from vibeserve.build.seeded import blame_of_seed
from vibeserve.build.selection import selection_of
from vibeserve.certification import Certification
from vibeserve.control import interventions_of
from vibeserve.core.documents import from_data
from vibeserve.core.environment import Environment
from vibeserve.core.manifest import Authorship, Calibration, Manifest, RoundEntry, RoundRecord
from vibeserve.core.nouns import Outcome, Refusal, Role
from vibeserve.core.spent import added, shares
from vibeserve.hardware import identity
from vibeserve.modalities import bundle_ref
from vibeserve.modalities.copies import judged_by
from vibeserve.planning import calibration_of
from vibeserve.results import goal_results
from vibeserve.schedules import SCHEDULES
from vibeserve.spec import ClockKind
from vibeserve.synthesis import Search

VERSIONED = ("vibeserve", "torch", "transformers", "hydra-core", "numpy")


def make_manifest(run: Run, search: Search, result: Certification) -> Manifest:
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
        reasons=reasons, goals=goal_results(result.metrics, spec=spec),
        authorship=_authorship(run, search), metrics=result.metrics,
        accuracy=result.verdict.accuracy,
        judged_by=judged_by(bundle_ref(spec, model_dir=run.model().path)), candidates_tried=num_candidates(search),
        audits=result.audits, selection=selection_of(search, result, spec=spec),
        environment=_environment(run), usage=usage_of(search, result, spends=spends_of(run)),
        digests=dict(run.plan.digests) | {"weights": run.model().digest},
        provenance=_provenance(run, search), calibration=_calibration(run, search),
        interventions=interventions_of(run.journal.events()),
    )  # fmt: skip


def _authorship(run: Run, search: Search) -> tuple[Authorship, ...]:
    return authorship(search.entries, store=run.store(), assemble=run.assemble, before=blame_of_seed(run))


def _calibration(run: Run, search: Search) -> Calibration | None:
    """None where there is no forecast to score, and under a fake clock: it measures what the cards say."""
    if run.plan.spec.evaluation.clock is ClockKind.fake:
        return None
    found = calibration_of(entry.record for entry in search.entries)
    return found if found.forecasts else None


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
    if spec.agents.backend == "replay":
        found.append("the search: its outcomes are those of a recording, and so are the rounds' shares of the gain")
    if SCHEDULES[spec.budget.level].certify_starts == 1:
        found.append("a second start: what differs between two starts of one server is not in the intervals")
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
                    activation=record.activation,
                ),
                verdict=record.verdict, measurements=entry.measurements,
                profile=entry.checkpoint.profile if entry.checkpoint else None,
                patch=store.diff(parent, commit) if commit else "",
            )
        )  # fmt: skip
        if record.outcome in (Outcome.ACCEPTED, Outcome.BASELINE):
            total, parent = cumulative or total, commit
    return records


def num_candidates(search: Search) -> int:
    """Every candidate that was offered for judgement, tuning variants included: how often the search looked."""
    return sum(
        entry.record.attempts + (len(entry.record.proposal.variants) if entry.record.proposal else 0)
        for entry in search.entries
    )


def usage_of(search: Search, result: Certification, *, spends: Sequence[Spend] = ()) -> dict[str, float]:
    """Tokens and money of agents; seconds of rounds and certification, and what of them was measuring and gates."""
    wall_s = sum(entry.record.seconds for entry in search.entries) + result.seconds
    spent = added([*(entry.spent for entry in search.entries), result.spent])
    discarded = sum(entry.num_discarded for entry in search.entries) + result.num_discarded
    return {
        **spent_by_agents(spends), "wall_s": round(wall_s, 1), "device_s": spent.get("windows", 0.0),
        **shares(spent, wall_s=wall_s), **{f"{name}_s": value for name, value in spent.items()},
        "num_discarded_pairs": float(discarded),
    }  # fmt: skip


def spent_by_agents(spends: Sequence[Spend]) -> dict[str, float]:
    """Tokens and USD, together and by role. `unpriced_tokens` are those of models without a price: they are in no
    sum of money."""
    roles = sorted({spend.role for spend in spends})
    by_role = {
        f"{role}_tokens": float(sum(spend.usage.tokens for spend in spends if spend.role == role)) for role in roles
    }
    unpriced = float(sum(spend.usage.tokens for spend in spends if spend.usd is None))
    return {
        "tokens": float(sum(spend.usage.tokens for spend in spends)),
        "usd": round(sum(spend.usd or 0.0 for spend in spends), 6), **by_role,
        **({"unpriced_tokens": unpriced} if unpriced else {}),
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
